"""Rogallo's pairing: random phase shifts whose aliasing errors cancel between stages.

The modes are those of `simulator.spectral.moved`, and so is the aliasing error A of a tendency N: it has the opposite
sign on a grid shifted by half a spacing along x, y and z. Each stage is evaluated on one grid, shifted by d in the
first stage and by d + dx / 2 in the second, with a new d for every step: half the transforms of `spherical`. With
Heun's method, u + dt/2 (a + b), the aliasing error of a step is then

    dt^2 / 2 (N' A - A' N - A' A),    N' and A' the derivatives with respect to u,

instead of dt A. The terms linear in A have a random phase and add up over a run as dt^(3/2), the quadratic one as dt.
In a resolved flow both are below the method's own error of order dt^2. In an under-resolved one the quadratic term
adds dt^2 <|A|^2> / 2 to the energy in every step.

Other integrators are refused. In rk3 the weights of the stages do not cancel (1/6 - 3/10 + 8/15), and the error would
not vanish with dt. In rk4 and etdrk4 they do, but an error of order dt^2 per step would reduce their order from 4 to
less than 2. For an aliasing error of order dt^3 an explicit method needs two stages on each grid, four evaluations
per step, as many as Heun's method with `spherical`. Rogallo, NASA TM 81315 (1981); Patterson & Orszag, Phys. Fluids
14, 2538 (1971).
"""

import jax
import jax.numpy as jnp

from simulator.spectral import Grid
from simulator.spectral.moved import Shift

_SEED = 1981


def phase_shift(grid: Grid, step: jax.Array, stage: jax.Array | int) -> Shift | None:
    """The shift for one of a step's evaluations, numbered from 0; None for all other kinds of dealiasing.

    It depends only on the number of the step, so that a restarted run uses the same shifts.
    """
    if grid.dealias != "rogallo":
        return None
    key = jax.random.fold_in(jax.random.key(_SEED), jnp.asarray(step, jnp.uint32))
    offset = jax.random.uniform(key, (3,), jnp.float64) + 0.5 * (jnp.asarray(stage) % 2)
    dx, dy, dz = grid.spacing
    return (offset[0] * dx, offset[1] * dy, offset[2] * dz)
