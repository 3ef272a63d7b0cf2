"""Losses and central differences, against which gradients through runs are checked."""

import jax
import jax.numpy as jnp


def off(gradient, at, way, h: float = 1e-3) -> float:
    """The relative deviation of the slope along `way` from central differences of width h,
    extrapolated once. Their error is of the order h^4, and round-off of 1e-16 / h: both far below
    1e-6 of the slope."""
    slopes = jax.tree.leaves(gradient(at)[1])
    ways = jax.tree.leaves(way)
    found = sum(float((jnp.conj(a) * b).real.sum()) for a, b in zip(slopes, ways, strict=True))

    def central(h: float) -> float:
        higher, lower = (jax.tree.map(lambda x, d, s=s: x + s * d, at, way) for s in (h, -h))
        return float(gradient.value(higher) - gradient.value(lower)) / (2 * h)

    return abs(found / ((4 * central(h / 2) - central(h)) / 3) - 1)


def waves_of(p, size: float = 1.0) -> jax.Array:
    """Another wave for each particle, at its place."""
    return jnp.where(p.valid, jnp.cos(size * p.records["position"] + p.id).sum(0), 0).sum()
