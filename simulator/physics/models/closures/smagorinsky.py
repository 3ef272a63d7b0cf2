"""Smagorinsky's eddy viscosity, with an eddy diffusivity for scalars and an eddy resistivity for magnetic fields."""

from typing import Literal

import jax
import jax.numpy as jnp

from simulator.physics.models.closures.closure import Closure, diffusive_rate, filter_width
from simulator.physics.models.fields import Fields
from simulator.settings import Positive, Settings
from simulator.spectral import Layout, Transform


class SmagorinskySettings(Settings):
    kind: Literal["smagorinsky"] = "smagorinsky"
    coefficient: Positive = 0.17
    """C_s; 0.17 for an inertial range up to the filter (Lilly)."""
    filter_width: Positive | None = None
    """Delta (length); by default pi / k_max, of boxes with unequal modes the geometric mean over the axes."""
    turbulent_prandtl: Positive = 0.42
    """nu_t / D_t of scalars and of the buoyancy (also called the turbulent Schmidt number); 0.42 for inertial ranges
    of velocity and scalar up to the filter (Schmidt and Schumann)."""
    resistive_coefficient: Positive | None = None
    """C_eta of the eddy resistivity (C_eta Delta)^2 |j|; required for mhd, which has no generally accepted value."""


class Smagorinsky(Closure):
    """tau_ij = -2 nu_t S_ij with nu_t = (C_s Delta)^2 |S|, |S| = sqrt(2 S_ij S_ij) and the strain S.

    Scalars have the flux -(nu_t / Pr_t) grad theta. Constants of Kolmogorov and Obukhov-Corrsin of 1.6 and 1.34 / 2
    give Pr_t = 1.34 / (2 * 1.6), as nu_t and D_t then take the whole dissipation of the inertial ranges. Magnetic
    fields have the electromotive force -eta_t j with eta_t = (C_eta Delta)^2 |j|.

    Smagorinsky 1963, Mon. Weather Rev. 91, 99; Pope, Turbulent Flows, section 13.4; Schmidt and Schumann 1989, J.
    Fluid Mech. 200, 511; Theobald, Fox and Sofia 1994, Phys. Plasmas 1, 3016.
    """

    Settings = SmagorinskySettings

    def __init__(self, settings: SmagorinskySettings, transform: Transform, files: object):
        super().__init__(settings, transform, files)
        width = settings.filter_width or filter_width(transform.grid)
        self._length = settings.coefficient * width
        self._resistive_length = (settings.resistive_coefficient or 0.0) * width

    def inputs(self, layout: Layout, velocity: jax.Array) -> Fields:
        """The strain (5, *order): xx, yy, xy, xz, yz; without divergence zz = -(xx + yy)."""
        k, u = layout.wavenumbers(velocity.real.dtype), velocity
        pairs = ((0, 0), (1, 1), (0, 1), (0, 2), (1, 2))
        return {"strain": 0.5j * jnp.stack([k[j] * u[i] + k[i] * u[j] for i, j in pairs])}

    def _viscosity(self, strain: jax.Array) -> jax.Array:
        xx, yy, xy, xz, yz = strain
        square = 2 * (xx * xx + yy * yy + (xx + yy) ** 2) + 4 * (xy * xy + xz * xz + yz * yz)
        return self._length**2 * _root(square)

    def _resistivity(self, current: jax.Array) -> jax.Array:
        return self._resistive_length**2 * _root((current**2).sum(0))

    def stress(self, values: Fields) -> jax.Array:
        xx, yy, xy, xz, yz = strain = values["strain"]
        return -2 * self._viscosity(strain) * jnp.stack([2 * xx + yy, xx + 2 * yy, xy, xz, yz])

    def flux(self, values: Fields, scalar: jax.Array, gradient: jax.Array) -> jax.Array:
        return -(self._viscosity(values["strain"]) / self.settings.turbulent_prandtl) * gradient

    def electromotive_force(self, values: Fields) -> jax.Array:
        return -self._resistivity(values["current"]) * values["current"]

    def pointwise_rate(self, values: Fields, *, scalars: bool) -> jax.Array:
        """Changes of the strain meet up to twice the eddy viscosity, because that grows with the strain; likewise
        changes of the current. The diffusivity of scalars does not depend on them."""
        factor = max(2.0, 1 / self.settings.turbulent_prandtl) if scalars else 2.0
        largest = factor * self._viscosity(values["strain"])
        if self._resistive_length:
            largest = jnp.maximum(largest, 2 * self._resistivity(values["current"]))
        return diffusive_rate(self.transform.grid, largest)


def _root(square: jax.Array) -> jax.Array:
    """The square root; its derivative at 0 is taken as 0, like that of nu_t S."""
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
