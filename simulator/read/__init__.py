"""Reads a run back: open, verify, status."""
