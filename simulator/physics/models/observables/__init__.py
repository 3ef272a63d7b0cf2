"""Observables of equations: one file for each kind of physics."""
