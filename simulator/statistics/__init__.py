"""Scalars and spectra of spectral fields, which models put together into their rows and series."""
