"""Cosmology: linear power spectra, cosmological and soliton starts, files of GADGET and MUSIC,
halos, light cones, and their pictures."""
