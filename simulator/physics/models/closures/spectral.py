"""The spectral eddy viscosity of Chollet and Lesieur."""

import math
from typing import Literal

import jax
import jax.numpy as jnp

from simulator.physics.models.closures.closure import Closure, diffusive_rate
from simulator.settings import Positive, Settings
from simulator.spectral import Transform
from simulator.spectral.operators import squared


class SpectralSettings(Settings):
    kind: Literal["spectral"] = "spectral"
    kolmogorov_constant: Positive = 1.4
    """C_K of the spectrum C_K dissipation^(2/3) k^(-5/3) below the cut-off."""
    turbulent_prandtl: Positive = 0.6
    """nu_t / D_t of scalars and of the buoyancy (also called the turbulent Schmidt number); 0.6 by the same theory of
    turbulence (Lesieur and Metais)."""


class Spectral(Closure):
    """-nu_t(k) k^2 u with nu_t = 0.441 C_K^(-3/2) (1 + 34.5 exp(-3.03 k_c / k)) sqrt(E(k_c) / k_c).

    k_c is the radius of the sphere of kept modes and E(k_c) the energy spectrum in the last shell that lies in it.
    Beyond k_c, in the corners of the modes, nu_t is that at k_c. Scalars are damped with nu_t / Pr_t.

    Chollet and Lesieur 1981, J. Atmos. Sci. 38, 2747; Lesieur, Turbulence in Fluids (2008), section 12.3; Lesieur and
    Metais 1996, Annu. Rev. Fluid Mech. 28, 45.
    """

    Settings = SpectralSettings
    modal = True

    def __init__(self, settings: SpectralSettings, transform: Transform, files: object):
        super().__init__(settings, transform, files)
        self._cut = transform.grid.largest_wavenumber
        width = transform.layout.shell_width
        self._shell = max(1, math.floor(self._cut / width - 0.5 + 1e-9))

    def _scale(self, velocity: jax.Array) -> jax.Array:
        """0.441 C_K^(-3/2) sqrt(E(k_c) / k_c), length^2 / time."""
        layout = self.transform.layout
        last = layout.shell_numbers() == self._shell
        energy = layout.sum(jnp.where(last, 0.5 * squared(velocity), 0)) / layout.shell_width
        # The derivative of the root at 0 is not finite.
        root = jnp.where(energy > 0, jnp.sqrt(jnp.where(energy > 0, energy, 1) / self._cut), 0)
        return 0.441 * self.settings.kolmogorov_constant**-1.5 * root

    def modal_damping(self, velocity: jax.Array) -> tuple[jax.Array, jax.Array]:
        layout = self.transform.layout
        k2 = layout.k_squared()
        ratio = self._cut / jnp.sqrt(jnp.clip(k2, 1e-300, self._cut**2))
        rate = k2 * (1 + 34.5 * jnp.exp(-3.03 * ratio))
        damping = (self._scale(velocity) * rate).astype(velocity.real.dtype)
        return damping, damping / self.settings.turbulent_prandtl

    def modal_rate(self, velocity: jax.Array, *, scalars: bool) -> jax.Array:
        most = 1 + 34.5 * math.exp(-3.03)
        factor = max(1.0, 1 / self.settings.turbulent_prandtl) if scalars else 1.0
        return diffusive_rate(self.transform.grid, factor * most * self._scale(velocity))
