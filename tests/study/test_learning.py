"""The ways from a sweep to a learner: lazy arrays, batches, streams, and the reader of The Well."""

import os
import re
from pathlib import Path

import jax
import numpy as np
import pytest
from test_batch import together
from test_dataset_command import BASE, STUDY

from simulator.archive.open_run import open_run
from simulator.archive.reader import StoredField
from simulator.cli import main
from simulator.errors import UserError
from simulator.study import Sweep
from simulator.study.stream import stream

SEED = 2


@pytest.fixture
def computed(study) -> Sweep:
    sweep = study(STUDY, BASE)
    together(sweep)
    return sweep


def stored(sweep: Sweep, name: str) -> np.ndarray:
    """The snapshots of all runs, (run, time, component, x, y)."""
    return np.array([[snapshot[name][...] for snapshot in open_run(run.folder).snapshots] for run in sweep.runs])


def test_an_array_reads_what_is_indexed_and_batches_hold_every_window_once(computed: Sweep, monkeypatch) -> None:
    whole, read, get = stored(computed, "velocity"), [], StoredField.__getitem__
    monkeypatch.setattr(StoredField, "__getitem__", lambda s, i: (read.append(s.name), get(s, i))[1])
    array = computed.array("velocity")
    assert (array.shape, array.dtype, read) == ((4, 3, 2, 8, 12), whole.dtype, [])
    np.testing.assert_array_equal(array[1:3, -1, 0, ::-3], whole[1:3, -1, 0, ::-3])
    assert len(read) == 2
    np.testing.assert_array_equal(array, whole)
    np.testing.assert_allclose(array.time, [[0, 0.1, 0.2]] * 4, atol=1e-12)

    batches = computed.batches(["velocity", "buoyancy", "model.viscosity"], size=3, frames=2, seed=5)
    found = [sample for batch in batches for sample in zip(*batch.values(), strict=True)]
    assert len(batches) == 3 and len(found) == 8  # two windows in each of four runs
    buoyancy = stored(computed, "buoyancy")
    windows = []
    for u, b, viscosity in found:
        (i,) = [i for i, run in enumerate(computed.runs) if run.values["model.viscosity"] == viscosity]
        (t,) = [t for t in range(2) if np.array_equal(u, whole[i, t : t + 2])]
        np.testing.assert_array_equal(b, buoyancy[i, t : t + 2])
        windows.append((i, t))
    assert sorted(windows) == list(np.ndindex(4, 2)) != windows
    again, other = (next(iter(computed.batches("velocity", size=8, frames=2, seed=seed))) for seed in (5, 6))
    np.testing.assert_array_equal(again, [sample[0] for sample in found])
    assert not np.array_equal(again, other)
    parts = [next(iter(computed.batches("buoyancy", size=9, runs=part))) for part in ("train", "valid", "test")]
    assert [len(part) for part in parts] == [2, 1, 1]


def test_a_sweep_is_shown_on_one_screen(computed: Sweep) -> None:
    for text in (repr(computed), computed._repr_html_()):
        for part in ("4 done", "initial.seed", "model.viscosity", "(4, 3, 2, 8, 12) float64"):
            assert part in text
    assert len(repr(computed).splitlines()) < 12


def test_what_a_learner_cannot_have(computed: Sweep) -> None:
    refused = {
        "no field 'velocit', did you mean velocity?": lambda s: s.array("velocit"),
        "has no run 9": lambda s: s.array("velocity", runs=[9]),
        "'training' is none of train, valid, test": lambda s: s.array("velocity", runs="training"),
        "size must be a whole number above 0": lambda s: s.batches("velocity", size=0),
        "frames must be a whole number from 1 to 3": lambda s: s.batches("velocity", size=1, frames=4),
        "give the name of at least one field": lambda s: s.batches("initial.seed", size=1),
        "batch must be at least 1": lambda s: stream(s, batch=0),
        "unknown field 'velocit', did you mean velocity?": lambda s: next(stream(s, batch=2, fields=["velocit"])),
    }
    for message, call in refused.items():
        with pytest.raises(UserError, match=re.escape(message)) as caught:
            call(computed)
        assert "\n" not in str(caught.value)


@pytest.mark.spmd
@pytest.mark.parametrize(
    ("base", "batch"),
    [(BASE, 3), (BASE, 1), pytest.param(BASE.replace("count: 1", "count: 2"), 3, marks=pytest.mark.slow)],
)
def test_a_stream_has_the_values_of_the_snapshots(study, base: str, batch: int) -> None:
    """Each run once, in an order that the seed chooses. Programs for other numbers of runs may round differently."""
    sweep = study(STUDY, base)
    parts = list(stream(sweep, batch=batch, seed=SEED))
    assert not sweep.folder.exists()
    assert [len(part.runs) for part in parts] == ([3, 1] if batch == 3 else [1] * 4)
    order = [run.index for part in parts for run in part.runs]
    assert sorted(order) == [0, 1, 2, 3] != order
    assert {isinstance(part["velocity"], jax.Array) for part in parts} == {True}
    together(sweep)
    for name in ("velocity", "buoyancy"):
        found = np.concatenate([part[name] for part in parts])
        np.testing.assert_allclose(found, stored(sweep, name)[order], rtol=0, atol=1e-12)
    np.testing.assert_allclose(parts[0].time, [0, 0.1, 0.2])


def test_an_unfinished_sweep_is_no_array(study) -> None:
    with pytest.raises(UserError, match=r"4 runs are not done \(0, 1, 2, 3\)"):
        study(STUDY, BASE).array("velocity")


@pytest.mark.slow
def test_the_reader_of_the_well(computed: Sweep, monkeypatch) -> None:
    """Its own class, unmodified, gives the values of the runs."""
    data = pytest.importorskip("the_well.data", reason="pip install the-well, which brings torch")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(Path.cwd())])))
    assert main(["dataset", "study.yaml"]) == 0
    folder = str(computed.folder / "dataset")
    for split, runs in computed.split.items():
        read = data.WellDataset(path=folder, well_split_name=split, n_steps_input=1, n_steps_output=1)
        assert len(read) == 2 * len(runs)
        fields = [name for names in read.metadata.field_names.values() for name in names]
        assert fields == ["buoyancy", "velocity_x", "velocity_y"]
        known = [np.moveaxis(run, 1, -1) for run in stored(computed, "velocity").astype("f4")]
        for sample in read:
            both = np.concatenate([sample["input_fields"], sample["output_fields"]])[..., 1:]
            assert any(np.array_equal(both, run[t : t + 2]) for run in known for t in range(2))
