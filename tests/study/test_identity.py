"""By what a run is known: what changes its hash and what does not, and the numbers that plan.json keeps."""

import json
from pathlib import Path

import pytest
from sweep_support import BASE

from simulator.errors import UserError
from simulator.run.folder import Found, RunFolder
from simulator.study import open_sweep

STUDY = "base: base.yaml\nsweep: {grid: {model.viscosity: [0.1, 0.2]}}\n"


def hashes(sweep) -> dict[float, str]:
    return {run.config.model.viscosity: run.hash for run in sweep.runs}


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ("count: 1", "count: 4", True), ("{every_steps: 1}", "{every_steps: 7}", True),
        ("grid:", "fft: {block: 2}\ngrid:", True), ("[8, 8, 8]", "[8, 8, 8], dealias: two_thirds", True),
        ("stop: 0.1", "stop: 1/10", True), ("stop: 0.1", "stop: 0.2", False), ("taylor_green", "abc", False),
        ("[8, 8, 8]", "[8, 8, 9]", False),
    ],
)  # fmt: skip
def test_what_changes_the_results_and_nothing_else_changes_the_hash(study, old: str, new: str, kept: bool) -> None:
    mine, other = hashes(study(STUDY)), hashes(study(STUDY, BASE.replace(old, new)))
    assert mine == other if kept else not set(mine.values()) & set(other.values())


def test_a_key_that_is_not_compared_counts_where_the_sweep_varies_it(study) -> None:
    sweep = study("base: base.yaml\nsweep: {grid: {fft.block: [1, 2], output.diagnostics.every_steps: [1, 2]}}\n")
    assert len({run.hash for run in sweep.runs}) == 4


def test_the_content_of_an_input_file_counts(study, tmp_path: Path) -> None:
    base = BASE.replace("{kind: taylor_green}", "{kind: python, path: mine.py, function: build}")
    (tmp_path / "mine.py").write_text("def build(x, y, z): return {'velocity': (y, z, x)}\n")
    before = hashes(study(STUDY, base))
    assert hashes(study(STUDY, base)) == before
    (tmp_path / "mine.py").write_text("def build(x, y, z): return {'velocity': (z, x, y)}\n")
    assert not set(hashes(study(STUDY, base)).values()) & set(before.values())


def test_adding_values_keeps_runs_and_their_numbers(study) -> None:
    first = study(STUDY)
    first.prepare()
    known = {run.hash: run.index for run in first.runs}
    second = study(STUDY.replace("[0.1,", "[0.05, 0.1, 0.15,"))
    indices = {run.config.model.viscosity: run.index for run in second.runs}
    assert indices == {0.1: 0, 0.2: 1, 0.05: 2, 0.15: 3}
    assert known.items() <= {run.hash: run.index for run in second.runs}.items()
    second.prepare()
    third = study(STUDY.replace("[0.1, 0.2]", "[0.3, 0.2]"))
    assert {run.config.model.viscosity: run.index for run in third.runs} == {0.2: 1, 0.3: 4}
    assert {entry["index"] for entry in third.earlier} == {0, 2, 3}


def test_prepare_freezes_every_run_where_it_will_lie(study, tmp_path: Path) -> None:
    sweep = study(STUDY)
    assert sweep.folder == tmp_path / "out" / "study"
    sweep.prepare()
    for run in sweep.runs:
        assert run.folder == sweep.folder / run.hash
        assert RunFolder(run.folder).found() is Found.PREPARED
        assert f"directory: {run.folder}" in (run.folder / "config.yaml").read_text()
    plan = json.loads((sweep.folder / "plan.json").read_text())
    assert [entry["hash"] for entry in plan["runs"]] == [run.hash for run in sweep.runs]
    assert [entry["values"] for entry in plan["runs"]] == [{"model.viscosity": 0.1}, {"model.viscosity": 0.2}]


def test_a_prepared_run_follows_the_file(study) -> None:
    study(STUDY).prepare()
    changed = study(STUDY, BASE.replace("{every: 0.05}", "{every: 0.025}"))
    assert changed.prepare() == []
    assert "every: 0.025" in (changed.runs[0].folder / "config.yaml").read_text()


def test_a_plan_that_was_damaged_is_not_overwritten(study) -> None:
    sweep = study(STUDY)
    sweep.prepare()
    (sweep.folder / "plan.json").write_text("{")
    with pytest.raises(UserError, match=r"plan.json: not the plan of a sweep; give this sweep another"):
        open_sweep("study.yaml")
