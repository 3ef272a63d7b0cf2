"""Quantities computed from stored runs: rows of series again, halos, frequencies."""
