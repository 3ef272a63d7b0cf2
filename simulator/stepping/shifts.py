"""Random phase shifts, which together with spherical truncation remove aliasing errors.

A quadratic product on N points gives the mode k an error from k + N e for vectors e of zeros and ones. Where only
modes within 2 sqrt(2) / 3 of the Nyquist wavenumber are kept, e has a single one. On a grid moved by half a spacing
along x, y and z that error has the opposite sign: it cancels between two evaluations of a step on grids moved by d
and by d + dx / 2, up to what the integrator lets change between them; and what is left has a random phase, drawn
anew for every step. Patterson & Orszag, Phys. Fluids 14, 2538 (1971); Rogallo, NASA TM 81315 (1981).
"""

from collections.abc import Iterator

import jax
import jax.numpy as jnp

from simulator.models.model import Shift
from simulator.spectral import Grid

_SEED = 1981


def phase_shifts(grid: Grid, step: jax.Array) -> Iterator[Shift | None]:
    """The shifts of a step's evaluations, one after the other; None for any other dealiasing.

    They depend on the number of the step alone, so that a restarted run takes the same.
    """
    if grid.dealias != "spherical":
        while True:
            yield None
    key = jax.random.fold_in(jax.random.key(_SEED), jnp.asarray(step, jnp.uint32))
    first = jax.random.uniform(key, (3,), jnp.float64)
    dx, dy, dz = grid.spacing
    stage = 0
    while True:
        at = first + 0.5 * (stage % 2)
        yield (at[0] * dx, at[1] * dy, at[2] * dz)
        stage += 1
