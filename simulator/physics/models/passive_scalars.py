"""Settings of passive scalars, and what has no meaning in two dimensions."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import jax.numpy as jnp

from simulator.errors import UserError
from simulator.physics.models.damping import absent
from simulator.physics.models.fields import along_axes, constant
from simulator.physics.names import naming
from simulator.settings import AxisVector, NonNegative, Settings
from simulator.spectral import Grid, Layout
from simulator.spectral.arrays import PhysicalVector, PointValues, SpectralScalar, SpectralVector
from simulator.spectral.operators import gradient


class Scalar(Settings):
    name: Annotated[str, naming("a scalar; take another word, e.g. dye or temperature")]
    """Name of the field; it begins the names of the scalar's columns and spectra."""
    diffusivity: NonNegative
    """Molecular diffusivity, length^2 / time."""
    mean_gradient: AxisVector = (0.0, 0.0, 0.0)
    """G, a number for each axis: the whole field is theta + G . x, and the velocity produces
    fluctuations from G."""


class TransportedScalar(NamedTuple):
    """A scalar that a flow transports: dtheta/dt = -div(u theta) - u . G + D lap theta."""

    name: str
    diffusivity: float
    mean_gradient: Sequence[float]
    """G, one number for each axis of the grid."""


def scalar_fluxes(
    transported: Sequence[TransportedScalar], values: PointValues
) -> dict[str, PhysicalVector]:
    """u theta at a point, by scalar."""
    u = jnp.unstack(values["velocity"])
    return {s.name: jnp.stack([values[s.name] * v for v in u]) for s in transported}


def whole_gradient(
    layout: Layout, theta: SpectralScalar, mean_gradient: Sequence[float]
) -> SpectralVector:
    """grad(theta + G . x)."""
    slopes = gradient(layout, theta)
    if absent(*mean_gradient):
        return slopes
    return jnp.where(layout.zero, constant(mean_gradient, slopes.real.dtype), slopes)


def scalars_on(grid: Grid, scalars: Sequence[Scalar]) -> tuple[TransportedScalar, ...]:
    """The scalars of the settings on a grid. Raises UserError for a gradient along other axes."""
    gradients = (
        along_axes(grid, f"scalars.{i}.mean_gradient", s.mean_gradient)
        for i, s in enumerate(scalars)
    )
    return tuple(
        TransportedScalar(s.name, s.diffusivity, gradient)
        for s, gradient in zip(scalars, gradients, strict=True)
    )


def check_plane(rotation: Sequence[float], subgrid: str | None) -> None:
    """Refuses settings that have no meaning in two dimensions. Raises UserError, beginning with the
    key."""
    if not absent(*rotation):
        raise UserError(
            "rotation: has no effect in two dimensions, where the pressure balances the Coriolis force; leave it out"
        )
    if subgrid not in (None, "python"):
        raise UserError(
            f"subgrid: {subgrid} closes the three-dimensional cascade of energy to small scales, which "
            "two-dimensional flows do not have; python takes a closure of your own, hyperviscosity removes enstrophy"
        )
