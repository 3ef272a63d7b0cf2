"""Values of a field at the positions of particles, from one device's block of the grid: calls of the native kernels."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from simulator.spectral.grid import AXES
from simulator.spectral.native.library import GATHER, WEAVE, load


def woven(
    block: jax.Array, below: Sequence[int], above: Sequence[int], *, around: bool
) -> jax.Array:
    """A block (components, a, b, c), 1 or 3 of them, as (..., components) in an array with room for `below` and
    `above` points along each axis. With `around` the room along c holds the points of the other end; all other room
    is uninitialized."""
    load()
    room = [lo + n + hi for lo, n, hi in zip(below, block.shape[1:], above, strict=True)]
    made = jax.ShapeDtypeStruct((*room, block.shape[0]), block.dtype)
    call = jax.ffi.ffi_call(WEAVE, made, vmap_method="sequential")
    return call(block, below=np.asarray(below, np.int64), around=np.int64(around))


def gather(
    block: jax.Array,
    position: jax.Array,
    starts: Sequence[jax.Array | int],
    *,
    points: int,
    order: str,
    periods: Sequence[int],
    spacing: Sequence[float],
) -> jax.Array:
    """Values (components, n) at positions (3, n) from a block (*order, components) of 1 or 3 components.

    `points` along each axis: 2 interpolate linearly, 3 and 4 are the weights of quadratic and cubic B-splines.
    `starts` is the block's first plane along each axis of `order`, `periods` the number of points of a whole axis, and
    0 for an axis of which the block is a part. The last axis, if whole, is followed by its first points. Where the
    block lacks a point, the value is NaN.
    """
    load()
    geometry = [points, *(AXES.index(axis) for axis in order), *periods]
    made = jax.ShapeDtypeStruct((block.shape[-1], position.shape[1]), block.dtype)
    return jax.ffi.ffi_call(GATHER, made, vmap_method="sequential")(
        block,
        position.astype(jnp.float64),
        jnp.stack([jnp.asarray(start, jnp.int32) for start in starts]),
        geometry=np.asarray(geometry, np.int64),
        spacing=np.asarray(spacing, np.float64),
    )
