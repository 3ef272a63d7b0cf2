"""Quantities of a density that gas and waves have in common, computed from spectral arrays."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from simulator.spectral import Grid, Layout
from simulator.spectral.arrays import Number, SpectralScalar, SpectralVector, Spectrum
from simulator.spectral.grid import AXES


class SelfGravity:
    """Matter in the potential of its own density."""

    def potential(self, density: SpectralScalar) -> SpectralScalar:
        """Phi (length^2/time^2) of the density."""
        raise TypeError(f"{type(self).__name__} does not define potential")

    def jeans_frequency_squared(self, k2: float, density: float) -> float:
        """omega^2 (1/time^2) of a small density wave of wavenumber k in homogeneous matter at
        rest."""
        raise TypeError(f"{type(self).__name__} does not define jeans_frequency_squared")


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


def from_center(grid: Grid, points: Sequence[jax.Array], place: Sequence[Any]) -> list[jax.Array]:
    """x - c along each axis, to the nearest periodic image: coordinates in the box centred on c."""
    sides = zip(points, place, grid.box, strict=True)
    return [jnp.mod(x - jnp.asarray(c, x.dtype) + h / 2, h) - h / 2 for x, c, h in sides]


def center_velocity(
    layout: Layout, density: SpectralScalar, momentum: SpectralVector
) -> Float[Array, "d"]:
    """Velocity of the centre of mass: <rho v> / <rho>."""
    return layout.at_zero(momentum).real / layout.at_zero(density).real


def faces(grid: Grid, place: Sequence[Number]) -> list[Number]:
    """Along each axis, the index of the grid plane at the face of the box that is centred on c."""
    axes = zip(place, grid.box, grid.spacing, grid.shape, strict=True)
    return [jnp.mod(jnp.floor((c + length / 2) / h), n) for c, length, h, n in axes]


def density_power(layout: Layout, density: SpectralScalar) -> Spectrum:
    """P(k) = V <|delta(k)|^2> (length^3) of the density contrast, averaged over the modes of each
    shell. The Nyquist planes of an even grid, which hold only half of a wave, are left out."""
    mean = layout.at_zero(density).real
    counted = jnp.broadcast_to(~(layout.zero | layout.nyquist), density.shape)
    power = jnp.where(counted, density.real**2 + density.imag**2, 0) / mean**2
    sums = layout.shell_sum(jnp.stack([power, counted.astype(power.dtype)]))
    return layout.grid.volume * sums[0] / jnp.maximum(sums[1], 1)
