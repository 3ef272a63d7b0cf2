"""Damping of modes besides that of an equation: hyperviscosity, drag, and the rates of both."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import jax
import jax.numpy as jnp
from pydantic import Field

from simulator.settings import Integer, Positive, Settings
from simulator.spectral import Layout, Transform
from simulator.spectral.arrays import Number, OfModes

DampingTerms = Sequence[tuple[int, float | jax.Array]]
"""Pairs (n, nu_n): modes are damped at the sum of nu_n k^(2 n)."""

LARGEST = 1e30
"""The cap of a rate (1/time), far above any 1/dt and within the range of single precision."""


def absent(*coefficients: float | Number) -> bool:
    """Whether all coefficients are 0. Arrays in place of numbers (runs that share a program, and
    gradients) count as nonzero."""
    return all(isinstance(each, int | float) and each == 0 for each in coefficients)


class HyperdiffusionSettings(Settings):
    order: Annotated[Integer, Field(ge=2, le=8)]
    """n in the damping rate coefficient * k^(2 n)."""
    coefficient: Positive
    """Units length^(2 n) / time."""


class DragSettings(Settings):
    coefficient: Positive
    """Damping rate (1/time) of the velocity's large scales."""
    below: Positive
    """The modes with 0 < |k| <= below are damped; the mean flow is not."""


@dataclass(frozen=True)
class Damping:
    """A further diagonal term of L: modes of `field` are damped at `rate` (1/time)."""

    field: str

    def rate(self, transform: Transform) -> OfModes:
        """The rate (1/time) of each mode."""
        raise TypeError(f"{type(self).__name__} does not define rate")


@dataclass(frozen=True)
class Hyperdiffusion(Damping):
    """coefficient * k^(2 order)."""

    order: int
    coefficient: float | jax.Array

    def rate(self, transform: Transform) -> OfModes:
        # In double precision, because powers of k leave the range of single precision.
        rate = self.coefficient * transform.layout.k_squared() ** self.order
        return jnp.minimum(rate, LARGEST).astype(transform.dtype)


@dataclass(frozen=True)
class Drag(Damping):
    """A constant rate at large scales; the mean flow keeps its momentum."""

    settings: DragSettings

    def rate(self, transform: Transform) -> OfModes:
        k2 = transform.layout.k_squared()
        reach = self.settings.below**2 * (1 + 1e-12)
        rate = jnp.where((k2 > 0) & (k2 <= reach), self.settings.coefficient, 0.0)
        return rate.astype(transform.dtype)


def diffusive_terms(
    coefficient: float | jax.Array, hyper: HyperdiffusionSettings | None
) -> DampingTerms:
    """Viscosity and hyperviscosity, or resistivity and hyperresistivity, without those that are 0."""
    first: DampingTerms = [] if absent(coefficient) else [(1, coefficient)]
    return first if hyper is None else [*first, (hyper.order, hyper.coefficient)]


def damping_rate(layout: Layout, terms: DampingTerms, dtype: jnp.dtype) -> OfModes:
    """The rate (1/time) at which `terms` damp each mode."""
    k2 = layout.k_squared()
    rate = jnp.zeros((1, 1, 1))
    for order, coefficient in terms:
        rate = rate + coefficient * k2**order
    return jnp.minimum(rate, LARGEST).astype(dtype)


def flow_damping(
    hyper: HyperdiffusionSettings | None, drag: DragSettings | None
) -> tuple[Damping, ...]:
    """The damping of a velocity besides its viscosity: hyperviscosity and drag."""
    terms: list[Damping] = []
    if hyper is not None:
        terms.append(Hyperdiffusion("velocity", hyper.order, hyper.coefficient))
    if drag is not None:
        terms.append(Drag("velocity", drag))
    return tuple(terms)
