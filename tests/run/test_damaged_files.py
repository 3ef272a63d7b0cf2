"""Runs continue although a loss of power has damaged a file of their folder: whatever can be made again
is set aside, and nothing is lost."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fault_support import everything
from run_support import copied, simulate, simulation, write_case
from tiers import slow_but

from simulator import open_run
from simulator.archive.series_file import Series
from simulator.archive.set_aside import set_results_aside
from simulator.cli import main
from simulator.errors import RunFailure, UserError
from simulator.files import UNRECORDED

EVERYTHING = """
name: all
model: {kind: navier_stokes, viscosity: 0.05}
grid: {shape: [8, 8, 8]}
initial: {kind: random, peak: 2, energy: 0.5, seed: 1}
time: {stop: 1000, max_steps: 4, cfl: 0.3}
devices: {platform: cpu, count: 1}
run: {sync: false}
particles: [{name: drops, kind: tracer, count: 8}]
output:
  diagnostics: {every_steps: 1}
  checkpoints: {every_steps: 2}
  snapshots: {every_steps: 2}
  slices: {every_steps: 2}
  spectra: {every_steps: 2}
  spectral_maps: {every_steps: 2}
  probes: {every_steps: 1, points: [[0, 0, 0]]}
  python: [{path: mine.py, function: mine, every: 0.1}]
