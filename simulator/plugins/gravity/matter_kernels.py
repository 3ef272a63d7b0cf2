"""Calls of the native kernels for particles that are matter: masses on the points of the grid, kicks
and drifts. `simulator.spectral.native.particles` has the calls for all particles."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from simulator.spectral.native import DEPOSIT, DRIFT, KICK
from simulator.spectral.native.particles import Held, kernel_call


def deposit(
    position: jax.Array,
    mass: jax.Array,
    count: jax.Array,
    scale: jax.Array | float,
    block: jax.ShapeDtypeStruct,
    held: Held,
) -> jax.Array:
    """The masses (n,) of the first `count` particles at positions (3, n) on the points of a block
    (x, y, z), whose last axis has no room. A block of whole numbers holds masses times
    `scale`, rounded for each point and particle; they may be 2^51 at most. A particle for which the
    block lacks a point is left out."""
    operands = position, mass, jnp.asarray(scale)
    return held.call(DEPOSIT, block, *(operand.astype(jnp.float64) for operand in operands), count)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def kicked(
    threads: int,
    spacing: tuple[float, ...],
    pull: jax.Array,
    velocity: jax.Array,
    count: jax.Array,
    length: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """velocity + length pull (3, n) for the first `count` particles; and the largest sum_i |v_i| /
    spacing_i (1,), which has no slope."""
    new, fastest = _kick(threads, spacing, velocity, pull, velocity, count, length)
    return new, fastest


def fastest_after(
    threads: int,
    spacing: tuple[float, ...],
    pull: jax.Array,
    velocity: jax.Array,
    count: jax.Array,
    length: jax.Array,
) -> jax.Array:
    """The second result of `kicked` alone."""
    nothing = jax.ShapeDtypeStruct((0,), jnp.float64)
    return _kick(threads, spacing, nothing, pull, velocity, count, length)[1]


def _kick(
    threads: int,
    spacing: tuple[float, ...],
    new: jax.Array | jax.ShapeDtypeStruct,
    *operands: jax.Array,
) -> tuple[jax.Array, ...]:
    """The results of a kick; `new` has the shape of the velocities, or none if they are not
    wanted."""
    results = new, jax.ShapeDtypeStruct((1,), jnp.float64)
    by = np.asarray(spacing, np.float64)
    return kernel_call(KICK, results, *operands, threads=threads, spacing=by)


@kicked.defjvp
def _(
    threads: int,
    spacing: tuple[float, ...],
    primals: tuple[jax.Array, ...],
    tangents: tuple[jax.Array, ...],
) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
    pull, _, count, length = primals
    by_pull, by_velocity, _, by_length = tangents
    results = kicked(threads, spacing, *primals)
    valid = jnp.arange(pull.shape[-1]) < count
    slope = by_velocity + jnp.where(valid, length * by_pull + by_length * pull, 0)
    return results, (slope, jnp.zeros_like(results[1]))


def drifted(
    threads: int,
    box: tuple[float, ...],
    position: jax.Array,
    velocity: jax.Array,
    count: jax.Array,
    length: jax.Array,
) -> jax.Array:
    """position + length velocity (3, n) in a periodic box, 0 <= x < box, for the first `count`
    particles; 0 in other entries."""
    pull = jnp.zeros((0,))
    lengths = jnp.stack([jnp.zeros_like(length), jnp.zeros_like(length), length])
    operands = pull, velocity, count, lengths, position
    attributes = {"box": np.asarray(box, np.float64), "saves": np.int64(0)}
    results = pull, position
    return kernel_call(DRIFT, results, *operands, threads=threads, aliases={4: 1}, **attributes)[1]


def leapt(
    threads: int,
    box: tuple[float, ...],
    saves: bool,
    pull: jax.Array,
    velocity: jax.Array,
    count: jax.Array,
    lengths: tuple[jax.Array, jax.Array, jax.Array],
    *moving: jax.Array,
) -> tuple[jax.Array, ...]:
    """The velocity after two kicks, then `moving`, positions and other arrays: positions that have
    `drifted` with these velocities, and arrays that later kernels may change in place. With `saves`
    also the velocity between the kicks, and copies of `moving` as they were. `lengths` are those of
    kicks and drift; a length of 0 changes no bit."""
    results = (velocity, *moving) * (2 if saves else 1)
    operands = pull, velocity, count, jnp.stack(lengths), *moving
    aliases = {1: 0} | {4 + i: 1 + i for i in range(len(moving))}
    attributes = {"box": np.asarray(box, np.float64), "saves": np.int64(saves)}
    return kernel_call(DRIFT, results, *operands, threads=threads, aliases=aliases, **attributes)
