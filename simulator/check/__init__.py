"""Compares the program with exact solutions and published numbers, and times a step on this machine."""

from simulator.check import taylor_green, turbulence, waves
from simulator.check.case import Case

CASES: dict[str, Case] = {case.name: case for module in (taylor_green, waves, turbulence) for case in module.CASES}
"""All cases by name; a new case is an entry in the CASES of its module."""
