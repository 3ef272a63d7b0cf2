"""Random phase shifts, which together with spherical truncation remove aliasing errors.

A quadratic product on N points gives the mode k an error from k + N e for vectors e of zeros and ones. Where only
modes within 2 sqrt(2) / 3 of the Nyquist wavenumber are kept, e has a single one. On a grid moved by half a spacing
along x, y and z that error has the opposite sign: it cancels between two evaluations of a step on grids moved by d
and by d + dx / 2, up to what the integrator lets change between them; and what is left has a random phase, drawn
anew for every step. Patterson & Orszag, Phys. Fluids 14, 2538 (1971); Rogallo, NASA TM 81315 (1981).
"""

import jax
import jax.numpy as jnp

from simulator.models.model import Shift
from simulator.spectral import Grid

_SEED = 1981


def phase_shift(grid: Grid, step: jax.Array, stage: jax.Array | int) -> Shift | None:
    """The shift of one of a step's evaluations, numbered from 0; None for any other dealiasing.

    It depends on the number of the step alone, so that a restarted run takes the same.
    """
    if grid.dealias != "spherical":
        return None
    key = jax.random.fold_in(jax.random.key(_SEED), jnp.asarray(step, jnp.uint32))
    at = jax.random.uniform(key, (3,), jnp.float64) + 0.5 * (jnp.asarray(stage) % 2)
    dx, dy, dz = grid.spacing
    return (at[0] * dx, at[1] * dy, at[2] * dz)
