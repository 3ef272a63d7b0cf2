"""Forcing. A new one is a class here and a line in `FORCINGS`."""

FORCINGS: dict[str, type] = {}
