"""Calls of the native kernels for the particles of one device: values of a field at the particles'
positions, steps, and the order of particles in buffers. `threads` is the number of threads that
share the work of a call; no result depends on it."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from simulator.spectral.arrays import Combination, computed
from simulator.spectral.grid import AXES
from simulator.spectral.native import (
    ADVANCE,
    GATHER,
    LEAVE,
    RESTORE,
    SORT,
    WEAVE,
    load,
)

Shaped = jax.Array | jax.ShapeDtypeStruct


def kernel_call(
    target: str,
    like: Sequence[Shaped],
    *operands: jax.Array,
    threads: int,
    aliases: dict[int, int] | None = None,
    **attributes: np.ndarray | np.generic,
) -> tuple[jax.Array, ...]:
    """The results of a kernel, arrays `like` others, which at most `threads` threads compute;
    `aliases` leads from operands that change in place to results."""
    load()
    results = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in like]
    call = jax.ffi.ffi_call(target, results, vmap_method="sequential", input_output_aliases=aliases)
    return tuple(call(*operands, threads=np.int64(threads), **attributes))


def woven(
    block: jax.Array, below: Sequence[int], above: Sequence[int], *, around: bool, threads: int
) -> jax.Array:
    """A block (components, a, b, c) of 1 or 3 components, as (..., components) in an array with
    room for `below` and `above` points along each axis. With `around` the room along c repeats the
    points of the axis's other end; all other room is uninitialized."""
    room = [lo + n + hi for lo, n, hi in zip(below, block.shape[1:], above, strict=True)]
    result = jax.ShapeDtypeStruct((*room, block.shape[0]), block.dtype)
    lower = np.asarray(below, np.int64)
    attributes = {"below": lower, "around": np.int64(around)}
    return kernel_call(WEAVE, [result], block, threads=threads, **attributes)[0]


class Held(NamedTuple):
    """The points of a grid that a block holds.

    `points` is their number around a particle along each axis: 2 for linear interpolation, 3 and 4
    for quadratic and cubic B-splines. `starts` is the block's first plane along each axis of
    `order`; `periods` is the number of points of an axis that the block holds whole, and 0 for any
    other axis."""

    points: int
    order: str
    starts: Sequence[jax.Array | int]
    periods: Sequence[int]
    spacing: Sequence[float]
    sloped: int = -1
    """The axis of the box along which weights are replaced by their derivatives (1/length)."""
    threads: int = 1

    def call(self, target: str, result: jax.ShapeDtypeStruct, *operands: jax.Array) -> jax.Array:
        """The result of a kernel for `operands` and this block."""
        starts = jnp.stack([jnp.asarray(start, jnp.int32) for start in self.starts])
        axes = map(AXES.index, self.order)
        geometry = np.asarray([self.points, *axes, *self.periods, self.sloped], np.int64)
        spacing = np.asarray(self.spacing, np.float64)
        attributes = {"geometry": geometry, "spacing": spacing}
        (array,) = kernel_call(
            target, [result], *operands, starts, threads=self.threads, **attributes
        )
        return array


def gather(
    block: jax.Array, position: jax.Array | Combination, count: jax.Array, held: Held
) -> jax.Array:
    """Values (components, n) at the first `count` positions (3, n) from a block (*order,
    components) of 1 or 3 components; 0 in other entries, and NaN where the block lacks a point. If
    the last axis is whole, its first points are repeated after it."""
    if not isinstance(position, Combination) or len(position.arrays) > 2:
        position = Combination.of(computed(position))
    at, rate, *_ = *position.arrays, jnp.zeros((0,))
    factors = jnp.stack((*position.factors, 0.0)[:2])
    result = jax.ShapeDtypeStruct((block.shape[-1], at.shape[1]), block.dtype)
    rate = rate.astype(block.dtype)
    return held.call(GATHER, result, block, at.astype(jnp.float64), rate, factors, count)


def leaving(
    threads: int,
    position: jax.Array,
    count: jax.Array,
    here: jax.Array,
    ring: Sequence[int],
    spacing: float,
    most: int,
) -> tuple[jax.Array, ...]:
    """The particles that have left the device `here`, among the first `count` at `position` (3, n),
    within the box: the places of the first `most` whose shorter way around the ring is up, of those
    whose way is down, and of both together, ascending, padded with n; and their number (1,).
    `ring`: the axis that is cut, its planes, and the planes of a device."""
    results = [jax.ShapeDtypeStruct((n,), jnp.int32) for n in (most, most, 2 * most, 1)]
    operands = position, count, here.astype(jnp.int32)
    axis = np.asarray(ring, np.int64)
    attributes = {"ring": axis, "spacing": np.float64(spacing)}
    return kernel_call(LEAVE, results, *operands, threads=threads, **attributes)


def advanced(
    threads: int,
    box: tuple[float, ...],
    count: jax.Array,
    displacement: jax.Array,
    old: jax.Array,
    position: Combination,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The first `count` particles of `old` (3, n) at another `position`, which begins with a
    multiple of `old`, in a periodic box, 0 <= x < box; `displacement` (3, n) and the way; both 0 in
    other entries; and whether a position is not finite (1,)."""
    operands = jnp.stack(position.factors), count, old, displacement, *position.arrays[1:]
    results = old, displacement, jax.ShapeDtypeStruct((1,), jnp.int32)
    by = np.asarray(box, np.float64)
    aliases = {2: 0, 3: 1}
    new, way, wrong = kernel_call(
        ADVANCE, results, *operands, threads=threads, aliases=aliases, box=by
    )
    return new, way, wrong


def restore(threads: int, holds: jax.Array, *arrays: jax.Array) -> tuple[jax.Array, ...]:
    """The first half of the arrays, in the same memory, if they hold, else the second half."""
    new = arrays[: len(arrays) // 2]
    aliases = {1 + i: i for i in range(len(new))}
    return kernel_call(RESTORE, new, holds, *arrays, threads=threads, aliases=aliases)


def sorted_by_cell(
    threads: int,
    order: str,
    cells: tuple[int, ...],
    spacing: tuple[float, ...],
    due: jax.Array,
    count: jax.Array,
    *arrays: jax.Array,
) -> tuple[jax.Array, ...]:
    """The `arrays`, positions (3, n) and records (..., n) of 8-byte numbers, with the first `count`
    particles in the order of the `cells` of the grid: columns of lines of cells along z in the
    `order` "xyz", in which z runs fastest. Nothing is sorted unless `due`."""
    return kernel_call(
        SORT,
        arrays,
        due.astype(jnp.int32).reshape(1),
        count,
        *arrays,
        threads=threads,
        aliases={2 + i: i for i in range(len(arrays))},
        axes=np.asarray(list(map(AXES.index, order)), np.int64),
        cells=np.asarray(cells, np.int64),
        spacing=np.asarray(spacing, np.float64),
    )
