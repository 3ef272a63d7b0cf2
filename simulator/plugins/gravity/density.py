"""Quantities of a density, computed from spectral arrays, and the contract of matter in its own
gravity."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from simulator.errors import UserError
from simulator.physics.models import MODELS, Equation
from simulator.physics.models.equation import declared
from simulator.plugins.gravity.cosmology import CosmologySettings
from simulator.spectral import Grid, Layout, Transform
from simulator.spectral.arrays import (
    Number,
    PhysicalScalar,
    PhysicalVector,
    SpectralScalar,
    Spectrum,
)
from simulator.spectral.grid import AXES


class SelfGravity:
    """Matter in the potential of its own density."""

    gravity: float
    """G, length^3 / (mass time^2)."""

    def jeans_frequency_squared(self, k2: float, density: float) -> float:
        """omega^2 (1/time^2) of a small density wave of wavenumber k in homogeneous matter at
        rest."""
        raise TypeError(f"{type(self).__name__} does not define jeans_frequency_squared")

    @classmethod
    def jeans_wavenumber(
        cls, keys: Mapping[str, Any], background: CosmologySettings, scale_factor: float
    ) -> float:
        """The comoving wavenumber above which density waves do not grow in an expanding box, from
        the `keys` of the matter in a run's file; infinite for cold matter."""
        return math.inf

    def moving(
        self,
        density: PhysicalScalar,
        velocity: PhysicalVector,
        potential: Callable[[Number | float], PhysicalScalar],
    ) -> Mapping[str, jax.Array]:
        """The values of the fields of an initial condition with this density and velocity, which
        is the gradient of `potential(1)`; `potential(unit)` is that in multiples of `unit`
        (length^2/time)."""
        return {"density": density, "velocity": velocity}


def attracting(model: Equation, kind: str, *fields: str) -> SelfGravity:
    """The model, which is matter in its own gravity and evolves these fields; refuses other
    models."""

    def fits(each: type[Equation]) -> bool:
        return issubclass(each, SelfGravity) and {*fields} <= {f.name for f in declared(each)}

    if isinstance(model, SelfGravity) and fits(type(model)):
        return model
    kinds = " or ".join(name for name in MODELS if fits(MODELS[name]))
    needed = f"model.kind: {kinds}" if kinds else "particles of a composite"
    raise UserError(f"kind: {kind} needs {needed}")


def center(layout: Layout, density: SpectralScalar) -> list[Number]:
    """x, y and z (length) of the centre of mass in the periodic box: the phase of the density's
    first mode along each axis. If that mode is zero (a homogeneous box), the result is
    meaningless."""
    coordinates = []
    for axis, length, n in zip(AXES, layout.grid.box, layout.grid.shape, strict=True):
        if n < 2:
            coordinates.append(jnp.zeros((), jnp.float64))
            continue
        # The half spectrum of a real field stores the mode +1 along z.
        is_first = jnp.ones((1, 1, 1), bool)
        for a in AXES:
            is_first = is_first & (layout.integers(a) == (1 if a == axis else 0))
        first = jnp.where(is_first, density, 0).sum((-3, -2, -1))
        angle = -jnp.arctan2(first.imag, first.real).astype(jnp.float64)
        coordinates.append(jnp.mod(angle, 2 * math.pi) * length / (2 * math.pi))
    return coordinates


def by_axis(grid: Grid, name: str, values: Sequence[Number]) -> dict[str, Number]:
    """Columns `NAME_x`, ... from values along the three axes of arrays; in a plane two columns."""
    return {f"{name}_{axis}": value for axis, value in zip(AXES, grid.seen(values), strict=False)}


def density_power(layout: Layout, density: SpectralScalar) -> Spectrum:
    """P(k) = V <|delta(k)|^2> (length^3) of the density contrast, averaged over the modes of each
    shell. The Nyquist planes of an even grid, which hold only half of a wave, are left out."""
    mean = layout.at_zero(density).real
    counted = jnp.broadcast_to(~(layout.zero | layout.nyquist), density.shape)
    power = jnp.where(counted, density.real**2 + density.imag**2, 0) / mean**2
    sums = layout.shell_sum(jnp.stack([power, counted.astype(power.dtype)]))
    return layout.grid.volume * sums[0] / jnp.maximum(sums[1], 1)


def check_arrangement(one: Transform, other: Transform, whose: str) -> None:
    """Raises UserError if the points of two transforms lie on the devices in different ways."""
    a = one.physical
    b = other.physical
    if a.spec != b.spec or a.shape != b.shape:
        works = "fewer devices, or fft.decomposition: slab, work"
        raise UserError(f"devices.count: {whose} would be shared out differently; {works}")
