"""Data sets for learning: the rules of The Well's format, and the same bytes however often the process was killed."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from run_support import ROOT
from test_batch import together

from simulator.archive.open_run import open_run
from simulator.cli import main
from simulator.config import read_yaml
from simulator.study import dataset
from simulator.study.ensemble import Ensemble
from simulator.study.study_status import statuses_of

BASE = """\
model: {kind: boussinesq, viscosity: 0.01, diffusivity: 0.01, stratification: 1}
grid: {shape: [8, 12]}
initial: {kind: random, peak: 2}
time: {stop: 0.2, dt: 0.02}
devices: {platform: cpu, count: 1}
output: {directory: out, snapshots: {every: 0.1}}
"""
STUDY = """\
base: base.yaml
sweep: {sample: {n: 4, parameters: {initial.seed: {seeds: [1, 99]}, model.viscosity: {uniform: [0.01, 0.02]}}}}
dataset: {split: [0.5, 0.25, 0.25], trajectories_per_file: 2}
"""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.spmd
def test_a_killed_data_set_has_the_same_bytes_when_it_is_continued(study, monkeypatch) -> None:
    """One run is done and the others are interrupted between steps; later the process dies between two files."""
    sweep = study(STUDY, BASE)
    together(sweep)
    whole, done = contents(dataset.write_dataset(sweep)), sweep.runs[1]
    written = {path.name for path in done.folder.rglob("*.h5")} | {path.name for path in done.folder.glob("*.vtkhdf")}
    assert written == {"p00000.h5", "spectra.h5", "slices.h5"} and main(["verify", str(done.folder)]) == 0  # no index
    advance, calls = Ensemble._stepped, []

    def stepped(self: Ensemble) -> Any:
        calls.append(1)
        if len(calls) == 3:  # the first compiles
            os.kill(os.getpid(), signal.SIGTERM)
        return advance(self)

    sweep = study(STUDY, BASE.replace("directory: out", "directory: again"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(Ensemble, "_stepped", stepped)
    together(sweep)
    shutil.rmtree(sweep.runs[1].folder)
    shutil.copytree(done.folder, sweep.runs[1].folder)
    stages = [str(status.stage) for status in statuses_of([run.folder for run in sweep.runs])]
    assert stages == ["interrupted", "done", "interrupted", "interrupted"]
    with monkeypatch.context() as patched:
        patched.setattr(dataset, "sync_folder", lambda path: 1 / 0)
        assert main(["dataset", "study.yaml"]) == 1
    assert len(contents(sweep.folder / "dataset")) == 2 < len(whole)
    assert main(["dataset", "study.yaml"]) == 0 and contents(sweep.folder / "dataset") == whole


def test_the_format_of_the_well(study) -> None:
    """The rules that The Well checks its own files by (scripts/check_thewell_formatting.py), and the runs' values."""
    sweep = study(STUDY, BASE)
    together(sweep)
    folder = dataset.write_dataset(sweep)
    with h5py.File(folder / "data" / "train" / "study_0000.hdf5") as opened:
        file: Any = opened
        described = dict(dataset_name="study", grid_type="cartesian", n_spatial_dims=2, n_trajectories=2)
        assert described.items() <= dict(file.attrs).items()
        assert {"time.dt"} < {*file.attrs["simulation_parameters"]} < file.attrs.keys()
        assert [*file["dimensions"].attrs["spatial_dims"]] == ["x", "y"]
        assert [file[f"dimensions/{name}"].shape for name in ("time", "x", "y")] == [(3,), (8,), (12,)]
        named = {group: [*file[group].attrs["field_names"]] for group in file if "field_names" in file[group].attrs}
        assert (named["t0_fields"], named["t1_fields"], named["t2_fields"]) == (["buoyancy"], ["velocity"], [])
        assert named["scalars"] == ["model.viscosity"]
        for name, shape in (("t0_fields/buoyancy", (2, 3, 8, 12)), ("t1_fields/velocity", (2, 3, 8, 12, 2))):
            assert (file[name].shape, file[name].dtype) == (shape, "f4")
            varying = {key: np.atleast_1d(value).tolist() for key, value in file[name].attrs.items()}
            assert varying == dict(dim_varying=[True, True], sample_varying=[True], time_varying=[True])
        for axis, group in zip("xy", file["boundary_conditions"].values(), strict=True):
            assert (group.attrs["bc_type"], [*group.attrs["associated_dims"]]) == ("PERIODIC", [axis])
            assert [*np.flatnonzero(group["mask"])] == [0, len(group["mask"]) - 1]
        velocity = file["t1_fields/velocity"][...]
        rows = zip(file.attrs["runs"], file["scalars/model.viscosity"], velocity, strict=True)
        for hash_, viscosity, values in rows:
            run = open_run(sweep.folder / hash_)
            assert viscosity == np.float32(run.config["model"]["viscosity"])
            frames = [np.moveaxis(snapshot["velocity"][...], 0, -1) for snapshot in run.snapshots]
            np.testing.assert_array_equal(values, np.array(frames, "f4"))
    stats, velocity = read_yaml(folder / "stats.yaml").value, velocity.astype(float)
    assert set(stats) == {f"{name}{end}" for name in ("mean", "rms", "std") for end in ("", "_delta")}
    np.testing.assert_allclose(stats["std"]["velocity"], velocity.std((0, 1, 2, 3)), rtol=1e-10)
    increments = (np.diff(velocity, axis=1) ** 2).mean((0, 1, 2, 3)) ** 0.5
    np.testing.assert_allclose(stats["rms_delta"]["velocity"], increments, rtol=1e-10)


EVERY = "output.snapshots.every: frames have a constant interval: give a part of time.stop = 0.2"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("every: 0.1", "every: 0.07", EVERY), ("every: 0.1", "every_steps: 1", EVERY),
        ("0.5,", "0.7,", "dataset.split: train (above 0), valid and test must add up to 1, not 1.2"),
        ("n: 4", "n: 1", "dataset.split: 1 runs cannot be divided as 0.5,0.25,0.25; add runs"),
        ("model.viscosity", "time.stop", "time.stop: differs between runs 0 and 1"),
    ],
)  # fmt: skip
def test_runs_that_are_no_data_set(tmp_path, monkeypatch, capsys, old: str, new: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text(BASE.replace(old, new))
    Path("study.yaml").write_text(STUDY.replace(old, new))
    assert main(["dataset", "study.yaml"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line and not Path("out").exists()