"""
MINE = "def mine(fields, time):\n    return {'top': fields['velocity'].max()}\n"
HARMS: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "garbage": lambda path: path.write_bytes(b"\x00garbage\xff\n1,2\n"),
}
NAMES = [
    *("config.yaml", "state.json", "ledger.json", "provenance.json", "diagnostics.csv", "run.log"),
    *("inputs/inputs.json", "inputs/mine.py", "snapshots.vtkhdf", "mine.h5"),
    *(f"{name}.h5" for name in ("slices", "spectra", "spectral_maps", "probes")),
    *("snapshots/00000004.h5", "snapshots/00000004.vtkhdf"),
    *(
        f"checkpoints/0000000{n}/{name}"
        for n in (2, 4)
        for name in ("manifest.json", "shards/p00000.h5")
    ),
    *(f"snapshots/00000004/{name}" for name in ("manifest.json", "shards/p00000.h5")),
]
QUICK = [
    (name, "empty")
    for name in ("config.yaml", "state.json", "diagnostics.csv", "inputs/inputs.json", "spectra.h5")
]
REPORTED = ("config.yaml", "diagnostics.csv", "spectra.h5")  # A report draws for seconds.
ASIDE = ("config.yaml", "state.json", "ledger.json", "provenance.json", "inputs/inputs.json")


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("damaged")
    (place / "mine.py").write_text(MINE)
    case = write_case(place, EVERYTHING)
    assert main(["run", str(case), "--output", str(place / "run")]) == 0
    files = {p for p in everything(place / "run") if "00000000" not in p}
    assert files - {"snapshots/00000002"} >= set(NAMES)
    return place


def read_everything(run: Path) -> None:
    """What a notebook shows of a run; damaged files are refused with their names."""
    opened = open_run(run)
    for read in (
        lambda: opened.diagnostics,
        lambda: opened._repr_html_(),
        lambda: [opened.series(path.stem).at(-1) for path in run.glob("*.h5")],
        lambda: [snapshot["velocity"][0] for snapshot in opened.snapshots],
    ):
        try:
            read()
        except (RunFailure, UserError) as error:
            assert str(run) in str(error) and len(str(error).splitlines()) == 1


@pytest.mark.parametrize(
    "name, harm", slow_but([(name, harm) for name in NAMES for harm in HARMS], QUICK)
)
def test_a_run_goes_on_without_a_damaged_file(
    name: str, harm: str, finished: Path, tmp_path, capsys
):
    run = copied(finished / "run", tmp_path)
    before = everything(run)
    HARMS[harm](run / name)
    damaged = (run / name).read_bytes()
    read_everything(run)
    readers = [["status"], ["plot", "--what", "diagnostics"], ["verify", "--quiet"]]
    for command in [*readers, *([["report"]] if name in REPORTED else [])]:
        assert main([command[0], str(run), *command[1:]]) in (0, 1, 2)
    (run / "report.html").unlink(missing_ok=True)
    assert "Traceback" not in capsys.readouterr().err
    for words in (["resume", str(run)], ["run", str(finished / "case.yaml"), "--output", str(run)]):
        steps = 6 if words[0] == "resume" else 8
        assert main([*words, f"time.max_steps={steps}"]) == 0
        said = capsys.readouterr().out
        assert open_run(run).diagnostics["step"][-1] == steps
    lost = name.startswith("snapshots/00000004/") and "checkpoints" not in name
    assert main(["verify", str(run), "--quiet"]) == int(lost)
    aside = run / f"{name}.damaged"
    if name in ASIDE or (name.endswith(".h5") and "/" not in name):
        assert aside.read_bytes() == damaged
        assert f"set aside as {aside.name}" in (run / "run.log").read_text(), said
    if name == "config.yaml":
        assert open_run(run).config["output"] == {
            **open_run(finished / "run").config["output"],
            "directory": str(run),
        }
    elif name == "inputs/mine.py":
        assert (run / name).read_bytes() == before[name]
    elif name == "diagnostics.csv" and harm == "half":
        assert open_run(run).diagnostics["step"][0] == 0


def test_rows_before_a_damaged_one_stay(finished: Path, tmp_path):
    run = copied(finished / "run", tmp_path)
    table = run / "diagnostics.csv"
    lines = table.read_bytes().splitlines(keepends=True)
    table.write_bytes(b"".join(lines[:3]) + b"\0" * 500 + b"\n" + b"".join(lines[4:]))
    assert main(["resume", str(run), "time.max_steps=6"]) == 0
    assert open_run(run).diagnostics["step"].tolist() == [0, 1, 5, 6]
    assert (run / "diagnostics.csv.damaged").stat().st_size > 500
    assert main(["verify", str(run), "--quiet"]) == 0


def test_a_series_in_parts_is_set_aside_whole(tmp_path):
    path = tmp_path / "spectra.h5"
    series = Series(path, {"k": np.arange(3.0)}, {"E": ("k",)}, full=(2, 1))
    series.extend((step, 0.1 * step, {"E": np.arange(3.0)}) for step in range(6))
    first = min((tmp_path / "spectra.parts").iterdir())
    first.write_bytes(b"")
    (line,) = set_results_aside(tmp_path, ["spectra.h5"], UNRECORDED).values()
    assert "spectra.h5: cannot be read: " in line and "it begins anew" in line
    left = {p.name for p in tmp_path.iterdir()}
    assert left == {"spectra.h5.damaged", "spectra.parts.damaged"}


def test_probes_that_have_moved_are_refused(finished: Path, tmp_path, capsys):
    """Their rows would stand under the places of the earlier ones."""
    run = copied(finished / "run", tmp_path)
    moved = "output.probes={every_steps: 1, points: [[1, 0, 0]]}"
    assert main(["resume", str(run), "time.max_steps=6", moved]) == 2
    assert "probes.h5: x has changed since this file was begun" in capsys.readouterr().err


def test_a_state_that_this_version_does_not_know_is_a_damaged_one(finished: Path, tmp_path):
    run = copied(finished / "run", tmp_path)
    text = (run / "state.json").read_text()
    (run / "state.json").write_text(text.replace('"finished"', '"resting"'))
    assert main(["status", str(run)]) == 0
    assert main(["resume", str(run), "time.max_steps=6"]) == 0
    assert main(["verify", str(run), "--quiet"]) == 0


MEASURED = """
model: {kind: navier_stokes, viscosity: 0.05}
grid: {shape: [8, 8, 8]}
initial: {kind: taylor_green}
time: {stop: 1, dt: 0.1, max_steps: 1}
devices: {platform: cpu, count: 1}
fft: {backend: auto}
"""


def test_a_damaged_measurement_of_transforms_is_made_again(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    cache.mkdir()
    # Compiled kernels are no measurement.
    (cache / "kernels").symlink_to(Path(os.environ["SIMULATOR_CACHE"]) / "kernels")
    monkeypatch.setenv("SIMULATOR_CACHE", str(cache))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    case = write_case(tmp_path, MEASURED)
    assert simulate(case, tmp_path / "run") == 0
    (path,) = cache.rglob("transform-*.json")
    good = path.read_text()
    for bad in (
        "",
        "[]",
        good[:200],
        good.replace('"plan"', '"x"'),
        good.replace('"on": [', '"on": 1, "x": ['),
    ):
        path.write_text(bad)
        simulation(case)
        assert path.read_text() != bad
    provenance = tmp_path / "run/provenance.json"
    content = json.loads(provenance.read_text())
    for mesh in (3, None, {"choice": 3}):
        provenance.write_text(json.dumps({**content, "mesh": mesh}))
        assert main(["resume", str(tmp_path / "run"), "time.max_steps=2"]) == 0
