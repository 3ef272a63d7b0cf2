"""Gas as a component of a composite."""

from collections.abc import Callable, Mapping
from typing import Literal

import jax
import jax.numpy as jnp

from simulator.errors import UserError
from simulator.physics.models.component import Component, ComponentName, Gravity, Potential
from simulator.physics.models.fields import DENSITY, MOMENTUM, DerivedField, Fields
from simulator.physics.models.self_gravitating_gas import (
    GasSettings,
    SelfGravitatingGas,
    SelfGravitatingGasSettings,
)
from simulator.physics.stepping.runge_kutta import RungeKutta4
from simulator.spectral import Local, Points, Transform
from simulator.spectral.operators import gradient, hermitian


class GasComponentSettings(GasSettings):
    kind: Literal["self_gravitating_gas"]
    name: ComponentName = "gas"
    """Prefix of the names of its fields and columns."""


class GasComponent(Component):
    """Drift: the hydrodynamics of `SelfGravitatingGas` by a Runge-Kutta step of order 4. Kick: m <- m - dt rho grad
    Phi, which is exact because the density stays constant."""

    Settings = GasComponentSettings
    fields = (DENSITY, MOMENTUM)

    def __init__(
        self, settings: GasComponentSettings, gravity: Gravity, make: Callable[..., Transform], files: object
    ):
        """Raises UserError, beginning with the key, for gas whose pressure changes with the expansion."""
        if gravity.cosmology is not None and settings.sound_speed and settings.polytropic_exponent != 5 / 3:
            raise UserError(
                "polytropic_exponent: in supercomoving variables the equation of gas stays the same for 5/3 only, "
                f"not for {settings.polytropic_exponent:g}; take 5/3, or cold gas (sound_speed: 0)"
            )
        self.transform, self._integrator = make(), RungeKutta4()
        values = {name: getattr(settings, name) for name in GasSettings.model_fields if name != "kind"}

        def gas(gravity: float) -> SelfGravitatingGas:
            # Not validated: the values were checked already, and those of a batch of runs are arrays.
            gas_settings = SelfGravitatingGasSettings.model_construct(
                **values, gravitational_constant=gravity
            )
            return SelfGravitatingGas(gas_settings, self.transform)

        self.alone, self.free = gas(gravity.constant), gas(0.0)

    def source(self, fields: Fields) -> tuple[jax.Array, None]:
        return self.transform.inverse(fields["density"]), None

    def kick(
        self, fields: Fields, work: None, potential: Potential, time: jax.Array, duration: jax.Array
    ) -> tuple[Fields, jax.Array]:
        layout, rho, m = self.transform.layout, fields["density"], fields["momentum"]
        grad_phi = gradient(layout, self.transform.forward(potential.values))

        def accelerated(values: Fields, points: Points, parameters) -> Local:
            weight = values["density"] * values["grad_phi"]
            v = (values["momentum"] - parameters * weight) / values["density"]
            dx, dy, dz = self.transform.grid.spacing
            advection = abs(v[0]) / dx + abs(v[1]) / dy + abs(v[2]) / dz
            densest = values["density"]
            return Local(weight, {"advection": advection, "densest": densest, "thinnest": -densest})

        dt = duration.astype(rho.real.dtype)
        evaluated = self.transform.evaluate(
            {"density": rho, "momentum": m, "grad_phi": grad_phi}, accelerated, dt
        )
        new = {"density": rho, "momentum": m - dt * hermitian(layout, evaluated.products)}
        rate = self.free.limit(evaluated.maxima, new).astype(jnp.float64) + potential.fall
        return new, jax.lax.stop_gradient(rate)

    def drift(self, fields: Fields, duration: jax.Array) -> Fields:
        def tendency(fields: Fields, time: jax.Array, stage: jax.Array | int) -> Fields:
            return self.free.tendency(fields, time)[0]

        now = jnp.float64(0)  # the equation does not depend on time
        first = tendency(fields, now, 0)
        return self._integrator.step(fields, now, duration, first, tendency, self.free.linear_terms())

    def diagnostics(self, fields: Fields, time: jax.Array) -> dict[str, jax.Array]:
        return self.free.diagnostics(fields, time)

    def spectra(self, fields: Fields) -> dict[str, jax.Array]:
        return self.free.spectra(fields)

    def derived(self) -> Mapping[str, DerivedField]:
        return self.free.derived()

    def trouble(self, fields: Fields) -> tuple[str, str] | None:
        return self.free.trouble(fields)
