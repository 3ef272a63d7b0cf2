"""The published cases that the package ships: everything within its tolerance."""

import pytest

from simulator.check import CASES

MARKS = {"inertial_wave": (), "alfven_wave": ()}
"""Of the cases that other tests do not cover; all others are slow."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=MARKS.get(n, pytest.mark.slow)) for n, case in CASES.items() if not case.full],
)
def test_a_case_is_within_its_tolerances(name: str) -> None:
    missed = [check for check in CASES[name].run().checks if not check.passed]
    assert not missed
