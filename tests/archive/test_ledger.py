"""The ledger of a run: whatever is deleted, cut or altered is named, and a run that was killed is
not blamed."""

import contextlib
import gc
import json
import random
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_support import flip
from run_support import copied, simulate, write_case
from storage_support import grid, save

from simulator.archive.ledger import NAME, Ledger, read_ledger
from simulator.archive.manifest import committed
from simulator.archive.series_file import Series, Table
from simulator.archive.shard import Dataset
from simulator.archive.snapshot_writer import Options
from simulator.archive.verify import newest_good, verification
from simulator.cli import main
from simulator.files import checksum, pieces_of, replace_file
from simulator.run.folder import RunFolder

START = """\
import jax.numpy as jnp

def start(x, y, z):
    return {"velocity": jnp.stack(jnp.broadcast_arrays(jnp.sin(y), jnp.cos(x), 0 * (x + y + z)))}
"""
CASE = """\
model: {kind: navier_stokes, viscosity: 0.02}
grid: {shape: [8, 8, 8]}
initial: {kind: python, path: start.py, function: start}
time: {stop: 10, dt: 0.01, max_steps: 8, integrator: rk2}
devices: {platform: cpu, count: 2}
output:
  diagnostics: {every_steps: 1}
  spectra: {every_steps: 2}
  snapshots: {every_steps: 4}
  checkpoints: {every_steps: 2}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ledger")
    (folder / "start.py").write_text(START)
    write_case(folder, CASE)
    return folder


@pytest.fixture(scope="module")
def finished(place: Path) -> Path:
    assert simulate(place / "case.yaml", place / "run") == 0
    return place / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy that a test may ruin."""
    return copied(finished, tmp_path)


def wrong(folder: Path) -> dict[str, str | None]:
    """What verify names, by name in the run folder."""
    found = [checked for report in verification(folder).reports for checked in report.problems]
    return {str(checked.file.relative_to(folder)): checked.problem for checked in found}


# One file of each kind; of different saves, because nothing more is said of one whose manifest is
# bad.
KINDS = (
    "config.yaml",
    "provenance.json",
    "run.log",
    "diagnostics.csv",
    "spectra.h5",
    "slices.h5",
    "inputs/start.py",
    "inputs/inputs.json",
    "snapshots/00000000/manifest.json",
    "snapshots/00000004/shards/p00000.h5",
    "checkpoints/00000006/manifest.json",
    "checkpoints/00000008/shards/p00000.h5",
)
DERIVED = ("snapshots/00000008.h5", "snapshots/00000008.vtkhdf", "snapshots.vtkhdf")


def test_every_file_of_a_run_is_known(finished: Path):
    """Only the two files that vouch for each other are in no list; the run has recorded what it
    removed itself."""
    book = read_ledger(finished)
    shards = {str(p.relative_to(finished)) for p in finished.glob("*/*/shards/*")}
    derived = {f"snapshots/{step:08d}{end}" for step in (0, 4, 8) for end in (".h5", ".vtkhdf")}
    files = {str(p.relative_to(finished)) for p in finished.rglob("*") if p.is_file()}
    assert files - shards - book.files.keys() == {NAME, "state.json", "snapshots.vtkhdf", *derived}
    assert book.files.keys() <= files and book.ended == "finished" and not book.problem
    removed = json.loads((finished / NAME).read_text())["removed"]
    assert removed == dict.fromkeys(
        ("checkpoints/00000002", "checkpoints/00000004"), "the last 2 are kept"
    )
    assert wrong(finished) == {}


@pytest.mark.long
@pytest.mark.parametrize(
    "names", [KINDS, (NAME,), ("state.json",)], ids=["kinds", NAME, "state.json"]
)
def test_60_bit_flips_in_every_kind_of_file_are_found(run: Path, names: tuple[str, ...]):
    """An altered ledger vouches for nothing else, so that it and what vouches for it are altered
    alone."""
    chance = random.Random(12)
    good = {name: (run / name).read_bytes() for name in names}
    for _ in range(60):
        for name in names:
            flip(run / name, chance.random())
        named = wrong(run).keys()
        assert set(names) <= named and (len(names) == 1 or named == set(names))
        for name in names:
            (run / name).write_bytes(good[name])
    assert wrong(run) == {}


