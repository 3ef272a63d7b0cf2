"""Means, variances and standard errors over time, from correlated samples.

The error of a mean of correlated samples follows from means of blocks of 2, 4, 8, ... samples: when blocks are longer
than the correlation time, their means are independent and the estimate levels off (Flyvbjerg and Petersen 1989, J.
Chem. Phys. 91, 461). Each level gets its samples from the previous one as pairs become complete, so that the memory
grows with the logarithm of their number.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

LEVELS = 32
FEWEST = 8
"""Smallest number of blocks for which the estimate of a level is used."""


class Moments(NamedTuple):
    """For a vector of n quantities, on each level: the number of blocks (levels,), the mean and the sum of squared
    deviations of their means (levels, n), and the mean of a block that waits for its partner."""

    blocks: jax.Array
    mean: jax.Array
    squares: jax.Array
    waiting: jax.Array
    waits: jax.Array


def empty(n: int) -> Moments:
    """The moments before the first sample."""
    zeros = jnp.zeros((LEVELS, n))
    return Moments(jnp.zeros(LEVELS, jnp.int64), zeros, zeros, zeros, jnp.zeros(LEVELS, jnp.int64))


def taken_in(moments: Moments, sample: jax.Array, on: jax.Array) -> Moments:
    """The moments with one more sample (n,), if `on`. Mean and squares follow Welford (1962, Technometrics 4,
    419)."""

    def level(
        carry: tuple[jax.Array, jax.Array], old: Moments
    ) -> tuple[tuple[jax.Array, jax.Array], Moments]:
        value, active = carry
        count = old.blocks + active
        away = jnp.where(active, value - old.mean, 0.0)
        mean = old.mean + away / jnp.maximum(count, 1)
        squares = old.squares + away * jnp.where(active, value - mean, 0.0)
        complete = active & (old.waits > 0)
        waiting = jnp.where(active & ~complete, value, old.waiting)
        waits = jnp.where(active, 1 - old.waits, old.waits)
        return ((old.waiting + value) / 2, complete), Moments(count, mean, squares, waiting, waits)

    return lax.scan(level, (sample, on), moments)[1]


def results(moments: Moments) -> dict[str, jax.Array]:
    """`mean`, `variance` (of the samples) and `error` (standard error of the mean), (n,) each; nan for too few
    samples."""
    count = moments.blocks[:, None]
    spread = moments.squares / jnp.maximum(count - 1, 1)
    squared = jnp.where(count >= FEWEST, spread / jnp.maximum(count, 1), 0.0).max(0)
    few = moments.blocks[0] < FEWEST
    return {
        "mean": jnp.where(moments.blocks[0] > 0, moments.mean[0], jnp.nan),
        "variance": jnp.where(moments.blocks[0] > 1, spread[0], jnp.nan),
        "error": jnp.where(few, jnp.nan, jnp.sqrt(squared)),
    }


def flattened(quantities: Mapping[str, jax.Array]) -> jax.Array:
    """All quantities as one vector, in double precision."""
    return jnp.concatenate([jnp.ravel(value).astype(jnp.float64) for value in quantities.values()])
