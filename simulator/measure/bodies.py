"""The bodies in a flow, as pictures show them."""

from collections.abc import Callable
from functools import reduce
from operator import mul

import jax
import jax.numpy as jnp

from simulator.physics import models
from simulator.physics.models.tendency import with_arrays


def body_mask(model: models.Equation) -> Callable[[models.State], jax.Array] | None:
    """The mask (x, y, z) of all bodies, 1/2 at their surfaces, as a function of the state; None
    without bodies."""
    if not any(term.is_shown for term in model.terms):
        return None
    physical = model.transform.physical

    def mask(state: models.State) -> jax.Array:
        points = physical.grid.seen(physical.coordinates(model.transform.dtype))
        bodies = [t for t in with_arrays(model, state.memory.terms).terms if t.is_shown]
        outside = reduce(mul, (1 - t.mask(t.stored(), points, state.time) for t in bodies))
        return physical.constrain(jnp.where(physical.inside(), 1 - outside, 0))

    return mask
