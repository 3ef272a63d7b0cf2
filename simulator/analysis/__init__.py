"""Quantities computed from stored runs: rows of series again."""
