"""What a time integrator offers."""

from collections.abc import Callable
from typing import Protocol

import jax

from simulator.models import Fields

Tendency = Callable[[Fields, jax.Array, jax.Array | int], Fields]
"""(fields, time, stage) to the explicit part of the right-hand side. Stages are numbered from 0, which is `first`."""


class Integrator(Protocol):
    order: int
    max_cfl: float
    """The largest dt max_x sum_i |v_i| / dx_i that is stable for advection, with two_thirds dealiasing."""

    def step(
        self,
        fields: Fields,
        time: jax.Array,
        dt: jax.Array,
        first: Fields,
        tendency: Tendency,
        decay: Fields,
    ) -> Fields:
        """The fields at time + dt. `first` is the tendency at `time`, which dt was chosen from."""
        ...
