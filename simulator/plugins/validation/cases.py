"""All validation cases by name. A new case is an entry of `CASES` in its module."""

from simulator.physics.models import MODELS
from simulator.physics.terms import TERMS
from simulator.plugins.validation import bodies, taylor_green, turbulence, waves
from simulator.plugins.validation.case import Case

CASES: dict[str, Case] = {
    case.name: case for module in (taylor_green, waves, turbulence, bodies) for case in module.CASES
}


def reason_to_leave_out(case: Case, processes: int) -> str | None:
    """Why a case cannot run in this installation, or in so many processes."""
    if case.part and case.part not in (*MODELS, *TERMS):
        return f"needs {case.part}, which is not installed"
    if case.alone and processes > 1:
        return "runs in one process only"
    return None
