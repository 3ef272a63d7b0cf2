"""Poisson's equation lap Phi = S in the periodic box, for any layout.

The solution has no mean, and the mean of S is ignored.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from simulator.spectral.grid import AXES
from simulator.spectral.layout import Layout

Green = Literal["exact", "finite_difference"]


def laplacian_symbol(layout: Layout, green: Green = "exact", dtype=jnp.float64) -> jax.Array:
    """The factor of -lap for each mode (1/length^2): |k|^2, or for the second-order difference formula

        sum_i (2 / dx_i sin(k_i dx_i / 2))^2,

    see Hockney & Eastwood, Computer Simulation Using Particles (1988), section 6-5-2.
    """
    if green == "exact":
        return layout.k_squared(dtype)
    total = jnp.zeros((1, 1, 1), dtype)
    for axis, unit, spacing in zip(AXES, layout.grid.fundamental, layout.grid.spacing, strict=True):
        along = 2 / spacing * np.sin(layout.padded_mode_numbers(axis) * unit * spacing / 2)
        shape = [1, 1, 1]
        shape[layout.order.index(axis)] = len(along)
        total = total + jnp.asarray(along**2, dtype).reshape(shape)
    return total


def inverse_symbol(layout: Layout, green: Green = "exact", dtype=jnp.float64) -> jax.Array:
    """1 / `laplacian_symbol`, and 0 at k = 0 and in padding."""
    k2 = laplacian_symbol(layout, green, dtype)
    usable = (k2 > 0) & layout.mask
    return jnp.where(usable, 1 / jnp.where(usable, k2, 1), 0)


def solve_poisson(layout: Layout, source: jax.Array, green: Green = "exact") -> jax.Array:
    """Coefficients of the solution of lap Phi = S without mean, from those of S (..., *layout.order)."""
    return -inverse_symbol(layout, green, source.real.dtype) * source
