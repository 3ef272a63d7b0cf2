"""Forces along the flow.

They act on its Hermitian part: what the grid does not show of a spectral array would grow with nothing to stop it.
"""

from typing import Any, Literal, Protocol, cast

import jax
import jax.numpy as jnp

from simulator.forcing.forcing import (
    Band,
    Forced,
    Memoryless,
    band_modes,
    in_band,
    momentum,
    needs_velocity,
)
from simulator.initial.initial import Files
from simulator.models.model import Fields
from simulator.settings import Positive, Settings
from simulator.spectral import Transform
from simulator.spectral.operators import hermitian


class Gas(Protocol):
    def velocity(self, fields: Fields) -> jax.Array:
        """Coefficients (3, *order) of momentum over density."""
        ...


class LinearSettings(Settings):
    kind: Literal["linear"] = "linear"
    coefficient: Positive
    """A in f = A u (1/time); a steady flow dissipates 2 A times its kinetic energy."""


class Linear(Memoryless):
    """f = A (u - U) with U the velocity of the whole, <u> or, of gas, <rho u> / <rho>: it is not set in motion.

    Lundgren, CTR Annual Research Briefs, 461 (2003); for gas: Petersen & Livescu, Phys. Fluids 22, 116101 (2010).
    """

    Settings = LinearSettings

    def __init__(self, settings: LinearSettings, transform: Transform, model: Forced, files: Files):
        needs_velocity(model, "linear")
        self.settings, self.transform, self.model = settings, transform, model

    def acceleration(self, fields: Fields, time: jax.Array, memory: dict[str, Any]) -> Fields:
        layout = self.transform.layout
        u = fields["velocity"] if "velocity" in fields else cast(Gas, self.model).velocity(fields)
        u, k2 = hermitian(layout, u), layout.k_squared(self.transform.dtype)
        whole = layout.at_zero(momentum(fields)).real
        if "density" in fields:
            whole = whole / layout.at_zero(fields["density"]).real
        whole = whole.reshape(3, 1, 1, 1).astype(u.dtype)
        return {"velocity": self.settings.coefficient * jnp.where(k2 == 0, u - whole, u)}


class ConstantPowerSettings(Settings):
    kind: Literal["constant_power"] = "constant_power"
    rate: Positive
    """Energy added per time (and mass), the box mean of f . u; of gas per time and volume, that of rho u . f. Kept
    exactly."""
    band: Band = (0.0, 2.5)


class ConstantPower(Memoryless):
    """f = rate u_band / <u_band^2>, with u_band the modes of the band: the box mean of f . u is the rate.

    Machiels, Phys. Rev. Lett. 79, 3411 (1997), at a given rate. The velocity has to have energy in the band. In gas
    it is the momentum's modes in place of the velocity's: the box mean of rho u . f is the rate whatever the density,
    and never needs a force against the flow.
    """

    Settings = ConstantPowerSettings

    def __init__(self, settings: ConstantPowerSettings, transform: Transform, model: Forced, files: Files):
        needs_velocity(model, "constant_power")
        band_modes(transform.grid, settings.band)
        self.settings, self.transform = settings, transform

    def acceleration(self, fields: Fields, time: jax.Array, memory: dict[str, Any]) -> Fields:
        layout = self.transform.layout
        flow = hermitian(layout, momentum(fields))
        inside = jnp.where(in_band(layout, self.settings.band), flow, 0)
        return {"velocity": inside * (self.settings.rate / layout.inner(inside, inside).sum())}
