"""Measures a step on this machine."""
