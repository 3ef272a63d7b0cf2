"""Restoring on other layouts: the reference is a dictionary of modes, filled and looked up one by
one."""

import sys

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from storage_support import XYZ, grid, on_devices, random_field, save, write_sharded

from simulator.archive.manifest import Axis
from simulator.archive.restore import restored_array
from simulator.archive.shard import Dataset
from simulator.archive.snapshot_reader import open_snapshot
from simulator.errors import UserError

pytestmark = pytest.mark.spmd
COMPONENTS = (("x", "y"),)
SINGLE = jax.sharding.SingleDeviceSharding(jax.devices()[0])


def spectral_axes(
    limits: dict[str, int], half: str | None, order: tuple[str, ...]
) -> tuple[Axis, ...]:
    """Modes |k| <= limit per axis in FFT order; of axis `half` only k >= 0."""
    axes = {}
    for name, limit in limits.items():
        labels = list(range(limit + 1)) + ([] if name == half else list(range(-limit, 0)))
        axes[name] = Axis.modes(name, labels)
    return tuple(axes[name] for name in order)


def modes(array: np.ndarray, axes: tuple[Axis, ...]) -> dict:
    """{(component, ((axis, wavenumber), ... by name)): value}."""
    found = {}
    for index in np.ndindex(*(a.size for a in axes)):
        key = tuple(sorted((a.name, a.labels[i]) for a, i in zip(axes, index, strict=True)))
        for c in range(array.shape[0]):
            found[c, key] = array[(c, *index)]
    return found


def hermitian_modes(limit: int) -> np.ndarray:
    """The full spectrum of two real fields, exactly Hermitian, shape (2, n, n, n) in FFT order."""
    n = 2 * limit + 1
    full = random_field(2, n, n, n, dtype=np.complex128)
    mirror = np.roll(full[:, ::-1, ::-1, ::-1], 1, axis=(1, 2, 3))
    return (full + np.conj(mirror)) / 2


LAYOUTS = st.tuples(
    st.permutations(["kx", "ky", "kz"]),
    st.sampled_from([None, "kx", "ky", "kz"]),
    st.fixed_dictionaries({k: st.integers(1, 4) for k in ("kx", "ky", "kz")}),
    st.sampled_from(
        [
            ((1,), 0, None),
            ((2,), 1, None),
            ((4,), 2, None),
            ((8,), 0, None),
            ((2, 2), 0, 1),
            ((2, 4), 2, 0),
        ]
    ),
)


def place(layout: tuple) -> tuple[tuple[Axis, ...], tuple[int, ...], tuple[int | None, ...]]:
    """Axes, mesh and the mesh axis of each array axis."""
    order, half, limits, (mesh, first, second) = layout
    split: list[int | None] = [None] * 4
    split[1 + first] = 0
    if second is not None:
        split[1 + second] = 1
    return spectral_axes(limits, half, tuple(order)), mesh, tuple(split)


@settings(max_examples=30, deadline=None)
@given(LAYOUTS, LAYOUTS)
def test_any_layout_to_any_other_mode_by_mode(tmp_path_factory, stored, wanted):
    full = hermitian_modes(4)
    full_axes = spectral_axes({"kx": 4, "ky": 4, "kz": 4}, None, ("kx", "ky", "kz"))
    everything = modes(full, full_axes)

    axes, mesh, split = place(stored)
    values = np.zeros((2, *(a.size for a in axes)), complex)
    for index in np.ndindex(values.shape):
        key = tuple(sorted((a.name, a.labels[i]) for a, i in zip(axes, index[1:], strict=True)))
        values[index] = everything[index[0], key]
    dataset = Dataset("u", on_devices(values, mesh, split), axes, COMPONENTS, hermitian=True)
    folder = save(tmp_path_factory.mktemp("any"), 1, [dataset])

    target, mesh, split = place(wanted)
    sizes = (2, *(a.size for a in target))
    like = on_devices(np.zeros(sizes), mesh, split)
    got = np.asarray(restored_array(folder, "u", like.sharding, target, like.shape[1:]))

    available = modes(values, axes)
    assert got.shape == like.shape
    for index in np.ndindex(got.shape):
        if any(i >= a.size for i, a in zip(index[1:], target, strict=True)):
            assert got[index] == 0
            continue
        labels = [(a.name, a.labels[i]) for a, i in zip(target, index[1:], strict=True)]
        key = tuple(sorted(labels))
        mirror = tuple(sorted((name, -k) for name, k in labels))
        expected = available.get((index[0], key))
        if expected is None:
            expected = np.conj(available.get((index[0], mirror), 0j))
        assert got[index] == expected