@pytest.mark.parametrize("name", DERIVED)
def test_30_bit_flips_in_a_derived_file_are_named_and_mended(run: Path, name: str):
    chance = random.Random(14)
    for _ in range(30):
        flip(run / name, chance.random())
        reports = verification(run if name == "snapshots.vtkhdf" else run / name).reports
        lines = [line for report in reports for line in report.lines()]
        assert any(line.startswith(f"{run / name}: ") and "made again" in line for line in lines)
    assert wrong(run) == {}


@pytest.mark.parametrize("name", [*KINDS, *DERIVED, NAME, "state.json"])
def test_every_deleted_file_is_missing(run: Path, name: str):
    (run / name).unlink()
    found = wrong(run)
    if name in DERIVED:
        assert found == {} and (run / name).exists() and wrong(run) == {}
    else:
        assert found == {name: "missing"}


@pytest.mark.parametrize("kind", ["snapshots", "checkpoints", "inputs"])
def test_every_deleted_folder_is_missing(run: Path, kind: str):
    lost = {
        f"{kind}/{p.name}" for p in (run / kind).iterdir() if p.suffix not in (".h5", ".vtkhdf")
    }
    assert len(lost) >= 2
    shutil.rmtree(run / kind)
    assert wrong(run) == dict.fromkeys(lost, "missing")


