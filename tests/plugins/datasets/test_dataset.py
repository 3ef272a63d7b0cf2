"""Data sets for learning: the rules of The Well's format, and the same bytes however often the
process was killed; and lazy arrays, batches, streams, and the reader of The Well."""

import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from run_support import ROOT
from small_study import base_of, study_of
from sweep_support import together
from tiers import slow

from simulator.archive.open_run import open_run
from simulator.archive.snapshot_reader import StoredField
from simulator.cli import main
from simulator.config import read_yaml
from simulator.errors import UserError
from simulator.plugins.datasets import dataset
from simulator.plugins.datasets.stream import stream
from simulator.study.ensemble import Ensemble
from simulator.study.study_status import MemberState, MemberStatus, statuses_of
from simulator.study.sweep import Sweep, open_sweep
from simulator.study.sweep_progress import next_commands

MODEL = "{kind: boussinesq, viscosity: 0.01, diffusivity: 0.01, stratification: 1}"
BASE = base_of((8, 12), MODEL)
STUDY = study_of(4, "split: [0.5, 0.25, 0.25], trajectories_per_file: 2, refined_runs: 0")


def written(sweep: Sweep) -> Path:
    with dataset.DatasetWriter(sweep) as writer:
        return writer.finish()


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.long
@pytest.mark.spmd
def test_a_killed_data_set_has_the_same_bytes_when_it_is_continued(study, monkeypatch):
    """One run is done and the others are interrupted between steps; later the process dies between
    two files."""
    sweep = study(STUDY, BASE)
    together(sweep)
    whole = contents(written(sweep))
    done = sweep.runs[1]
    files = {path.name for path in done.folder.rglob("*.h5")} | {
        path.name for path in done.folder.glob("*.vtkhdf")
    }
    assert (
        files == {"p00000.h5", "spectra.h5"} and main(["verify", str(done.folder)]) == 0
    )  # no index
    advance = Ensemble._stepped
    calls = []

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
    assert 2 <= len(contents(sweep.folder / "dataset")) < len(whole)
    assert main(["dataset", "study.yaml"]) == 0 and contents(sweep.folder / "dataset") == whole


def test_files_are_written_while_other_runs_go_on(computed: Sweep, monkeypatch):
    sweep = computed
    whole = contents(written(sweep))
    shutil.rmtree(sweep.folder / "dataset")
    going = sweep.parts["test"][0].folder
    going.rename(going.with_name("later"))
    monkeypatch.setattr(dataset, "_LOOK", 0.01)
    with dataset.DatasetWriter(sweep) as writer:
        began = time.monotonic()
        with writer.beside():
            while (
                len(found := list(sweep.folder.glob("dataset/data/*/*.hdf5"))) < 2
                and time.monotonic() < began + 60
            ):
                time.sleep(0.01)
        assert {path.parent.name for path in found} == {"train", "valid"}
        going.with_name("later").rename(going)
        assert contents(writer.finish()) == {
            **whole,
            "lock": (sweep.folder / "dataset/lock").read_bytes(),
        }
    assert contents(sweep.folder / "dataset") == whole


def check_shapes(file: Any) -> None:
    """The rule of The Well on everything that a file names: it says by booleans which axes it has,
    and has these."""
    spatial = [*file["dimensions"].attrs["spatial_dims"]]
    length = {axis: len(file[f"dimensions/{axis}"]) for axis in spatial}
    along = {
        "dimensions/time": (),
        **{f"dimensions/{axis}": (length[axis],) for axis in spatial},
        **{f"scalars/{name}": () for name in file["scalars"].attrs["field_names"]},
    }
    for order in range(3):
        for name in file[f"t{order}_fields"].attrs["field_names"]:
            described = file[f"t{order}_fields/{name}"].attrs["dim_varying"]
            assert (described.dtype, len(described)) == (bool, len(spatial))
            extents = [
                length[axis] for axis, varies in zip(spatial, described, strict=True) if varies
            ]
            along[f"t{order}_fields/{name}"] = (*extents, *order * [len(spatial)])
    for name, condition in file["boundary_conditions"].items():
        extents = tuple(length[axis] for axis in condition.attrs["associated_dims"])
        along[f"boundary_conditions/{name}"] = extents
    for name, extents in along.items():
        item = file[name]
        varying = [item.attrs[key] for key in ("sample_varying", "time_varying")]
        assert {type(value) for value in varying} == {np.bool_}, name
        sizes = (file.attrs["n_trajectories"], len(file["dimensions/time"]))
        lead = tuple(n for n, varies in zip(sizes, varying, strict=True) if varies)
        array = item["mask"] if isinstance(item, h5py.Group) else item
        assert array.shape == (*lead, *extents), name


