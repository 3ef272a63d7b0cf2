"""Forces proportional to the velocity.

They act on its Hermitian part: what the grid does not show of a spectral array would grow with nothing to stop it.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp

from simulator.forcing.forcing import Band, Forced, Memoryless, band_modes, in_band, needs_velocity
from simulator.initial.initial import Files
from simulator.models.model import Fields
from simulator.settings import Positive, Settings
from simulator.spectral import Transform
from simulator.spectral.operators import hermitian


class LinearSettings(Settings):
    kind: Literal["linear"] = "linear"
    coefficient: Positive
    """A in f = A u (1/time); a steady flow dissipates 2 A times its kinetic energy."""


class Linear(Memoryless):
    """f = A (u - <u>): Lundgren, CTR Annual Research Briefs, 461 (2003)."""

    Settings = LinearSettings

    def __init__(self, settings: LinearSettings, transform: Transform, model: Forced, files: Files):
        needs_velocity(model, "linear")
        self.settings, self.transform = settings, transform

    def acceleration(self, fields: Fields, time: jax.Array, memory: dict[str, Any]) -> Fields:
        layout = self.transform.layout
        u, k2 = hermitian(layout, fields["velocity"]), layout.k_squared(self.transform.dtype)
        return {"velocity": jnp.where(k2 == 0, 0, self.settings.coefficient * u)}


class ConstantPowerSettings(Settings):
    kind: Literal["constant_power"] = "constant_power"
    rate: Positive
    """Energy added per time (and mass), the box mean of f . u: kept exactly."""
    band: Band = (0.0, 2.5)


class ConstantPower(Memoryless):
    """f = rate u_band / <u_band^2>, with u_band the modes of the band: the box mean of f . u is the rate.

    Machiels, Phys. Rev. Lett. 79, 3411 (1997), at a given rate. The velocity has to have energy in the band.
    """

    Settings = ConstantPowerSettings

    def __init__(self, settings: ConstantPowerSettings, transform: Transform, model: Forced, files: Files):
        needs_velocity(model, "constant_power")
        band_modes(transform.grid, settings.band)
        self.settings, self.transform = settings, transform

    def acceleration(self, fields: Fields, time: jax.Array, memory: dict[str, Any]) -> Fields:
        layout = self.transform.layout
        u = hermitian(layout, fields["velocity"])
        inside = jnp.where(in_band(layout, self.settings.band), u, 0)
        return {"velocity": inside * (self.settings.rate / layout.inner(inside, inside).sum())}