@pytest.mark.parametrize("name", ["diagnostics.csv", "run.log", NAME])
def test_lines_cut_from_or_put_into_tables_logs_and_the_ledger(run: Path, name: str):
    text = (run / name).read_text()
    lines = text.splitlines(keepends=True)
    for edited in (
        "".join(lines[:3] + lines[4:]),
        "".join(lines[:-1]),
        text[: len(text) // 2],
        text + "more\n",
        "",
    ):
        (run / name).write_text(edited)
        assert name in wrong(run), edited


def test_the_snapshot_of_another_run_in_the_place_of_one(run: Path):
    """Whole by itself, and not what was committed."""
    shutil.rmtree(run / "checkpoints" / "00000006")
    save(run / "checkpoints", 6, [Dataset("a", np.zeros(3))], options=Options(index=False))
    assert wrong(run) == {"checkpoints/00000006/manifest.json": "not the one that was committed"}


@pytest.mark.parametrize("kind", ["snapshots", "checkpoints"])
def test_a_copy_under_another_steps_name_is_no_save(place: Path, run: Path, kind: str):
    """It may carry the newest step's name, from which a start would continue."""
    saved = committed(run / kind)
    shutil.copytree(saved[-1], run / kind / "00000099")
    (path, problem), *more = wrong(run).items()
    assert (path, more) == (f"{kind}/00000099/manifest.json", [])
    assert problem == f"is of step {int(saved[-1].name)}, a copy under another step's name"
    if kind == "checkpoints":
        assert newest_good(run / kind)[0] == saved[-1]


@pytest.mark.parametrize(
    "name", [NAME, "state.json", "config.yaml", "diagnostics.csv", "snapshots.vtkhdf"]
)
def test_a_folder_in_the_place_of_a_file_is_named(run: Path, name: str, capsys):
    (run / name).unlink()
    (run / name).mkdir()
    assert name in wrong(run) and main(["verify", str(run), "--quiet"]) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_a_run_that_goes_on_keeps_its_ledger(place: Path, run: Path):
    """Saves and rows later than the checkpoint go, and are written again; nothing of that is
    damage, nor are files of the user. An older copy of the ledger is found, and a run that starts
    anew begins another ledger."""
    older = (run / NAME).read_bytes()
    (run / "notes.txt").write_text("mine")
    (run / "plots").mkdir()
    (run / "plots" / "a.png").write_bytes(b"")
    (run / "own.h5").write_bytes(b"not even HDF5")
    shard = run / "checkpoints" / "00000008" / "shards" / "p00000.h5"
    shard.write_bytes(shard.read_bytes()[:-1])
    (run / "spectra.h5").unlink()
    assert simulate(place / "case.yaml", run, "time.max_steps=10") == 0
    assert "warning: " in (log := (run / "run.log").read_text())
    assert f"{run}/spectra.h5: missing; the run continues with the remaining files" in log
    assert wrong(run) == {}
    book = read_ledger(run)
    assert (
        book.ended
        and {f"snapshots/{s:08d}/manifest.json" for s in (0, 4, 8, 10)} <= book.files.keys()
    )
    (run / NAME).write_bytes(older)
    assert wrong(run)[NAME] == "older than state.json"
    assert simulate(place / "case.yaml", run, "--overwrite", "time.max_steps=1") == 0
    assert read_ledger(run).saves < book.saves and wrong(run) == {}


class Cut(Ledger):
    """A ledger whose process is killed after `left` effects: tables and replacements of files."""

    left = 0

    def effect(self):
        Cut.left -= 1
        if Cut.left < 0:
            raise KeyboardInterrupt

    def save(self, ended=None):
        self.effect()
        super().save(ended)
        self.effect()

    def written(self, path):
        super().written(path)
        self.effect()


def comes_to_its_end(folder: Path, effects: int) -> bool:
    """Whether a run that writes all sorts of files has written them after so many effects."""
    Cut.left = effects
    with contextlib.suppress(KeyboardInterrupt):
        ledger = Cut(folder, RunFolder(folder).recorded())
        replace_file(folder / "config.yaml", "one", ledger)
        few: Any = {"journal": ledger, "full": (2, 1)}
        series = Series(folder / "spectra.h5", {"k": np.arange(4.0)}, {"e": ("k",)}, **few)
        table = Table(folder / "diagnostics.csv", ["step", "time"], ledger)
        for step in range(7):
            series.extend([(step, float(step), {"e": np.full(4, step, float)})])
            table.append({"step": step, "time": step})
            if step % 3 == 2:
                ledger.mark(now=True)
        series.truncate(2)
        table.truncate(2)
        replace_file(folder / "config.yaml", "two", ledger)
        ledger.mark(ended="finished")
        return True
    return False


@pytest.mark.long
def test_a_kill_at_any_line_leaves_files_that_the_ledger_accepts(tmp_path: Path):
    """Before each change there is a table; the file that a kill leaves is that of before or
    after."""
    effects = 0
    for effects in range(1, 100):  # nothing is written before the first table
        folder = tmp_path / f"stopped{effects}"
        folder.mkdir()
        if comes_to_its_end(folder, effects):
            break
        problems = {
            n: p for n, p in wrong(folder).items() if n not in ("state.json", "config.yaml")
        }
        assert problems == {}, effects
        # the next start makes it certain
        Ledger(folder, RunFolder(folder).recorded())
        for name, record in read_ledger(folder).files.items():
            if name != "diagnostics.csv":
                assert checksum(pieces_of(folder / name)) == record
    assert 40 < effects < 99


def _many(folder: Path, count: int) -> Path:
    """A run with `count` snapshots: copies of one, each with a manifest of its own."""
    data = [Dataset("density", np.ones((4, 4, 4)), grid(4, 4, 4))]
    for step in range(count):
        save(folder / "snapshots", step, data, {"time": float(step), "configuration": "x" * 5000})
    Ledger(folder, RunFolder(folder).recorded())
    return folder


@pytest.mark.slow
def test_verify_takes_no_memory_for_a_snapshot(tmp_path: Path):
    """The ledger keeps of each three names with their checksums, below 1.2 kB; reading it adds
    nothing that stays. Its manifest alone has 7 kB."""
    run = _many(tmp_path / "run", 120)
    for report in verification(run).reports:  # what is imported and compiled once
        assert report.ok
    gc.collect()
    tracemalloc.start()
    held = []
    for report in verification(run, cores=2).reports:
        if report.folder.name in ("run", "00000020", "00000110"):
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    known, early, late = held
    assert known < 120 * 1200 and late - early < 130 * 120, held


def test_reports_come_in_order_from_all_threads(tmp_path: Path):
    run = _many(tmp_path / "run", 30)
    found = verification(run, cores=5)
    folders = [report.folder for report in found.reports]
    assert folders == [run, *committed(run / "snapshots")] and found.total == len(folders)
