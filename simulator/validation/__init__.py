"""Shipped validation cases: what the program computes, held against exact solutions and published numbers."""

from simulator.validation import taylor_green, turbulence, waves
from simulator.validation.case import Case

CASES: dict[str, Case] = {
    case.name: case for module in (taylor_green, waves, turbulence) for case in module.CASES
}
"""A new case is an entry in a module's CASES."""