@pytest.fixture
def trained(computed: Sweep) -> Iterator[Any]:
    """The file of train of the data set."""
    with h5py.File(written(computed) / "data" / "train" / "study_0000.hdf5") as file:
        yield file


def names_in(file: Any, group: str) -> list[str]:
    return [*file[group].attrs["field_names"]]


def test_the_format_of_the_well(trained: Any):
    """The rules that The Well checks its own files by (scripts/check_thewell_formatting.py)."""
    check_shapes(trained)
    described = dict(
        dataset_name="study", grid_type="cartesian", n_spatial_dims=2, n_trajectories=2
    )
    assert described.items() <= dict(trained.attrs).items()
    shared = {*trained.attrs["simulation_parameters"]}
    assert {"time.dt"} < shared < trained.attrs.keys()
    assert [*trained["dimensions"].attrs["spatial_dims"]] == ["x", "y"]
    lengths = {name: len(trained[f"dimensions/{name}"]) for name in ("time", "x", "y")}
    assert lengths == {"time": 3, "x": 8, "y": 12}
    fields = [names_in(trained, f"t{order}_fields") for order in range(3)]
    assert fields == [["buoyancy"], ["velocity"], []]
    varied, *constants = names_in(trained, "scalars")
    assert varied == "model.viscosity" and {*constants} == shared
    assert trained["scalars/time.dt"][()] == np.float32(0.02)
    shapes = {"t0_fields/buoyancy": (2, 3, 8, 12), "t1_fields/velocity": (2, 3, 8, 12, 2)}
    for name, shape in shapes.items():
        stored = trained[name]
        assert (stored.shape, stored.dtype) == (shape, "f4")
        varying = {key: np.atleast_1d(value).tolist() for key, value in stored.attrs.items()}
        assert varying == dict(dim_varying=[True, True], sample_varying=[True], time_varying=[True])
    for axis, group in zip("xy", trained["boundary_conditions"].values(), strict=True):
        assert group.attrs["bc_type"] == "PERIODIC"
        assert [*group.attrs["associated_dims"]] == [axis]
        assert [*np.flatnonzero(group["mask"])] == [0, len(group["mask"]) - 1]


def test_a_data_set_has_the_values_of_the_runs_and_their_statistics(computed: Sweep, trained: Any):
    velocity = trained["t1_fields/velocity"][...]
    rows = zip(trained.attrs["runs"], trained["scalars/model.viscosity"], velocity, strict=True)
    for hash_, viscosity, values in rows:
        run = open_run(computed.folder / hash_)
        assert viscosity == np.float32(run.config["model"]["viscosity"])
        frames = [np.moveaxis(snapshot["velocity"][...], 0, -1) for snapshot in run.snapshots]
        assert_array_equal(values, np.array(frames, "f4"))
    stats = read_yaml(computed.folder / "dataset" / "stats.yaml").value
    assert {"edge_share", "budget_residual"} < stats.pop("certificate").keys()
    velocity = velocity.astype(float)
    kinds = product(("mean", "rms", "std"), ("", "_delta"))
    assert set(stats) == {f"{name}{end}" for name, end in kinds}
    assert_allclose(stats["std"]["velocity"], velocity.std((0, 1, 2, 3)), rtol=1e-10)
    increments = (np.diff(velocity, axis=1) ** 2).mean((0, 1, 2, 3)) ** 0.5
    assert_allclose(stats["rms_delta"]["velocity"], increments, rtol=1e-10)


