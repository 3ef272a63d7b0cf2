"""Shipped validation cases, which compare the program with exact solutions and published numbers."""

from simulator.validation import jeans, taylor_green, turbulence, waves
from simulator.validation.case import Case

CASES: dict[str, Case] = {
    case.name: case for module in (taylor_green, waves, jeans, turbulence) for case in module.CASES
}
"""A new case is an entry in a module's CASES."""