@pytest.mark.parametrize("parts", [(1, 1, 1), (3, 1, 1), (1, 2, 2)])
@pytest.mark.parametrize(
    "mesh, split", [((1,), (0, None, None)), ((3,), (0, None, None)), ((2, 4), (1, None, 0))]
)
def test_physical_fields_of_several_files(tmp_path, parts, mesh, split):
    values = random_field(6, 5, 7)
    folder = write_sharded(tmp_path, 1, {"p": (values, grid(6, 5, 7))}, parts)
    like = on_devices(values, mesh, split)
    got = restored_array(folder, "p", like.sharding, grid(6, 5, 7), like.shape)
    whole = np.zeros(like.shape)
    whole[:6, :5, :7] = values
    assert_array_equal(np.asarray(got), whole)
    turned = restored_array(folder, "p", SINGLE, grid(6, 5, 7)[::-1])
    assert_array_equal(np.asarray(turned), values.transpose())


def test_nyquist_modes_are_one_mode_and_without_the_symmetry_nothing_is_conjugated(tmp_path):
    values = random_field(8, dtype=np.complex128)
    below = Axis.modes("kx", [0, 1, 2, 3, -4, -3, -2, -1], points=8)
    above = Axis.modes("kx", [0, 1, 2, 3, 4, -3, -2, -1], points=8)
    finer = Axis.modes("kx", [0, 1, 2, 3, 4], points=16)
    folder = save(tmp_path, 1, [Dataset("psi", values, (below,))])
    assert_array_equal(np.asarray(restored_array(folder, "psi", SINGLE, (above,))), values)
    assert_array_equal(np.asarray(restored_array(folder, "psi", SINGLE, (finer,)))[4], 0)
    folder = save(tmp_path, 1, [Dataset("psi", np.array([1j, 2j]), (Axis.modes("kx", [0, 1]),))])
    got = restored_array(folder, "psi", SINGLE, (Axis.modes("kx", [0, 1, -1]),))
    assert_array_equal(np.asarray(got), [1j, 2j, 0])


def test_pieces_are_cut_when_memory_is_short(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["simulator.archive.restore"], "PIECE_BYTES", 200)
    values = random_field(3, 6, 5, 4)
    folder = save(tmp_path, 1, [Dataset("u", values, grid(6, 5, 4), XYZ)], {"time": 0.0})
    expected = values.transpose(0, 3, 1, 2)
    sharding = on_devices(expected, (2,), (None, None, 0, None)).sharding
    x, y, z = grid(6, 5, 4)
    got = restored_array(folder, "u", sharding, (z, x, y), (4, 6, 5))
    assert_array_equal(np.asarray(got), expected)


def test_refusals_name_what_does_not_fit(tmp_path):
    values = random_field(6, 5, 4)
    folder = save(tmp_path, 1, [Dataset("p", values, grid(6, 5, 4))])
    snapshot = open_snapshot(folder)
    with pytest.raises(UserError, match="has no field density; its fields are p"):
        restored_array(snapshot, "density", SINGLE, grid(6, 5, 4))
    with pytest.raises(
        UserError, match=r"stored over x \(6 points\), .*, wanted over x \(8 points\)"
    ):
        restored_array(snapshot, "p", SINGLE, grid(8, 5, 4))
    with pytest.raises(
        UserError, match=r"z \(4 points\), wanted over x \(6 points\), y \(5 points\)$"
    ):
        restored_array(snapshot, "p", SINGLE, grid(6, 5))
    modes_of_x = (Axis.modes("x", range(6)), *grid(6, 5, 4)[1:])
    with pytest.raises(UserError, match=r"wanted over x \(modes\), y"):
        restored_array(snapshot, "p", SINGLE, modes_of_x)
