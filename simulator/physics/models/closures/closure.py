"""The contract of a closure: what the scales below the grid do to those that it holds."""

import math
from typing import Any, ClassVar

import jax

from simulator.physics.models.fields import Fields
from simulator.settings import Settings
from simulator.spectral import Grid, Layout, Transform


class Closure:
    """The force -div tau of the subgrid stress tau_ij = <u_i u_j> - <u_i> <u_j> on a filtered velocity, up to a
    gradient, and -div q of the subgrid flux q = <u theta> - <u> <theta> of a transported scalar (Pope, Turbulent
    Flows, section 13.2).

    A closure states either `stress` and `flux`, pointwise functions of the values of `inputs`, or, with `modal`,
    `modal_damping`. One for magnetohydrodynamics also states `electromotive_force`. `__init__` raises UserError if
    its settings do not suit the run.
    """

    Settings: ClassVar[type[Settings]]
    modal: ClassVar[bool] = False
    """The closure damps each mode at a rate that follows from the velocity's coefficients alone."""

    def __init__(self, settings: Any, transform: Transform, files: Any) -> None:
        """`files` opens the user's files."""
        self.settings, self.transform = settings, transform

    def inputs(self, layout: Layout, velocity: jax.Array) -> Fields:
        """Coefficients of the fields whose values `stress` needs."""
        return {}

    def stress(self, values: Fields) -> jax.Array:
        """tau at a point as (5, ...): tau_ij - tau_zz delta_ij in the order xx, yy, xy, xz, yz."""
        raise TypeError(f"{type(self).__name__} does not define stress")

    def flux(self, values: Fields, scalar: jax.Array, gradient: jax.Array) -> jax.Array:
        """q at a point (3, ...), for a scalar's value and its gradient (3, ...) with that of its mean."""
        raise TypeError(f"{type(self).__name__} does not define flux")

    def electromotive_force(self, values: Fields) -> jax.Array:
        """<u x b> - <u> x <b> at a point (3, ...); `values` hold `current` = curl b, too."""
        raise TypeError(f"{type(self).__name__} does not define electromotive_force")

    def pointwise_rate(self, values: Fields, *, scalars: bool) -> jax.Array | float:
        """What the closure adds at a point to the rate (1/time) that limits dt, with or without scalars."""
        return 0.0

    def modal_damping(self, velocity: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The rates (order) at which modes of the velocity and of scalars are damped (1/time)."""
        raise TypeError(f"{type(self).__name__} does not define modal_damping")

    def modal_rate(self, velocity: jax.Array, *, scalars: bool) -> jax.Array | float:
        """What the damping adds to the rate (1/time) that limits dt."""
        return 0.0


def filter_width(grid: Grid) -> float:
    """The geometric mean over the axes of pi / k_max, the width of the filter that keeps the modes of the state
    (Pope, section 13.2)."""
    kept = [n * unit for n, unit in zip(grid.kept, grid.fundamental, strict=True) if n > 0]
    return math.pi / math.prod(kept) ** (1 / len(kept)) if kept else min(grid.box)


def diffusive_rate(grid: Grid, viscosity: jax.Array) -> jax.Array:
    """nu sum_i k_i / dx_i (1/time) with the largest kept k_i: a viscosity of the explicit terms limits dt as a speed
    of nu k_i along each axis does."""
    scales = zip(grid.kept, grid.fundamental, grid.spacing, strict=True)
    return viscosity * sum(n * unit / h for n, unit, h in scales)
