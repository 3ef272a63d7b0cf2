"""The published cases that the package ships: everything within its tolerance."""

import pytest

from simulator.check import CASES

DEFAULT = ("taylor_green_early", "taylor_green_inviscid", "alfven_wave")
"""The cases that other tests do not cover; all others are slow."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[pytest.mark.smoke] if n == DEFAULT[0] else [pytest.mark.slow] * (n not in DEFAULT))
        for n, case in CASES.items()
        if not case.full
    ],
)
def test_a_case_is_within_its_tolerances(name: str) -> None:
    missed = [check for check in CASES[name].run().checks if not check.passed]
    assert not missed
