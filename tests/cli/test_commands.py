"""The commands `verify` and `init`, as the command line calls them."""

from pathlib import Path

import numpy as np
import pytest
from fault_support import flip
from shipped_runs import shipped_runs
from storage_support import grid, save

from simulator.archive.shard import Dataset
from simulator.cli import main
from simulator.cli.case import cases_folder
from simulator.config import load_config
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


CASES = sorted(path.stem for path in cases_folder().glob("*.yaml"))


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("case", [path.stem for path in shipped_runs()])
def test_a_case_is_the_shipped_one_with_its_further_keys(case: str, somewhere: Path, capsys):
    assert main(["init", case]) == 0 and capsys.readouterr().out == f"{case}.yaml\n"
    written = somewhere / f"{case}.yaml"
    mine = load_config(written)
    shipped = load_config(cases_folder() / f"{case}.yaml")
    paths = {"initial": {"path"}}  # of the user's files, which lie elsewhere
    assert mine.model_dump(exclude=paths) == shipped.model_dump(exclude=paths)
    assert "#   time.max_steps: none" in written.read_text()


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
