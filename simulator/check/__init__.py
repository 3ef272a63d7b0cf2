"""Floor 7: published cases, which compare the program with exact solutions and numbers; the timing of a
step on this machine."""

from simulator.check import taylor_green, turbulence, waves
from simulator.check.case import Case

CASES: dict[str, Case] = {case.name: case for module in (taylor_green, waves, turbulence) for case in module.CASES}
"""A new case is an entry in a module's CASES."""
