"""`simulator validate`, and its cases: everything within its tolerance."""

import json

import numpy as np
import pytest
from run_support import call

from simulator.cli import main
from simulator.plugins.validation import cases
from simulator.plugins.validation.case import Case, Check, Curve, Result
from simulator.plugins.validation.cases import CASES, reason_to_leave_out
from simulator.plugins.validation.taylor_green import REFERENCE, worst_row


def test_a_case_that_passes(tmp_path, capsys):
    assert main(["validate", "abc_decay", "--output", str(tmp_path)]) == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("1 process, 1 device (cpu), ")
    assert last.startswith("1 case in ") and last.endswith(", all within their tolerances")
    found = json.loads((tmp_path / "validation.json").read_text())
    assert found["measured"]["command"].startswith("simulator validate abc_decay")
    (entry,) = found["cases"]
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
    assert main(["validate", "made_up", "--output", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "0.02 rel" in printed and "MISS" in printed and printed.count("pass") == 1
    assert printed.endswith("missed: made_up\n") and printed.count(source) == len(checks)
    assert not Check("x", 1.0, float("nan"), 1.0, "").passed


def test_cases_are_listed_and_unknown_ones_named(capsys, refused_command):
    assert main(["validate", "--list"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in CASES)
    assert printed.count("(--full)") == sum(case.full for case in CASES.values()) > 0
    assert "unknown case 'abc_decoy', did you mean abc_decay?" in refused_command(
        "validate", "abc_decoy"
    )


@pytest.mark.plugins("gravity")
def test_cases_without_their_plugin_and_of_one_process_are_left_out(monkeypatch):
    assert reason_to_leave_out(CASES["sound_wave"], 1) is None
    assert reason_to_leave_out(CASES["dynamo_12"], 2) == "runs in one process only"
    monkeypatch.setattr(cases, "MODELS", {})
    reason = "needs self_gravitating_gas, which is not installed"
    assert reason_to_leave_out(CASES["sound_wave"], 1) == reason


@pytest.mark.slow
@pytest.mark.spmd
@pytest.mark.plugins("gravity")
def test_two_processes_agree_with_the_sources(tmp_path):
    """Cases that read parts of fields, which lie on both processes."""
    chosen = ("abc_decay", "inertial_wave", "alfven_wave", "sound_wave")
    done = call("validate", *chosen, "--processes", "2", "--output", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("2 processes, 2 devices (cpu), ")
    assert done.stdout.endswith(", all within their tolerances\n")


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
    if reason := reason_to_leave_out(CASES[name], 1):
        pytest.skip(reason)
    missed = [check for check in CASES[name].run().checks if not check.passed]
    assert not missed


def test_the_vortex_is_compared_at_every_published_row():
    """One of 2000 rows that is 2 % off is found."""
    time, _, dissipation, _ = REFERENCE.T
    assert len(time) == 2000 and time[-1] == 19.99
    computed = dissipation.copy()
    assert worst_row("dissipation", time, dissipation, computed, 1e-12).passed
    computed[333] *= 1.02
    check = worst_row("dissipation", time, dissipation, computed, 0.01)
    assert not check.passed and check.quantity == "dissipation, worst of 2000 rows, t = 3.33"
