"""Snapshots that are rounded in shells of wavenumbers (`output.snapshots.error`)."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest
from flow_support import flow
from numpy.testing import assert_allclose, assert_array_equal
from run_support import CASE, simulate, write_case
from storage_support import in_child, save

from simulator import Simulation, open_run
from simulator.archive import rounding
from simulator.archive.derived import unpack
from simulator.archive.rounded_field import RoundedDataset, Rounder
from simulator.archive.shard import Dataset
from simulator.archive.snapshot_reader import Snapshot, open_snapshot
from simulator.archive.stored_state import component_labels, physical_axes
from simulator.archive.verify import verify
from simulator.cli import main


def errors(exact: np.ndarray, snapshot: Snapshot, name: str) -> np.ndarray:
    """The larger error of each shell, of coefficients or energy, from the values at the points; nan
    in shells that are not stored."""
    axes = snapshot[name].axes
    record = snapshot[name].entry.rounded
    assert record is not None
    places = tuple(range(-len(axes), 0))
    before, after = (
        np.fft.fftn(values, axes=places, norm="forward") for values in (exact, snapshot[name][...])
    )
    k = [2 * np.pi * np.fft.fftfreq(a.size, a.spacing) for a in axes]
    size = np.sqrt(sum(np.square(np.meshgrid(*k, indexing="ij"))))
    shell = np.where(size == 0, 0, (size / record.shell_width + 0.5 + 1e-9) // 1 + 1).astype(int)

    def total(modes: np.ndarray) -> np.ndarray:
        squares = (abs(modes) ** 2).reshape(-1, *size.shape).sum(0)
        return np.bincount(shell.ravel(), squares.ravel(), len(record.steps))

    energy = np.where(np.array(record.steps) > 0, total(before), np.nan)
    of_energy = abs(total(after) - total(before)) / energy
    return np.fmax(np.sqrt(total(after - before) / energy), of_energy)


def on_grid(simulation: Simulation, values: np.ndarray) -> Dataset:
    """Values at the points as a field on the devices of a simulation."""
    physical = simulation.transform.physical
    lead = values.ndim - len(physical.seen_shape)
    room = zip(physical.seen_shape, values.shape[lead:], strict=True)
    padded = np.pad(values, [(0, 0)] * lead + [(0, a - b) for a, b in room])
    array = jax.device_put(padded, physical.seen_sharding(values.ndim))
    axes = physical_axes(simulation.transform)
    return Dataset("field", array, axes, component_labels(values.shape[:lead]))


def cascade(*shape: int, lead: tuple[int, ...] = (), seed: int = 0) -> np.ndarray:
    """Random values with a mean, whose amplitudes fall with the wavenumber by many decades."""
    random = np.random.default_rng(seed)
    axes = tuple(range(-len(shape), 0))
    modes = np.fft.fftn(random.standard_normal((*lead, *shape)), axes=axes)
    k = np.meshgrid(*(np.fft.fftfreq(n, 1 / n) for n in shape), indexing="ij")
    modes *= np.exp(-0.9 * np.sqrt(sum(np.square(k))))
    return 2.0 + np.fft.ifftn(modes, axes=axes).real


def plane_flow(*shape: int, **blocks: Any) -> Simulation:
    return flow(*shape, initial={"kind": "taylor_green"}, **blocks)


FIELDS = {
    "vector": (cascade(16, 12, 9, lead=(3,)), {"box": [6.0, 5.0, 4.0]}),
    "noise": (np.random.default_rng(1).standard_normal((8, 8, 8)), {}),
    "plane": (cascade(24, 10, lead=(2,)), {}),
    "thin": (cascade(16, 8, 1), {}),
    "wave": (cascade(8, 8, 8) * np.exp(1j * cascade(8, 8, 8, seed=2)), {}),
    "narrow shells": (cascade(16, 8, 8), {"box": [25.0, 6.0, 6.0], "shell_width": 0.3}),
    "few modes": (np.sin(np.arange(8) * np.pi / 4) * np.ones((8, 8, 8)) + 0.1, {}),
}


@pytest.mark.parametrize("asked", [0.1, 1e-3, 1e-6])
@pytest.mark.parametrize("name", FIELDS)
def test_every_shell_keeps_the_stated_error(tmp_path, name: str, asked: float):
    values, grid = FIELDS[name]
    shape = values.shape[1:] if name in ("vector", "plane") else values.shape
    simulation = plane_flow(*shape, grid=grid)
    dataset = Rounder(simulation.placement, asked).rounded(on_grid(simulation, values))
    snapshot = open_snapshot(save(tmp_path, 1, [dataset]))
    record = snapshot["field"].entry.rounded
    assert record is not None and record.measured <= asked
    found = errors(values, snapshot, "field")
    assert np.nanmax(found) == pytest.approx(record.measured, rel=1e-4)
    before, after = (v.reshape(-1, *shape) for v in (values, snapshot["field"][...]))
    change, size = (np.sqrt((abs(v) ** 2).sum(0)) for v in (after - before, before))
    rms = np.sqrt((size**2).mean())
    assert_allclose(np.sqrt((change**2).mean()) / rms, record.rms, rtol=1e-3, atol=1e-15)
    assert_allclose(change.max() / rms, record.maximum, rtol=1e-3, atol=1e-15)
    space = tuple(range(1, before.ndim))
    assert_allclose(before.mean(space), after.mean(space), rtol=1e-14)  # means are exact


@pytest.mark.spmd
def test_the_files_of_two_layouts_hold_the_same_field(tmp_path):
    values = cascade(16, 12, 12, lead=(3,))
    read = []
    for count in (1, 4):
        simulation = plane_flow(16, 12, 12, count=count)
        dataset = Rounder(simulation.placement, 1e-3).rounded(on_grid(simulation, values))
        snapshot = open_snapshot(save(tmp_path, count, [dataset]))
        read.append(snapshot["field"])
        assert_array_equal(snapshot["field"][1, ::3, -1:2:-2, 4], read[-1][...][1, ::3, -1:2:-2, 4])
    one, four = (field.entry.rounded for field in read)
    assert one.axes == four.axes and len(read[1].integers.pieces) == 4
    # Round-off moves single coefficients over the middle of two integers.
    assert (one.dtype, four.dtype) == ("<u2", "<u2")
    apart = read[0].integers[...].astype(int) != read[1].integers[...]
    assert apart.mean() < 1e-3


@pytest.mark.parametrize("asked", [1e-1, 1e-3, 1e-5])
def test_noise_takes_the_bits_that_are_planned(tmp_path, asked: float):
    simulation = plane_flow(32, 32, 32)
    noise = np.random.default_rng(3).standard_normal((32, 32, 32))
    save(tmp_path, 1, [Rounder(simulation.placement, asked).rounded(on_grid(simulation, noise))])
    size = next(tmp_path.rglob("p00000.h5")).stat().st_size - 2048  # without HDF5's structure
    # The planes of modes that are their own conjugates are stored twice, 2 of 32.
    assert np.log2(1 / asked) < 8 * size / noise.size < 34 / 32 * rounding.bits(asked) + 0.3


def test_zero_and_what_is_not_finite(tmp_path):
    simulation = plane_flow(8, 8, 8)
    rounder = Rounder(simulation.placement, 1e-3)
    nothing = rounder.rounded(on_grid(simulation, np.zeros((8, 8, 8))))
    assert_array_equal(open_snapshot(save(tmp_path, 1, [nothing]))["field"][...], 0)
    broken = np.ones((8, 8, 8))
    broken[1, 2, 3] = np.nan
    assert rounder.rounded(on_grid(simulation, broken)).rounding is None  # the writer refuses it


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[Path, Path]:
    """A run with exact snapshots and the same with rounded ones."""
    folder = tmp_path_factory.mktemp("runs")
    case = write_case(folder, CASE + "particles: [{name: dust, kind: tracer, count: 50}]\n")
    rounded = "output.snapshots.error=1e-4"
    fields = "output.snapshots.fields=[velocity, vorticity_magnitude]"
    assert simulate(case, folder / "exact", "time.stop=0.4", fields) == 0
    assert simulate(case, folder / "rounded", "time.stop=0.4", fields, rounded) == 0
    return folder / "exact", folder / "rounded"


def test_a_run_rounds_fields_and_nothing_else(runs, capsys):
    exact, rounded = (open_run(run) for run in runs)
    assert len(exact.snapshots) == len(rounded.snapshots) == 2
    for one, two in zip(exact.snapshots, rounded.snapshots, strict=True):
        for name in ("velocity", "vorticity_magnitude"):
            found = errors(one[name][...], two, name)
            assert np.nanmin(found) > 1e-5 and np.nanmax(found) <= 1e-4
        for record, values in one.particles["dust"].items():
            assert_array_equal(values[...], two.particles["dust"][record][...])
        assert two.error is not None
        assert two.error[0] == 1e-4 >= two.error[1]
    one, two = (next((run / "checkpoints").glob("[0-9]*/shards/*")) for run in runs)
    with h5py.File(one) as a, h5py.File(two) as b:
        for part in ("x/0", "y/1"):
            assert_array_equal(a[f"velocity/{part}"], b[f"velocity/{part}"])
    assert main(["verify", str(runs[1])]) == 0


def test_a_rounded_snapshot_starts_a_run_and_is_measured_again(runs, tmp_path):
    step = f"{rounded_folder(runs)}"
    start = f"initial={{kind: snapshot, path: {step}}}"
    case = write_case(tmp_path)
    assert simulate(case, tmp_path / "run", start, "time.max_steps=1", "devices.count=1") == 0
    first = open_run(tmp_path / "run").snapshots[0]
    # The start is free of divergence, which its rounding is not.
    change = first["velocity"][...] - open_snapshot(step)["velocity"][...]
    assert 0 < np.std(change) < 1e-4 * np.std(first["velocity"])
    assert main(["analyze", str(runs[1])]) == 0
    again = open_run(runs[1] / "analysis").spectra["kinetic_energy"]
    once = open_run(runs[0]).spectra["kinetic_energy"]
    assert_allclose(again[-1], once[-1], rtol=1e-4, atol=1e-25)


def rounded_folder(runs: tuple[Path, Path]) -> Path:
    return open_run(runs[1]).snapshots[-1].path


def test_other_programs_read_it_after_unpack(runs):
    folder = rounded_folder(runs)
    index = folder.with_suffix(".h5")
    with h5py.File(index) as file:
        assert "simulator unpack" in file.attrs["rounded_fields"].decode()
        assert "velocity_x" not in file
        assert f"data/{int(folder.name)}/particles/dust/position/x" in file
    assert not folder.with_suffix(".vtkhdf").exists()
    assert unpack(folder) == [index, folder.with_suffix(".vtkhdf")]
    values = open_snapshot(folder)["velocity"][...].astype(np.float32)
    with h5py.File(index) as file, h5py.File(folder.with_suffix(".vtkhdf")) as sidecar:
        assert_array_equal(file["velocity_y"], values[1])
        assert_array_equal(sidecar["VTKHDF/PointData/velocity"], np.moveaxis(values, 0, -1))
    assert verify(folder).ok and unpack(open_run(runs[0]).snapshots[0].path) == []


def rounded_save(parent: Path, step: int, alter: bool = False, **calls: Any) -> Path:
    """A committed folder with a rounded field, of which one integer may be wrong."""
    simulation = plane_flow(8, 8, 8)
    dataset = Rounder(simulation.placement, 1e-3).rounded(on_grid(simulation, cascade(8, 8, 8)))
    assert isinstance(dataset, RoundedDataset)
    integers = np.array(dataset.integers.array)
    integers[0, 1, 1, 1] += 200 * alter
    exact = Dataset("field", integers, dataset.integers.axes, dataset.integers.components)
    return save(parent, step, [replace(dataset, integers=exact)], **calls)


def test_verify_notices_an_altered_integer(tmp_path):
    good = rounded_save(tmp_path, 1)
    assert verify(good).ok
    # The seals of shard and manifest fit, but the energy of a shell does not.
    (wrong,) = verify(rounded_save(tmp_path, 2, alter=True)).problems
    assert "of field has another energy than before rounding" in str(wrong.problem)
    shard = next(good.glob("shards/*"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    assert [f.file for f in verify(good).problems] == [shard]


def _killed(parent: Path) -> None:
    rounded_save(parent, 2, hook=lambda stage: os._exit(9) if stage == "before rename" else None)


def test_a_kill_leaves_the_earlier_snapshot(tmp_path):
    good = rounded_save(tmp_path, 1)
    assert in_child(_killed, tmp_path) == 9
    assert not (tmp_path / "00000002").exists() and verify(good).ok
    assert verify(rounded_save(tmp_path, 2)).ok


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["output.snapshots.error=0.2"], "output.snapshots.error: must be at most 0.1"),
        (["output.snapshots.error=0"], "output.snapshots.error: "),
        (["output.snapshots={error: 1e-3, precision: single}"], "leave precision out"),
        (["precision=single", "output.snapshots.error=1e-7"], "not more exact than 1e-06"),
    ],
)
def test_refusals(tmp_path, capsys, overrides: list[str], line: str):
    assert main(["check", str(write_case(tmp_path)), *overrides]) == 2
    assert line in capsys.readouterr().err


def test_repeated_slices_read_the_file_once(runs, monkeypatch):
    calls = []
    decode = rounding.values_of
    monkeypatch.setattr(
        "simulator.archive.snapshot_reader.values_of",
        lambda *arguments: calls.append(1) or decode(*arguments),
    )
    monkeypatch.setattr(rounding.KEPT, "_values", type(rounding.KEPT._values)())
    field = open_run(runs[1]).snapshots[0]["velocity"]
    planes = [field[2, i] for i in range(3)]
    assert_array_equal(planes, open_run(runs[1]).snapshots[0]["velocity"][2, :3])
    assert len(calls) == 1