def test_rounded_snapshots_are_in_the_certificate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text(base_of().replace("every: 0.1", "every: 0.1, error: 1e-3"))
    Path("study.yaml").write_text(study_of(3, "split: [0.4, 0.3, 0.3], refined_runs: 0"))
    assert main(["dataset", "study.yaml"]) == 0
    certificates = open_sweep("study.yaml").certificates
    assert_array_equal(certificates["error_asked"], [1e-3] * 3)
    assert all(1e-4 < error <= 1e-3 for error in certificates["error_measured"])


@pytest.mark.parametrize("name", ["stats.yaml", "certificate.json"])
def test_a_damaged_summary_is_made_again(computed: Sweep, name: str, capsys):
    path = computed.folder / "dataset" / name
    good = path.read_bytes()
    for damaged in (b"", good[: len(good) // 2], good.replace(b"1", b"2"), None):
        path.unlink()
        if damaged is not None:
            path.write_bytes(damaged)
        assert main(["dataset", str(computed.file)]) == 0
        printed = capsys.readouterr().out
        assert f"{name}: damaged or missing; made again" in printed
        assert (
            f"worst of all runs: k_max_eta {computed.certificates['k_max_eta'].min():.3g}, "
            in printed
        )
        assert path.read_bytes() == good


EVERY = "output.snapshots.every: frames have a constant interval: give a part of time.stop = 0.2"


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("every: 0.1", "every: 0.07", EVERY),
        ("every: 0.1", "every_steps: 1", EVERY),
        (
            "0.5,",
            "0.7,",
            "dataset.split: train (above 0), valid and test must add up to 1, not 1.2",
        ),
        ("n: 4", "n: 1", "dataset.split: 1 runs cannot be divided as 0.5,0.25,0.25; add runs"),
        ("model.viscosity", "time.stop", "time.stop: differs between runs 0 and 1"),
    ],
)
def test_runs_that_are_no_data_set(
    tmp_path, monkeypatch, refused_command, old: str, new: str, message: str
):
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text(BASE.replace(old, new))
    Path("study.yaml").write_text(STUDY.replace(old, new))
    line = refused_command("dataset", "study.yaml")
    assert message in line and not Path("out").exists()


SEED = 2


def stored(sweep: Sweep, name: str) -> np.ndarray:
    """The snapshots of all runs, (run, time, component, x, y)."""
    return np.array(
        [[snapshot[name][...] for snapshot in open_run(run.folder).snapshots] for run in sweep.runs]
    )


def test_an_array_reads_what_is_indexed(computed: Sweep, monkeypatch):
    whole = stored(computed, "velocity")
    read = []
    get = StoredField.__getitem__
    monkeypatch.setattr(
        StoredField, "__getitem__", lambda s, i: (read.append(s.name), get(s, i))[1]
    )
    array = computed.array("velocity")
    assert (array.shape, array.dtype, read) == ((4, 3, 2, 8, 12), whole.dtype, [])
    assert_array_equal(array[1:3, -1, 0, ::-3], whole[1:3, -1, 0, ::-3])
    assert len(read) == 2
    assert_array_equal(array, whole)
    assert_allclose(array.time, [[0, 0.1, 0.2]] * 4, atol=1e-12)
    parts = [computed.array("buoyancy", runs=part).shape[0] for part in ("train", "valid", "test")]
    assert parts == [2, 1, 1]


