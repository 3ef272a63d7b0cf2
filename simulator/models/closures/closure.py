"""The contract of a closure: what the scales below the grid do to those that it holds."""

import math
from typing import Any, ClassVar

import jax

from simulator.models.advection import Momentum, divergence_of_stress
from simulator.models.fields import Fields
from simulator.settings import Settings
from simulator.spectral import Grid, Layout, Transform

STRESS = "subgrid_stress"


class Closure:
    """The force -div tau of the subgrid stress tau_ij = <u_i u_j> - <u_i> <u_j> on a filtered velocity, up to a
    gradient (Pope, Turbulent Flows, section 13.2).

    A closure states either `stress`, a pointwise function of the values of `inputs`, or, with `modal`, `modal_force`.
    `__init__` raises UserError if its settings do not suit the run.
    """

    Settings: ClassVar[type[Settings]]
    modal: ClassVar[bool] = False
    """The force follows from the velocity's coefficients alone."""

    def __init__(self, settings: Any, transform: Transform, files: Any) -> None:
        """`files` opens the user's files."""
        self.settings, self.transform = settings, transform

    def inputs(self, layout: Layout, velocity: jax.Array) -> Fields:
        """Coefficients of the fields whose values `stress` needs."""
        return {}

    def stress(self, values: Fields) -> jax.Array:
        """tau at a point as (5, ...): tau_ij - tau_zz delta_ij in the order xx, yy, xy, xz, yz."""
        raise TypeError(f"{type(self).__name__} does not define stress")

    def pointwise_rate(self, values: Fields) -> jax.Array | float:
        """What the stress adds at a point to the rate (1/time) that limits dt."""
        return 0.0

    def modal_force(self, velocity: jax.Array) -> jax.Array:
        """The force's coefficients (3, *order)."""
        raise TypeError(f"{type(self).__name__} does not define modal_force")

    def modal_rate(self, velocity: jax.Array) -> jax.Array | float:
        """What the force adds to the rate (1/time) that limits dt."""
        return 0.0


class ClosedMomentum(Momentum):
    """A form of the nonlinear force with the stress of a closure, in the same transforms where the form is a stress
    itself."""

    def __init__(self, resolved: Momentum, closure: Closure):
        self._resolved, self._closure, self.fields = resolved, closure, resolved.fields

    def inputs(self, layout: Layout, fields: Fields) -> Fields:
        further = self._closure.inputs(layout, fields["velocity"])
        return {**self._resolved.inputs(layout, fields), **further}

    def products(self, values: Fields) -> Fields:
        found, stress = self._resolved.products(values), self._closure.stress(values)
        return {"stress": found["stress"] + stress} if "stress" in found else {**found, STRESS: stress}

    def force(self, layout: Layout, products: Fields) -> jax.Array:
        force = self._resolved.force(layout, products)
        return force - divergence_of_stress(layout, products[STRESS]) if STRESS in products else force


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
