"""The blocks of a sweep's file and their products; by what a run is known, and the numbers that
plan.json keeps."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from sweep_support import BASE

from simulator.errors import UserError
from simulator.run.folder import FolderContent, RunFolder
from simulator.study.expansion import normal, sample_points
from simulator.study.settings import SampleSettings
from simulator.study.sweep import open_sweep


def values(sweep) -> list[tuple]:
    return [tuple(run.values.values()) for run in sweep.runs]


def test_list_entries_are_taken_as_they_are(study):
    """An entry may set what another does not, start a block anew, and remove a key."""
    entries = (
        "[{initial.kind: abc, initial.A: 2}, {time.max_steps: 3, time.dt: null}, {time.cfl: 0.4}]"
    )
    sweep = study(f"base: base.yaml\nsweep: {{list: {entries}}}")
    first, second, third = (run.config for run in sweep.runs)
    assert (first.initial.kind, first.initial.A) == ("abc", 2)
    assert (second.time.max_steps, second.time.dt, second.time.cfl) == (3, None, 0.5)
    assert (third.time.cfl, third.time.dt) == (0.4, None)


def test_blocks_multiply_in_their_order(study):
    sweep = study("""\
base: base.yaml
sweep:
  sample: {method: random, n: 2, seed: 1, parameters: {initial.amplitude: {uniform: [1, 2]}}}
  list: [{precision: single}, {precision: double}]
  grid: {model.viscosity: [0.1, 0.2, 0.3]}
""")
    assert len(sweep.runs) == 3 * 2 * 2
    a = values(sweep)[0][-1]
    b = values(sweep)[1][-1]
    pairs = [(nu, precision) for nu in (0.1, 0.2, 0.3) for precision in ("single", "double")]
    assert [v[:-1] for v in values(sweep)[::2]] == pairs
    assert {v[-1] for v in values(sweep)} == {a, b}


def test_exclude_takes_out_what_matches_whole_however_it_is_written(study):
    sweep = study("""\
base: base.yaml
sweep:
  grid: {model.viscosity: [1e-3, 3e-4], precision: [single, double]}
  exclude: [{model.viscosity: 0.0003, precision: single}]
""")
    assert values(sweep) == [(1e-3, "single"), (1e-3, "double"), (3e-4, "double")]
    for one, other in ((1, 1.0), ("1/1600", 6.25e-4), ([1, 2], [1.0, "2"]), ({"a": 1}, {"a": 1.0})):
        assert normal(one) == normal(other)
    assert normal(True) != normal(1) and normal("single") != normal("double")


def sample(text_method: str, **parameters) -> SampleSettings:
    return SampleSettings.model_validate(
        {"method": text_method, "seed": 7, "parameters": parameters}
    )


def test_a_hypercube_hits_each_part_of_a_range_once_and_samples_are_repeated_by_their_seed():

    n = 16
    points = sample_points(
        sample("latin_hypercube", a={"uniform": [2, 4]}, b={"log_uniform": [0.1, 10]}), n
    )
    a = [math.floor((p["a"] - 2) / 2 * n) for p in points]
    b = [math.floor((math.log10(p["b"]) + 1) / 2 * n) for p in points]
    assert sorted(a) == sorted(b) == list(range(n)) and a != b
    whole = sample("random", a={"uniform": [0, 1]}, b={"normal": [3, 0.5]}, s={"seeds": [1, 10]})
    assert sample_points(whole, 5) == sample_points(whole, 5)
    alone = sample_points(sample("random", b={"normal": [3, 0.5]}, s={"seeds": [1, 10]}), 8)
    assert [{"b": p["b"], "s": p["s"]} for p in sample_points(whole, 5)] == alone[:5]
    assert sorted(p["s"] for p in sample_points(whole, 10)) == list(range(1, 11))


def test_distributions():
    """Moments of 4000 stratified points: exact to the width of a stratum."""
    n = 4000
    axes = {"g": {"normal": [3, 0.5]}, "c": {"choice": ["x", "y"]}, "i": {"integers": [-1, 2]}}
    points = sample_points(sample("latin_hypercube", **axes), n)
    g = np.array([p["g"] for p in points])
    assert abs(g.mean() - 3) < 2e-3 and abs(g.std() - 0.5) < 5e-3
    assert sum(p["c"] == "x" for p in points) == n // 2
    assert [sum(p["i"] == k for p in points) for k in range(-1, 3)] == [n // 4] * 4


def test_a_sample_pairs_with_zip(study):
    """Each point belongs to a value of zip; whole numbers and seeds arrive as such."""
    sweep = study(
        """\
base: base.yaml
sweep:
  zip: {time.stop: [0.1, 0.2, 0.3]}
  sample: {parameters: {initial.peak: {integers: [2, 3]}, initial.seed: {seeds: [0, 2]}}}
