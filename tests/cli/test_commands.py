"""The commands `verify`, `doctor`, `init` and `cite`, as the command line calls
them."""

import re
from pathlib import Path

import numpy as np
import pytest
from fault_support import flip
from shipped_runs import shipped_runs
from storage_support import grid, save

from simulator.archive.shard import Dataset
from simulator.cli import main
from simulator.cli.case import cases_folder
from simulator.cluster.hardware import usable_cores
from simulator.config import load_config
from simulator.plan import machines
from simulator.study.sweep import open_sweep


@pytest.fixture
def run(tmp_path):
    values = np.arange(64.0).reshape(4, 4, 4)
    for kind in ("snapshots", "checkpoints"):
        for step in (1, 2):
            data = [Dataset("density", values + step, grid(4, 4, 4))]
            save(tmp_path / "run" / kind, step, data, {"time": 0.1 * step})
    return tmp_path / "run"


def test_a_good_run(run, capsys):
    assert main(["verify", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "4 snapshots and checkpoints, 16 files: all good"
    assert f"{run}/snapshots/00000001/shards/p00000.h5: ok" in lines
    assert main(["verify", "--quiet", str(run / "snapshots" / "00000001.h5")]) == 0
    assert capsys.readouterr().out == "1 snapshot or checkpoint, 4 files: all good\n"
    (run / "snapshots" / ".tmp-00000003-ab").mkdir()
    assert main(["verify", str(run)]) == 0
    assert ".tmp-00000003-ab: being written, or left by a killed run" in capsys.readouterr().out


def test_what_is_wrong_is_named_and_is_a_failure(run, capsys):
    shard = run / "checkpoints" / "00000002" / "shards" / "p00000.h5"
    flip(shard, 0.5)
    (run / "snapshots" / "00000001" / "shards" / "p00000.h5").unlink()
    assert main(["verify", str(run), "--quiet"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{run}/snapshots/00000001/shards/p00000.h5: missing",
        f"{shard}: altered (its checksum does not match)",
        "4 snapshots and checkpoints, 16 files: 2 wrong",
    ]


def test_an_index_is_made_again_and_a_damaged_one_is_a_failure(run, capsys):
    index = run / "snapshots" / "00000002.h5"
    for harm, code, said in (
        (index.unlink, 0, "was missing, made again"),
        (lambda: index.write_bytes(b"x"), 1, "altered (its checksum does not match), made again"),
    ):
        harm()
        assert main(["verify", str(run)]) == code
        assert f"{index}: {said}" in capsys.readouterr().out.splitlines()
        assert main(["verify", str(run), "--quiet"]) == 0


CONFIG = str(Path(__file__).parents[2] / "configs" / "taylor_green.yaml")


@pytest.fixture(autouse=True)
def outside_a_job(monkeypatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


@pytest.mark.spmd
def test_who_holds_what_in_a_slab(capsys):
    assert (
        main(["doctor", CONFIG, "devices.platform=cpu", "devices.count=4", "grid.shape=32,30,32"])
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert "devices    4, 4 per process" in lines and "mesh       slab: 4" in lines
    assert "grid       32 x 30 x 32, two_thirds, float64" in lines
    # 30 planes in y are padded to 32, 11 of kz to 12: the last device holds fewer of both.
    assert [line.split() for line in lines if re.match(r" *\d  ", line)] == [
        ["0", "0", "0..7", "0..2", "65.5", "kB", "19.2", "kB"],
        ["1", "0", "8..15", "3..5", "65.5", "kB", "19.2", "kB"],
        ["2", "0", "16..23", "6..8", "65.5", "kB", "19.2", "kB"],
        ["3", "0", "24..29", "9..10", "65.5", "kB", "19.2", "kB"],
    ]


def test_without_a_file_and_inside_a_job_and_refused(capsys, monkeypatch):
    """Only variables that are known to hold no secret are printed."""
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "blue")
    monkeypatch.setenv("SLURM_JWT", "planted-secret")
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "SLURM_CLUSTER_NAME=blue" in shown and "64 x 64 x 64" in shown
    assert "SLURM_JWT" not in shown and "planted-secret" not in shown
    first, *_, transformed, last = shown.splitlines()
    assert first.startswith("process 0 of 1: host ") and last == "no problems found"
    assert "^3 points and back: correct" in transformed
    assert main(["doctor", CONFIG, "grid.shape=4,4,4", "devices.count=100"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith(
        "command line: devices.count: 100 devices cannot share"
    )


def test_a_measured_node_is_planned_with_its_rates(tmp_path, capsys, monkeypatch):
    assert main(["doctor", "--measure"]) == 0
    shown = capsys.readouterr().out
    measured = re.search(r"copy (\S+) GB/s", shown)
    block = shown[shown.index("this-node:") : shown.index("no problems found")]
    table = tmp_path / "devices.yaml"
    table.write_text(machines.DEVICES.read_text() + block)
    monkeypatch.setattr(machines, "DEVICES", table)
    machines.known_machines.cache_clear()
    try:
        node = machines.machine("this-node")  # as `plan --device` looks it up
    finally:
        monkeypatch.undo()
        machines.known_machines.cache_clear()
    assert node.per_node == 1 and node.threads == usable_cores()
    # The block has one decimal place.
    assert measured and node.bandwidth / 1e9 == pytest.approx(float(measured[1]), abs=0.05)


CASES = sorted(path.stem for path in cases_folder().glob("*.yaml"))


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("case", [path.stem for path in shipped_runs()])
def test_a_case_is_the_shipped_one_with_its_further_keys_and_can_be_cited(
    case: str, somewhere: Path, capsys
):
    assert main(["init", case]) == 0 and capsys.readouterr().out == f"{case}.yaml\n"
    written = somewhere / f"{case}.yaml"
    mine = load_config(written)
    shipped = load_config(cases_folder() / f"{case}.yaml")
    paths = {"initial": {"path"}}  # of the user's files, which lie elsewhere
    assert mine.model_dump(exclude=paths) == shipped.model_dump(exclude=paths)
    assert "#   time.max_steps: none" in written.read_text()
    assert main(["cite", str(written)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("@software{simulator,") and printed.count("{") == printed.count("}")
    assert ("TaylorGreen1937" in printed) == case.startswith("taylor_green")


def test_a_sweep_comes_with_its_base_and_nothing_is_overwritten(
    somewhere: Path, capsys, refused_command
):
    assert main(["init", "sweep_viscosity"]) == 0
    assert "simulator sweep plan sweep_viscosity.yaml" in capsys.readouterr().err
    assert (somewhere / "taylor_green.yaml").exists()
    assert "Further keys" not in (somewhere / "sweep_viscosity.yaml").read_text()
    assert len(open_sweep("sweep_viscosity.yaml").runs) == 8
    (somewhere / "taylor_green.yaml").write_text("mine")
    assert main(["init", "taylor_green"]) == 2 and "exists" in capsys.readouterr().err
    assert (somewhere / "taylor_green.yaml").read_text() == "mine"
    assert "did you mean taylor_green?" in refused_command("init", "taylor_grin")
