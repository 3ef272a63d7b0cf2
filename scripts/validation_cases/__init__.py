"""The cases of `scripts/validate.py`."""

from validation_cases import bodies, taylor_green, turbulence, waves
from validation_cases.case import Case

CASES: dict[str, Case] = {
    case.name: case for module in (taylor_green, waves, turbulence, bodies) for case in module.CASES
}
"""All cases by name; a new case is an entry in the CASES of its module."""
