"""Conditions on dt: dt = cfl / rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import jax
import jax.numpy as jnp

from simulator.physics.models.fields import Fields
from simulator.spectral import Grid
from simulator.spectral.arrays import Number, OverPoints, PhysicalVector, PointValues

if TYPE_CHECKING:
    from simulator.physics.models.equation import Equation

Model = TypeVar("Model", bound="Equation")


class StepLimit(Generic[Model]):
    """The largest rate (1/time) that an explicit step has to resolve."""

    local: str = "rate"
    """The one of `maxima` to which the rates of terms at a point are added."""

    def maxima(self, model: Model, values: PointValues) -> dict[str, OverPoints]:
        """Quantities at a point whose maxima over the box `rate` needs. A closure adds its part to
        `rate`."""
        return {}

    def rate(self, model: Model, maxima: Mapping[str, Number], fields: Fields) -> Number:
        """The rate; 0 means no limit, NaN that no step can be taken."""
        return jnp.zeros((), model.transform.dtype)


class Advective(StepLimit["Equation"]):
    """max_x sum_i |v_i| / dx_i of the velocity that `advection` states, plus the `frequency` of
    waves; or the growth rate of the linear term, if it is larger. Without `advection` there is no
    limit, even if modes grow, because the nonlinear terms may be faster."""

    def maxima(self, model: Equation, values: PointValues) -> dict[str, OverPoints]:
        velocity = model.advection(values)
        return {} if velocity is None else {"rate": advection_rate(model.transform.grid, velocity)}

    def rate(self, model: Equation, maxima: Mapping[str, Number], fields: Fields) -> Number:
        if "rate" not in maxima:
            return super().rate(model, maxima, fields)
        rate = maxima["rate"] + model.wave_frequency
        return rate if model.numerics.decays else model.linear_growth.rate(rate)


def advection_rate(grid: Grid, velocity: PhysicalVector | Sequence[jax.Array]) -> OverPoints:
    """sum_i |v_i| / dx_i (1/time) at a point, of a velocity with one component for each axis."""
    spacing = grid.seen(grid.spacing)
    crossing: Any = 0
    for i, h in enumerate(spacing):
        crossing = crossing + abs(velocity[i]) / h
    return crossing


def damping_limit(grid: Grid, rate: jax.Array) -> jax.Array:
    """The rate (1/time) in the condition on dt of an explicit damping at `rate`: that of a flow
    which carries the smallest wave by one radian in 1 / `rate`, so that dt <= cfl k dx / `rate`."""
    scales = zip(grid.kept, grid.fundamental, grid.spacing, strict=True)
    return rate / min((n * unit * h for n, unit, h in scales if n > 0), default=1.0)
