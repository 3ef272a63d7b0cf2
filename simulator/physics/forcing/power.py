"""Forces along the flow.

They use its Hermitian part only: the anti-Hermitian part is invisible on the grid and would grow without limit.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp

from simulator.physics.forcing.forcing import Band, Forcing, check_band, in_band, momentum, needs_velocity
from simulator.physics.initial.initial import StartFiles
from simulator.physics.models import Fields, Model
from simulator.settings import Positive, Settings
from simulator.spectral import Transform
from simulator.spectral.operators import hermitian


class LinearSettings(Settings):
    kind: Literal["linear"] = "linear"
    coefficient: Positive
    """A in f = A u (1/time); a steady flow dissipates 2 A times its kinetic energy."""


class Linear(Forcing):
    """f = A (u - U), where U is the mean velocity, <u> or for gas <rho u> / <rho>, so that the net force is zero.

    Lundgren, CTR Annual Research Briefs, 461 (2003); for gas: Petersen & Livescu, Phys. Fluids 22, 116101 (2010).
    """

    Settings = LinearSettings

    def __init__(self, settings: LinearSettings, transform: Transform, model: Model, files: StartFiles):
        needs_velocity(model, "linear")
        super().__init__(settings, transform, model, files)

    def acceleration(self, fields: Fields, time: jax.Array, memory: dict[str, Any]) -> Fields:
        layout = self.transform.layout
        u = hermitian(layout, self.model.velocity(fields))
        k2 = layout.k_squared(self.transform.dtype)
        whole = layout.at_zero(momentum(fields)).real
        if "density" in fields:
            whole = whole / layout.at_zero(fields["density"]).real
        whole = whole.reshape(-1, 1, 1, 1).astype(u.dtype)
        return {"velocity": self.settings.coefficient * jnp.where(k2 == 0, u - whole, u)}


class ConstantPowerSettings(Settings):
    kind: Literal["constant_power"] = "constant_power"
    rate: Positive
    """Power, which is kept exactly: per mass, the box mean of f . u; for gas per volume, that of rho u . f."""
    band: Band = (0.0, 2.5)
    """Wavenumbers |k| that are driven, both ends included (1/length)."""


class ConstantPower(Forcing):
    """f = rate u_band / <u_band^2>, where u_band has the modes of the band: the box mean of f . u is the rate.

    Machiels, Phys. Rev. Lett. 79, 3411 (1997), at a given rate. The velocity must have energy in the band. In gas the
    modes of the momentum replace those of the velocity, so that the box mean of rho u . f is the rate for any density
    and the force never opposes the flow.
    """

    Settings = ConstantPowerSettings

    def __init__(
        self, settings: ConstantPowerSettings, transform: Transform, model: Model, files: StartFiles
    ):
        needs_velocity(model, "constant_power")
        check_band(transform.grid, settings.band)
        super().__init__(settings, transform, model, files)

    def acceleration(self, fields: Fields, time: jax.Array, memory: dict[str, Any]) -> Fields:
        layout = self.transform.layout
        flow = hermitian(layout, momentum(fields))
        inside = jnp.where(in_band(layout, self.settings.band), flow, 0)
        return {"velocity": inside * (self.settings.rate / layout.inner(inside, inside).sum())}
