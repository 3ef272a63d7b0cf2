"""`scripts/validate.py`, and the published cases: everything within its tolerance."""

import json

import numpy as np
import pytest
from validate import main
from validation_cases import CASES
from validation_cases.case import Case, Check, Curve, Result
from validation_cases.taylor_green import REFERENCE, worst_row


def test_a_case_that_passes(tmp_path, capsys):
    assert main(["abc_decay", "--output", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "energy, t = 1" in printed and "1 cases, all within their tolerances" in printed
    (entry,) = json.loads((tmp_path / "validation.json").read_text())
    assert entry["case"] == "abc_decay" and all(
        check["passed"] and check["source"] for check in entry["checks"]
    )
    assert "| abc_decay | energy, t = 1 |" in (tmp_path / "validation.md").read_text()


def test_a_miss_gives_exit_code_1_and_not_a_number_is_a_miss(tmp_path, capsys, monkeypatch):
    source = "a book"
    checks = [
        Check("speed", 1.0, 1.02, 0.01, source),
        Check("drift", 0.0, 1e-3, 1e-2, source, absolute=True),
    ]
    line = np.linspace(0, 1, 5)
    curve = Curve("made_up", line, line**2, line, line, ("t", "x"), source)
    monkeypatch.setitem(
        CASES, "made_up", Case("made_up", "one that misses", lambda: Result(checks, [curve]))
    )
    assert main(["made_up", "--output", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert (
        "0.02 rel" in printed
        and "MISS" in printed
        and "missed: made_up" in printed
        and printed.count("pass") == 1
    )
    assert (tmp_path / "made_up.png").stat().st_size > 1000
    assert not Check("x", 1.0, float("nan"), 1.0, "").passed


def test_cases_are_listed_and_unknown_ones_named(capsys):
    assert main(["--list"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in CASES)
    assert printed.count("(--full)") == sum(case.full for case in CASES.values()) > 0
    with pytest.raises(SystemExit):
        main(["abc_decoy"])
    assert "unknown case 'abc_decoy'; known: taylor_green_early" in capsys.readouterr().err


DEFAULT = (
    "taylor_green_early",
    "taylor_green_inviscid",
    "sound_wave",
    "jeans_collapse",
    "matter_wave",
)
"""The cases that other tests do not cover; all others are slow."""
LONG = ("dynamo_12", "dynamo_20", "dynamo_40")
"""Of those that are left to --full, the ones that two cores can do: the kinematic dynamo grows at
Rm = 12, decays at 20, grows at 40 (Galloway & Frisch 1986), at known rates."""


def marks(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.smoke] if name == DEFAULT[0] else [pytest.mark.slow] * (name not in DEFAULT)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=marks(n)) for n in CASES if not CASES[n].full or n in LONG]
)
def test_a_case_is_within_its_tolerances(name: str):
    missed = [check for check in CASES[name].run().checks if not check.passed]
    assert not missed


def test_the_vortex_is_compared_at_every_published_row():
    """One of 2000 rows that is 2 % off is found."""
    time, _, dissipation = REFERENCE.T
    assert len(time) == 2000 and time[-1] == 19.99
    computed = dissipation.copy()
    assert worst_row("dissipation", time, dissipation, computed, 1e-12).passed
    computed[333] *= 1.02
    check = worst_row("dissipation", time, dissipation, computed, 0.01)
    assert not check.passed and check.quantity == "dissipation, worst of 2000 rows, t = 3.33"