def test_a_sweep_is_shown_on_one_screen_with_what_a_learner_can_have(computed: Sweep):
    refused = {
        "no field 'velocit', did you mean velocity?": lambda s: s.array("velocit"),
        "has no run 9": lambda s: s.array("velocity", runs=[9]),
        "'training' is none of train, valid, test": lambda s: s.array("velocity", runs="training"),
        "batch must be at least 1": lambda s: stream(s, batch=0),
        "unknown field 'velocit', did you mean velocity?": lambda s: next(
            stream(s, batch=2, fields=["velocit"])
        ),
    }
    for message, call in refused.items():
        with pytest.raises(UserError, match=re.escape(message)) as caught:
            call(computed)
        assert "\n" not in str(caught.value)
    for text in (repr(computed), computed._repr_html_()):
        for part in ("4 done", "initial.seed", "model.viscosity", "(4, 3, 2, 8, 12) float64"):
            assert part in text
    assert len(repr(computed).splitlines()) < 12


@pytest.mark.long
@pytest.mark.spmd
@pytest.mark.parametrize(
    "base, batch",
    [
        (BASE, 3),
        (BASE, 1),
        slow(BASE.replace("count: 1", "count: 2"), 3),
    ],
)
def test_a_stream_has_the_values_of_the_snapshots(
    done_study: Path, study, base: str, batch: int, monkeypatch
):
    """Each run once, in an order that the seed chooses, together and, as for large runs, one run
    after another. Programs for other numbers of runs may round differently."""
    sweep = study(STUDY, base)
    parts = list(stream(sweep, batch=batch, seed=SEED))
    monkeypatch.setattr("simulator.study.batch.CACHE", 0)
    in_turn = list(stream(sweep, batch=batch, seed=SEED))
    assert not sweep.folder.exists()
    assert [len(part.runs) for part in parts] == ([3, 1] if batch == 3 else [1] * 4)
    order = [run.index for part in parts for run in part.runs]
    assert sorted(order) == [0, 1, 2, 3] != order
    assert {isinstance(part["velocity"], jax.Array) for part in parts} == {True}
    snapshots = open_sweep(done_study / "study.yaml")
    for name in ("velocity", "buoyancy"):
        for streamed in (parts, in_turn):
            found = np.concatenate([part[name] for part in streamed])
            assert_allclose(found, stored(snapshots, name)[order], rtol=0, atol=1e-12)
    assert_allclose(parts[0].time, [0, 0.1, 0.2])


def test_a_data_set_is_proposed_until_it_is_there(study):
    """Only where the file describes it."""

    def proposed(sweep: Sweep) -> bool:
        commands = next_commands(sweep, [MemberStatus(MemberState.DONE)])
        return any(command.endswith("simulator dataset study.yaml") for command in commands)

    assert not proposed(study(STUDY.partition("dataset:")[0], BASE))
    described = study(STUDY, BASE)
    assert proposed(described)
    (described.folder / "dataset").mkdir(parents=True)
    assert not proposed(described)


def test_an_unfinished_sweep_is_no_array(study):
    with pytest.raises(UserError, match=r"4 runs not done \(0, 1, 2, 3\)"):
        study(STUDY, BASE).array("velocity")


@pytest.mark.slow
def test_the_reader_of_the_well(computed: Sweep, monkeypatch):
    """Its own class, unmodified, gives the values of the runs."""
    data = pytest.importorskip("the_well.data", reason="pip install the-well, which brings torch")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(Path.cwd())]))
    )
    assert main(["dataset", "study.yaml"]) == 0
    folder = str(computed.folder / "dataset")
    for split, runs in computed.parts.items():
        read = data.WellDataset(
            path=folder, well_split_name=split, n_steps_input=1, n_steps_output=1
        )
        assert len(read) == 2 * len(runs)
        fields = [name for names in read.metadata.field_names.values() for name in names]
        assert fields == ["buoyancy", "velocity_x", "velocity_y"]
        known = [np.moveaxis(run, 1, -1) for run in stored(computed, "velocity").astype("f4")]
        for sample in read:
            both = np.concatenate([sample["input_fields"], sample["output_fields"]])[..., 1:]
            assert any(np.array_equal(both, run[t : t + 2]) for run in known for t in range(2))
