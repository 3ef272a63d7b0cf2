"""Smagorinsky's eddy viscosity."""

from typing import Literal

import jax
import jax.numpy as jnp

from simulator.models.closures.closure import Closure, diffusive_rate, filter_width
from simulator.models.fields import Fields
from simulator.settings import Positive, Settings
from simulator.spectral import Layout, Transform


class SmagorinskySettings(Settings):
    kind: Literal["smagorinsky"] = "smagorinsky"
    coefficient: Positive = 0.17
    """C_s; 0.17 for an inertial range up to the filter (Lilly)."""
    filter_width: Positive | None = None
    """Delta (length); by default pi / k_max, of boxes with unequal modes the geometric mean over the axes."""


class Smagorinsky(Closure):
    """tau_ij = -2 nu_t S_ij with nu_t = (C_s Delta)^2 |S|, |S| = sqrt(2 S_ij S_ij) and the strain S.

    Smagorinsky 1963, Mon. Weather Rev. 91, 99; Pope, Turbulent Flows, section 13.4.
    """

    Settings = SmagorinskySettings

    def __init__(self, settings: SmagorinskySettings, transform: Transform, files: object):
        super().__init__(settings, transform, files)
        self._length = settings.coefficient * (settings.filter_width or filter_width(transform.grid))

    def inputs(self, layout: Layout, velocity: jax.Array) -> Fields:
        """The strain (5, *order): xx, yy, xy, xz, yz; without divergence zz = -(xx + yy)."""
        k, u = layout.wavenumbers(velocity.real.dtype), velocity
        pairs = ((0, 0), (1, 1), (0, 1), (0, 2), (1, 2))
        return {"strain": 0.5j * jnp.stack([k[j] * u[i] + k[i] * u[j] for i, j in pairs])}

    def _viscosity(self, strain: jax.Array) -> jax.Array:
        xx, yy, xy, xz, yz = strain
        square = 2 * (xx * xx + yy * yy + (xx + yy) ** 2) + 4 * (xy * xy + xz * xz + yz * yz)
        # The derivative of the root at 0 is not finite, that of nu_t S is 0.
        root = jnp.sqrt(jnp.where(square > 0, square, 1))
        return self._length**2 * jnp.where(square > 0, root, 0)

    def stress(self, values: Fields) -> jax.Array:
        xx, yy, xy, xz, yz = strain = values["strain"]
        return -2 * self._viscosity(strain) * jnp.stack([2 * xx + yy, xx + 2 * yy, xy, xz, yz])

    def pointwise_rate(self, values: Fields) -> jax.Array:
        """Changes of the strain meet up to twice the eddy viscosity, because that grows with the strain."""
        return diffusive_rate(self.transform.grid, 2 * self._viscosity(values["strain"]))
