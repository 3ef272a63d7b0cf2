"""Restores stored arrays onto devices, from any layout to any layout.

Axes are matched by name and modes by their signed wavenumbers, so the stored and the requested
layout may differ in axis order, padding, sharding, truncation and resolution, and every mode keeps
its exact value. If the file holds only the mode -k of a real field, the mode k is its conjugate: a
half-complex layout reads a full one and vice versa. Modes that are not stored are zero.

Each device's part is assembled from hyperslabs, a few runs of consecutive stored modes along each
axis. Memory: this part, and pieces of at most 64 MiB, or of one plane if a plane is larger."""

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
import numpy as np
from numpy.typing import DTypeLike

from simulator.archive.manifest import Axis
from simulator.archive.snapshot_reader import Snapshot, StoredField, open_snapshot
from simulator.errors import UserError

PIECE_BYTES = 64 << 20


def restored_array(
    source: str | Path | Snapshot,
    name: str,
    sharding: jax.sharding.Sharding,
    axes: Sequence[Axis],
    padded_shape: tuple[int, ...] | None = None,
    dtype: DTypeLike | None = None,
) -> jax.Array:
    """The field `name` on the devices of `sharding`, in the layout described by `axes`.

    `axes`: the requested trailing axes in order, without padding (`Dataset.axes` of the layout).
    `padded_shape`: the extents of these axes with padding, which is zero (default: no padding). The
    result has shape (components..., *padded_shape); `sharding` belongs to the whole result.
    `dtype`: by default the dtype of the stored field. Raises UserError if the stored field does not
    fit these axes, Damaged if a shard is missing or damaged."""
    snapshot = source if isinstance(source, Snapshot) else open_snapshot(source)
    if name not in snapshot:
        raise UserError(
            f"{snapshot.path}: has no field {name}; its fields are {', '.join(snapshot.fields)}"
        )
    field = snapshot[name]
    order = _axis_order(field, axes)
    padded = tuple(a.size for a in axes) if padded_shape is None else tuple(padded_shape)
    shape = (*field.shape[: len(field.entry.components)], *padded)
    dtype = np.dtype(dtype or field.dtype)

    def part(index: tuple[slice, ...] | None) -> np.ndarray:
        bounds = [s.indices(n)[:2] for s, n in zip(index or (), shape, strict=True)]
        return _assemble(field, axes, order, bounds, dtype)

    return jax.make_array_from_callback(shape, sharding, part)


def _axis_order(field: StoredField, axes: Sequence[Axis]) -> list[int]:
    stored = _extents(field.axes)
    wanted = _extents(axes)
    if stored != wanted:
        there = ", ".join(stored.values())
        raise UserError(
            f"{field.name}: is stored over {there}, wanted over {', '.join(wanted.values())}"
        )
    names = list(stored)
    return [names.index(axis.name) for axis in axes]


def _extents(axes: Sequence[Axis]) -> dict[str, str]:
    """`x (16 points)` or `kx (modes)` by the name of each axis."""
    return {a.name: f"{a.name} ({'modes' if a.labels else f'{a.size} points'})" for a in axes}


def _assemble(
    field: StoredField,
    axes: Sequence[Axis],
    order: list[int],
    bounds: list[tuple[int, int]],
    dtype: np.dtype,
) -> np.ndarray:
    """The part of the requested array between `bounds`, which refer to the padded array."""
    leading = len(field.shape) - len(axes)
    out = np.zeros([stop - start for start, stop in bounds], dtype)
    direct = []
    mirrored = []
    for axis, number, (start, stop) in zip(axes, order, bounds[leading:], strict=True):
        stored = field.axes[number]
        stop = min(stop, axis.size)
        if axis.labels is None:
            direct.append(np.arange(start, max(start, stop)))
            mirrored.append(np.full_like(direct[-1], -1))
            continue
        places = _places(stored, axis)
        labels = axis.labels[start:stop]
        direct.append(np.array([places.get(k, -1) for k in labels], dtype=np.int64))
        mirrored.append(np.array([places.get(-k, -1) for k in labels], dtype=np.int64))
    components = [
        index
        for index, _ in field.entry.component_paths(field.name)
        if all(start <= i < stop for i, (start, stop) in zip(index, bounds, strict=False))
    ]
    for component in components:
        at = tuple(i - start for i, (start, _) in zip(component, bounds, strict=False))
        view = out[(*at, ...)]
        _copy(field, component, order, direct, view, conjugate=False)
        if field.entry.hermitian:
            for i in range(len(axes)):  # the modes whose label on axis i is not stored
                some = [
                    m if j != i else np.where(direct[j] < 0, m, -1) for j, m in enumerate(mirrored)
                ]
                _copy(field, component, order, some, view, conjugate=True)
    return out


def _places(stored: Axis, wanted: Axis) -> dict[int, int]:
    """The stored position of each wavenumber; on the same even grid +points/2 and -points/2 are one
    mode."""
    places = {k: i for i, k in enumerate(stored.labels or ())}
    if stored.points is not None and stored.points == wanted.points and stored.points % 2 == 0:
        half = stored.points // 2
        for k in (half, -half):
            if k not in places and -k in places:
                places[k] = places[-k]
    return places


def _copy(
    field: StoredField,
    component: tuple[int, ...],
    order: list[int],
    places: list[np.ndarray],
    out: np.ndarray,
    conjugate: bool,
) -> None:
    """Copy the entries with a stored place (>= 0) on all axes into `out`, run by run, in bounded
    pieces."""
    plane = field.dtype.itemsize * math.prod(len(p) for p in places[1:])
    most = max(1, PIECE_BYTES // max(plane, 1))
    for runs in itertools.product(_runs(places[0], most), *map(_runs, places[1:])):
        bounds: list[slice] = [slice(None)] * len(order)
        for number, (_, stored) in zip(order, runs, strict=True):
            bounds[number] = stored
        # reading keeps the stored order of the axes
        values = field[(*component, *bounds)].transpose(order)
        out[tuple(requested for requested, _ in runs)] = np.conj(values) if conjugate else values


def _runs(places: np.ndarray, most: int | None = None) -> Iterator[tuple[slice, slice]]:
    """The requested and the stored entries of every run of places that rise or fall by one, divided
    into runs of at most `most` entries. The place -1 stands for an entry that is not stored."""
    there = np.flatnonzero(places >= 0)
    ways = np.where(np.diff(there) == 1, np.diff(places[there]), 0)
    ways[abs(ways) != 1] = 0
    ends = np.flatnonzero((ways == 0) | (abs(np.diff(ways, prepend=ways[:1])) == 2)) + 1
    most = most or len(places)
    for stretch in np.split(there, ends) if len(there) else ():
        for run in (stretch[i : i + most] for i in range(0, len(stretch), most)):
            first = int(places[run[0]])
            last = int(places[run[-1]])
            step = 1 if last >= first else -1
            stop = last + step
            yield slice(run[0], run[-1] + 1), slice(first, stop if stop >= 0 else None, step)
