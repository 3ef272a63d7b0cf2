"""Products of fields on shifted grids, alias-free products with spherical truncation, and Rogallo's shifts.

A quadratic product on N points gives the mode k an error from k + N e for vectors e of integers. If only modes within
2 sqrt(2) / 3 of the Nyquist wavenumber are kept, e has a single nonzero component: 1 or -1. On a grid shifted by half
a spacing along x, y and z that error has the opposite sign: the mean over both grids is the exact convolution.
Patterson & Orszag, Phys. Fluids 14, 2538 (1971); Canuto et al., Spectral Methods: Fundamentals in Single Domains
(2006), section 3.3.2.
"""

import jax
import jax.numpy as jnp

from simulator.spectral.arrays import Number, Whole
from simulator.spectral.grid import Grid
from simulator.spectral.transform import Shift

_SEED = 1981


def phase_shift(grid: Grid, step: Whole, stage: Number | Whole | int) -> Shift | None:
    """Rogallo's shift for one `stage` of a step, numbered from 0; None for all other kinds of dealiasing.

    The aliasing error A of a tendency N has the opposite sign on a grid shifted by half a spacing along x, y and z.
    Each stage is evaluated on one grid, shifted by d in the first stage and by d + dx / 2 in the second, with a new d
    for every step. This takes half the transforms of `spherical`. With Heun's method, u + dt/2 (a + b), the aliasing
    error of a step is then

        dt^2 / 2 (N' A - A' N - A' A),    N' and A' the derivatives with respect to u,

    instead of dt A. The terms linear in A have a random phase; in an under-resolved flow the quadratic one adds
    dt^2 <|A|^2> / 2 to the energy in every step.

    Other integrators are refused: in rk3 the weights of the stages do not cancel, and in rk4 and etdrk4 an error of
    order dt^2 per step would spoil the order. Rogallo, NASA TM 81315 (1981); Patterson & Orszag, Phys. Fluids 14,
    2538 (1971). The shift depends only on the number of the step, so that a restarted run uses the same shifts.
    """
    if grid.dealias != "rogallo":
        return None
    key = jax.random.fold_in(jax.random.key(_SEED), jnp.asarray(step, jnp.uint32))
    offset = jax.random.uniform(key, (3,), jnp.float64) + 0.5 * (jnp.asarray(stage) % 2)
    dx, dy, dz = grid.spacing
    return (offset[0] * dx, offset[1] * dy, offset[2] * dz)