""",
        BASE.replace("taylor_green", "random"),
    )
    assert len(sweep.runs) == 3 and [run.config.time.stop for run in sweep.runs] == [0.1, 0.2, 0.3]
    assert sorted(run.config.initial.seed for run in sweep.runs) == [0, 1, 2]
    assert {run.config.initial.peak for run in sweep.runs} <= {2, 3}


def test_paths_in_a_sweep_start_at_the_sweeps_folder(study, tmp_path: Path):
    """Also where the base lies elsewhere."""
    (tmp_path / "fields").mkdir()
    (tmp_path / "bases").mkdir()
    (tmp_path / "fields" / "mine.py").write_text(
        "def build(x, y, z): return {'velocity': (y, z, x)}\n"
    )
    study("base: base.yaml\nsweep: {grid: {model.viscosity: [1]}}")
    (tmp_path / "base.yaml").rename(tmp_path / "bases" / "base.yaml")
    entry = "{initial.kind: python, initial.path: fields/mine.py, initial.function: build}"
    (tmp_path / "study.yaml").write_text(f"base: bases/base.yaml\nsweep: {{list: [{entry}]}}")
    (run,) = open_sweep("study.yaml").runs
    assert Path(run.config.initial.path) == tmp_path / "fields" / "mine.py"


STUDY = "base: base.yaml\nsweep: {grid: {model.viscosity: [0.1, 0.2]}}\n"


def hashes(sweep) -> dict[float, str]:
    return {run.config.model.viscosity: run.hash for run in sweep.runs}


@pytest.mark.parametrize(
    "old, new, kept",
    [
        ("count: 1", "count: 4", True),
        ("{every_steps: 1}", "{every_steps: 7}", True),
        ("grid:", "fft: {kernels: xla}\ngrid:", True),
        ("[8, 8, 8]", "[8, 8, 8], dealias: two_thirds", True),
        ("stop: 0.1", "stop: 1/10", True),
        ("stop: 0.1", "stop: 0.2", False),
        ("taylor_green", "abc", False),
        ("[8, 8, 8]", "[8, 8, 9]", False),
    ],
)
def test_what_changes_the_results_and_nothing_else_changes_the_hash(
    study, old: str, new: str, kept: bool
):
    mine = hashes(study(STUDY))
    other = hashes(study(STUDY, BASE.replace(old, new)))
    assert mine == other if kept else not set(mine.values()) & set(other.values())


def test_an_input_file_counts_and_any_key_that_the_sweep_varies(study, tmp_path: Path):
    base = BASE.replace("{kind: taylor_green}", "{kind: python, path: mine.py, function: build}")
    (tmp_path / "mine.py").write_text("def build(x, y, z): return {'velocity': (y, z, x)}\n")
    before = hashes(study(STUDY, base))
    assert hashes(study(STUDY, base)) == before
    (tmp_path / "mine.py").write_text("def build(x, y, z): return {'velocity': (z, x, y)}\n")
    assert not set(hashes(study(STUDY, base)).values()) & set(before.values())
    sweep = study(
        "base: base.yaml\nsweep: {grid: {fft.kernels: [native, xla], output.diagnostics.every_steps: [1, 2]}}\n"
    )
    assert len({run.hash for run in sweep.runs}) == 4


def test_adding_values_keeps_runs_and_their_numbers(study):
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


def test_prepare_freezes_every_run_where_it_will_lie(study, tmp_path: Path):
    sweep = study(STUDY)
    assert sweep.folder == tmp_path / "out" / "study"
    sweep.prepare()
    for run in sweep.runs:
        assert run.folder == sweep.folder / run.hash
        assert RunFolder(run.folder).content() is FolderContent.PREPARED
        assert f"directory: {run.folder}" in (run.folder / "config.yaml").read_text()
    plan = json.loads((sweep.folder / "plan.json").read_text())
    assert [entry["hash"] for entry in plan["runs"]] == [run.hash for run in sweep.runs]
    assert [entry["values"] for entry in plan["runs"]] == [
        {"model.viscosity": 0.1},
        {"model.viscosity": 0.2},
    ]


def test_a_prepared_run_follows_the_file_but_a_damaged_plan_stays(study):
    study(STUDY).prepare()
    changed = study(STUDY, BASE.replace("{every: 0.05}", "{every: 0.025}"))
    assert changed.prepare() == []
    assert "every: 0.025" in (changed.runs[0].folder / "config.yaml").read_text()
    sweep = study(STUDY)
    sweep.prepare()
    (sweep.folder / "plan.json").write_text("{")
    with pytest.raises(
        UserError, match=r"/study: not the folder of a sweep; give this sweep another"
    ):
        open_sweep("study.yaml")
