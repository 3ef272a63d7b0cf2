"""Data sets for learning: the rules of The Well's format, and the same bytes however often the process was killed."""

import os
import shutil
import signal
from pathlib import Path

import h5py
import numpy as np
import pytest
from run_support import ROOT
from sweep_support import together

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
dataset: {split: [0.5, 0.25, 0.25], trajectories_per_file: 1}
"""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.spmd
def test_a_killed_data_set_has_the_same_bytes_when_it_is_continued(study, monkeypatch) -> None:
    """One run is done and the others are interrupted between steps; later the process dies between two files."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    sweep = study(STUDY, BASE)
    together(sweep)
    whole = contents(dataset.write_dataset(sweep))
    assert len(whole) == 2 + 1 + 1 + 2

    done, advance, calls = sweep.runs[1], Ensemble._stepped, []
    sweep = study(STUDY, BASE.replace("directory: out", "directory: again"))
    with monkeypatch.context() as patched:
        patched.setattr(Ensemble, "_stepped", lambda self: calls.append(1) or _stopping(calls) or advance(self))
        together(sweep)
    shutil.rmtree(sweep.runs[1].folder)
    shutil.copytree(done.folder, sweep.runs[1].folder)
    stages = [str(status.stage) for status in statuses_of([run.folder for run in sweep.runs])]
    assert stages == ["interrupted", "done", "interrupted", "interrupted"]
    with monkeypatch.context() as patched:
        patched.setattr(dataset, "sync_folder", lambda path: 1 / 0)
        assert main(["dataset", "study.yaml"]) == 1
    folder = sweep.folder / "dataset"
    assert len(contents(folder)) == 2
    assert main(["dataset", "study.yaml"]) == 0 and contents(folder) == whole


def _stopping(calls: list[int]) -> None:
    if len(calls) == 3:  # the first compiles
        os.kill(os.getpid(), signal.SIGTERM)


def test_the_format_of_the_well(study) -> None:
    """The rules that The Well checks its own files by (scripts/check_thewell_formatting.py), and the runs' values."""
    sweep = study(STUDY.replace("file: 1", "file: 4"), BASE)
    together(sweep)
    folder = dataset.write_dataset(sweep)
    (path,) = (folder / "data" / "train").iterdir()
    with h5py.File(path) as file:
        attributes, dimensions = file.attrs, file["dimensions"]
        assert [attributes[n] for n in ("dataset_name", "grid_type", "n_spatial_dims", "n_trajectories")] == [
            "study", "cartesian", 2, 2,
        ]  # fmt: skip
        assert all(name in attributes for name in attributes["simulation_parameters"])
        assert attributes["time.dt"] == 0.02 and "model.viscosity" not in attributes
        assert list(dimensions.attrs["spatial_dims"]) == ["x", "y"]
        assert {name: stored.shape for name, stored in dimensions.items()} == {"time": (3,), "x": (8,), "y": (12,)}
        assert list(file["scalars"].attrs["field_names"]) == ["model.viscosity"]
        names = [list(file[f"t{order}_fields"].attrs["field_names"]) for order in range(3)]
        assert names == [["buoyancy"], ["velocity"], []]
        for name, shape in (("t0_fields/buoyancy", (2, 3, 8, 12)), ("t1_fields/velocity", (2, 3, 8, 12, 2))):
            stored = file[name]
            assert (stored.shape, stored.dtype, list(stored.attrs["dim_varying"])) == (shape, "f4", [1, 1])
            assert stored.attrs["sample_varying"] and stored.attrs["time_varying"]
        for axis, group in zip("xy", file["boundary_conditions"].values(), strict=True):
            assert (group.attrs["bc_type"], list(group.attrs["associated_dims"])) == ("PERIODIC", [axis])
            assert group["mask"].dtype == bool and list(np.flatnonzero(group["mask"])) == [0, len(group["mask"]) - 1]
        for hash_, viscosity, values in zip(
            attributes["runs"], file["scalars/model.viscosity"], file["t1_fields/velocity"], strict=True
        ):
            run = open_run(sweep.folder / hash_)
            assert viscosity == np.float32(run.config["model"]["viscosity"])
            for frame, snapshot in zip(values, run.snapshots, strict=True):
                np.testing.assert_array_equal(frame, np.moveaxis(snapshot["velocity"][...], 0, -1).astype("f4"))
        velocity = file["t1_fields/velocity"][...].astype(float)
    stats = read_yaml(folder / "stats.yaml").value
    assert set(stats) == {f"{name}{end}" for name in ("mean", "rms", "std") for end in ("", "_delta")}
    np.testing.assert_allclose(stats["std"]["velocity"], velocity.std((0, 1, 2, 3)), rtol=1e-10)
    increments = (np.diff(velocity, axis=1) ** 2).mean((0, 1, 2, 3)) ** 0.5
    np.testing.assert_allclose(stats["rms_delta"]["velocity"], increments, rtol=1e-10)


EVERY = "output.snapshots.every: "


@pytest.mark.parametrize(
    ("text", "base", "message"),
    [
        (
            STUDY,
            BASE.replace("every: 0.1", "every: 0.07"),
            EVERY + "frames have a constant interval: give a part of time.stop = 0.2, e.g. 0.066",
        ),
        (STUDY, BASE.replace("every: 0.1", "every_steps: 1"), EVERY + "frames have a constant interval"),
        (STUDY.replace("0.5,", "0.7,"), BASE, "dataset.split: train (above 0), valid and test must add"),
        (STUDY.replace("n: 4", "n: 1"), BASE, "dataset.split: 1 runs cannot be divided as 0.5,0.25,0.25; add runs"),
        (STUDY.replace("model.viscosity", "time.stop"), BASE, "time.stop: differs between runs 0 and 1"),
    ],
)
def test_runs_that_are_no_data_set(tmp_path, monkeypatch, capsys, text: str, base: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text(base)
    Path("study.yaml").write_text(text)
    assert main(["dataset", "study.yaml"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line and not Path("out").exists()
