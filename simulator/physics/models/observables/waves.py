"""The energy of waves in rotating and stratified flows, and of the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import hypot
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from simulator.physics.models.fields import Fields
from simulator.physics.models.observables.observable import Columns, Observable, Row
from simulator.physics.models.observables.resolution import ratio
from simulator.spectral import Layout
from simulator.spectral.arrays import OfModes, OverModes, SpectralScalar, SpectralVector, quotient
from simulator.spectral.operators import cross, dot, squared, wavenumbers

if TYPE_CHECKING:
    from simulator.physics.models.navier_stokes import NavierStokes


class RossbyNumber(Observable["NavierStokes"]):
    """u_rms / (2 Omega L) of a rotating flow, with the integral scale L."""

    def columns(self, model: NavierStokes, fields: Fields, row: Row) -> Columns:
        turning = 2 * hypot(*model.rotation)
        return (
            {"rossby": ratio(row.before["u_rms"], turning * row.before["integral_scale"])}
            if turning
            else {}
        )


class InertialWaves(Observable["NavierStokes"]):
    """The energy of waves and of the rest, in rotating flows."""

    def cospectra(self, model: NavierStokes, fields: Fields) -> dict[str, OfModes]:
        rotation = model.rotation
        if not any(rotation):
            return {}
        axis = [x / hypot(*rotation) for x in rotation]
        return energy_parts(model.transform.layout, fields["velocity"], None, rotation, 0.0, axis)


def _linear(
    layout: Layout,
    rotation: Sequence[float],
    buoyancy: float,
    axis: Sequence[float],
    dtype: DTypeLike,
) -> tuple[OverModes, OverModes, OverModes]:
    """The linear problem of each mode: 2 Omega . k / |k|, the only part of the rotation that acts
    on a mode; omega >= 0 (1/time), 0 where it is round-off, omega^2 = (N^2 |k x e|^2 + (2 Omega .
    k)^2) / k^2 with e = `axis`; and 1, -1 or 0, the sign of the group velocity of the wave exp(i (k
    . x - omega t)) along e."""
    k = _in_space(wavenumbers(layout, dtype))
    k2 = k[0] ** 2 + k[1] ** 2 + k[2] ** 2
    length = jnp.sqrt(k2)
    inverse = quotient(1, length)
    small = 64 * jnp.finfo(dtype).eps

    def along(vector: Sequence[float]) -> jax.Array:
        return jnp.asarray(sum(v * q for v, q in zip(vector, k, strict=True) if v), dtype) * inverse

    x, y, z = (jnp.asarray(q, dtype) for q in k)
    e = np.asarray(axis)
    across = jnp.sqrt(
        (y * e[2] - z * e[1]) ** 2 + (z * e[0] - x * e[2]) ** 2 + (x * e[1] - y * e[0]) ** 2
    )
    across = across * inverse
    fastest = hypot(buoyancy, 2 * hypot(*rotation))
    coriolis = 2 * along(rotation)
    coriolis = jnp.where(abs(coriolis) <= small * fastest, 0, coriolis)
    squares = coriolis**2 + jnp.where(across <= small, 0, buoyancy * across) ** 2
    # omega omega' |k| = (2 Omega . k) (2 Omega . e) / |k| - omega^2 k . e / |k|
    slope = coriolis * 2 * float(np.dot(rotation, e)) - squares * along(axis)
    rise = jnp.where(abs(slope) <= small * fastest**2, 0, jnp.sign(slope))
    return coriolis, jnp.sqrt(squares), rise


def _in_space(vector: Iterable[Any]) -> list[Any]:
    components = list(vector)
    return components if len(components) == 3 else [*components, 0 * components[0]]


def _component(vector: Sequence[jax.Array] | jax.Array, axis: Sequence[float]) -> jax.Array:
    return jnp.asarray(sum(float(d) * vector[i] for i, d in enumerate(axis) if d))


def energy_parts(
    layout: Layout,
    velocity: SpectralVector,
    theta: SpectralScalar | None,
    rotation: Sequence[float],
    buoyancy_frequency: float,
    axis: Sequence[float],
) -> dict[str, OfModes]:
    """The energy of each mode by its part in the linear, inviscid motion

        u_t = P[-2 Omega x u + N theta e],  theta_t = -N u . e,  theta = b / N,

    of an unbounded fluid with any directions of `rotation` Omega and `axis` e. Without
    stratification `theta` is None and N = 0. The energies add up to (|u|^2 + |theta|^2) / 2.

    A mode with frequency omega > 0 is a pair of waves and a steady part of amplitude a = (N u . (k
    x e) / |k| - F theta) / omega, F = 2 Omega . k / |k|, which carries all its linear potential
    vorticity, q = N omega_vorticity . e + 2 Omega . grad theta: |q| = |k| omega |a| (Bartello 1995,
    J. Atmos. Sci. 52, 4410; Smith and Waleffe 2002, J. Fluid Mech. 451, 145). `wave_up_energy` is
    the energy of waves whose group velocity has a positive component along e, `wave_down_energy`
    that of waves with a negative component; the energy of all other waves is divided equally.
    `wave_energy`: both waves. `vortical_energy`: the steady part, and without stratification all
    modes with omega = 0, the two-dimensional flow. `shear_energy`, with stratification only: modes
    with omega = 0, horizontally uniform flow and buoyancy, their means included."""
    dtype = velocity.real.dtype
    coriolis, omega, rise = _linear(layout, rotation, buoyancy_frequency, _in_space(axis), dtype)
    inverse = quotient(1, omega)
    inverse_k = jnp.sqrt(layout.inverse_k_squared(dtype))
    velocity = jnp.stack(_in_space(velocity))
    axis = _in_space(axis)
    # i k x u / |k|
    scaled_curl = 1j * cross(_in_space(wavenumbers(layout, dtype)), velocity) * inverse_k
    rising = _component(velocity, axis)
    spinning = _component(scaled_curl, axis)
    total = 0.5 * squared(velocity)
    # Twice the excess of the wave along k over that against it; for inertial waves the helicity.
    excess = coriolis * (
        dot(velocity.real, scaled_curl.real) + dot(velocity.imag, scaled_curl.imag)
    )
    vortical = jnp.zeros_like(total)
    if theta is not None:
        total = total + 0.5 * abs(theta) ** 2
        # u . (k x e) = -e . (k x u) = i e . (i k x u)
        amplitude = (1j * buoyancy_frequency * spinning - coriolis * theta) * inverse
        vortical = 0.5 * abs(amplitude) ** 2
        excess = excess + 2 * buoyancy_frequency * (
            rising.real * theta.imag - rising.imag * theta.real
        )
    difference = -0.5 * rise * excess * inverse
    return _divided(total, vortical, difference, omega > 0, stratified=theta is not None)


def _divided(
    total: OfModes, vortical: OfModes, difference: OfModes, oscillating: jax.Array, stratified: bool
) -> dict[str, OfModes]:
    """The parts of the `total` energy of each mode; `difference`: energy of waves up less that of
    waves down."""
    wave = jnp.where(oscillating, total - vortical, 0)
    steady = jnp.where(oscillating, 0, total)
    parts = {
        "wave_energy": wave,
        "wave_up_energy": 0.5 * (wave + difference),
        "wave_down_energy": 0.5 * (wave - difference),
    }
    if not stratified:
        return parts | {"vortical_energy": steady}
    return parts | {"vortical_energy": jnp.where(oscillating, vortical, 0), "shear_energy": steady}
