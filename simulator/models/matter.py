"""What gas and waves have in common: measures of a density and of resolution, on spectral arrays."""

import math

import jax
import jax.numpy as jnp

from simulator.spectral import Layout
from simulator.spectral.grid import AXES

EDGE = 0.8
"""Modes with some |k_i| beyond this fraction of the largest are the edge of the spectrum."""


def center(layout: Layout, density: jax.Array) -> list[jax.Array]:
    """Centre of mass (x, y, z) in the periodic box: the phase of the density's first mode along each axis. Where the
    density has none (a homogeneous box), the place says nothing."""
    found = []
    for axis, length, n in zip(AXES, layout.grid.box, layout.grid.shape, strict=True):
        if n < 2:
            found.append(jnp.zeros((), jnp.float64))
            continue
        # Of a real field's half spectrum along z the mode +1 is stored.
        here = jnp.ones((1, 1, 1), bool)
        for a in AXES:
            here = here & (layout.integers(a) == (1 if a == axis else 0))
        first = jnp.where(here, density, 0).sum((-3, -2, -1))
        angle = -jnp.arctan2(first.imag, first.real).astype(jnp.float64)
        found.append(jnp.mod(angle, 2 * math.pi) * length / (2 * math.pi))
    return found


def density_power(layout: Layout, density: jax.Array) -> jax.Array:
    """P(k) = V <|delta(k)|^2> of the density contrast, averaged over the modes of each shell: (shells,), length^3.
    The Nyquist planes of an even grid, where half of a wave is missing, are left out."""
    mean = layout.at_zero(density).real
    zero, whole = jnp.ones((1, 1, 1), bool), jnp.ones((1, 1, 1), bool)
    for axis, n in zip(AXES, layout.grid.shape, strict=True):
        labels = layout.integers(axis)
        zero = zero & (labels == 0)
        whole = whole & (2 * abs(labels) != n)
    counted = jnp.broadcast_to(whole & ~zero, density.shape)
    power = jnp.where(counted, density.real**2 + density.imag**2, 0) / mean**2
    sums = layout.shell_sum(jnp.stack([power, counted.astype(power.dtype)]))
    return layout.grid.volume * sums[0] / jnp.maximum(sums[1], 1)


def edge_share(layout: Layout, values: jax.Array, floor: jax.Array | float) -> jax.Array:
    """Which share of the sum of `values` >= 0 over all modes the edge of the spectrum holds. A sum below `floor` is
    round-off and has no edge."""
    edge = jnp.zeros((1, 1, 1), bool)
    for axis in AXES:
        labels = layout.integers(axis)
        largest = int(abs(layout.labels[axis]).max())
        if largest > 0:
            edge = edge | (abs(labels) > EDGE * largest)
    total = layout.sum(values)
    return jnp.where(
        total > floor, layout.sum(jnp.where(edge, values, 0)) / jnp.where(total > 0, total, 1), 0
    )
