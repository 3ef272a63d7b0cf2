"""Incompressible Navier-Stokes equations, with rotation and passive scalars."""

from collections.abc import Mapping, Sequence
from math import hypot
from typing import Literal

import jax

from simulator.diagnostics.flow import flow_scalars
from simulator.diagnostics.resolution import unresolved
from simulator.models.advection import advection_of
from simulator.models.fields import PRESSURE, VELOCITY, DerivedField, Fields, FieldSpec
from simulator.models.fluid import (
    FlowSettings,
    advection_rate,
    coriolis,
    damping,
    drag_rate,
    flow_fields,
    flow_pressure,
    fluxes,
    power,
    scalar_diagnostics,
    scalar_linear,
    scalar_spectra,
    scalar_tendencies,
    scalar_transfers,
    transfer,
    viscous_rate,
)
from simulator.models.model import Balance, Model
from simulator.spectral import Local, Points, Transform
from simulator.spectral.operators import project, squared


class NavierStokesSettings(FlowSettings):
    kind: Literal["navier_stokes"] = "navier_stokes"


class NavierStokes(Model):
    """du/dt = -P[(u . grad) u + 2 Omega x u] - nu k^2 u - nu_n k^(2 n) u - drag, div u = 0, with P the solenoidal
    projection; passive scalars dtheta/dt = -div(u theta) - u . G + D lap theta.

    P removes the pressure gradient and every other gradient, so the advection term may take any form that differs
    from (u . grad) u by a gradient: the stress form of Basdevant if products are free of aliasing errors, else the
    rotational form (see `models.advection`). Canuto et al., Spectral Methods: Evolution to Complex Geometries (2007),
    section 3.3.
    """

    Settings = NavierStokesSettings
    budget = "step"

    def __init__(
        self, settings: NavierStokesSettings, transform: Transform, further: Sequence[FieldSpec] = ()
    ):
        """`further`: fields that a subclass evolves besides velocity and scalars."""
        scalars = [FieldSpec(s.name) for s in settings.scalars]
        super().__init__(settings, transform, [VELOCITY, *further, *scalars])
        self.advection = advection_of(transform.grid)

    # ---- the equation ------------------------------------------------------------------------------------

    def inputs(self, fields: Fields) -> Fields:
        return {**fields, **self.advection.inputs(self.transform.layout, fields["velocity"])}

    def pointwise(self, values: Fields, points: Points, parameters) -> Local:
        products = {**self.advection.products(values), **fluxes(self.settings.scalars, values)}
        return Local(products, {"rate": advection_rate(self.transform.grid, values["velocity"])})

    def acceleration(self, products: Fields, fields: Fields) -> jax.Array:
        """The acceleration of the velocity without the pressure, before the projection."""
        u = fields["velocity"]
        return self.advection.force(self.transform.layout, products) + coriolis(u, self.settings.rotation)

    def combine(self, products: Fields, fields: Fields) -> Fields:
        layout = self.transform.layout
        scalars = scalar_tendencies(layout, self.settings.scalars, products, fields["velocity"])
        return {"velocity": project(layout, self.acceleration(products, fields)), **scalars}

    def linear(self) -> Fields:
        layout, dtype, s = self.transform.layout, self.transform.dtype, self.settings
        velocity = viscous_rate(layout, s, dtype) + drag_rate(layout, s, dtype)
        return {"velocity": -velocity, **scalar_linear(layout, s.scalars, dtype)}

    def rate(self, maxima: Mapping[str, jax.Array]) -> jax.Array:
        return maxima["rate"] + 2 * hypot(*self.settings.rotation)

    # ---- diagnostics --------------------------------------------------------------------------------------

    def balance(self, fields: Fields) -> Balance:
        u, layout = fields["velocity"], self.transform.layout
        return Balance(0.5 * power(layout, 1.0, u), 0.0, power(layout, -self.linear()["velocity"], u))

    def work(self, fields: Fields, forces: Fields) -> jax.Array:
        return self.transform.layout.inner(fields["velocity"], forces["velocity"]).sum()

    def diagnostics(self, fields: Fields, time: jax.Array) -> dict[str, jax.Array]:
        layout, u, s = self.transform.layout, fields["velocity"], self.settings
        balance = self.balance(fields)
        viscous = power(layout, viscous_rate(layout, s, u.real.dtype), u)
        drag = {"drag_dissipation": balance.dissipation - viscous} if s.drag else {}
        flow = flow_scalars(
            self.transform, u, damping(s), viscous, lambda v: advection_rate(self.transform.grid, v)
        )
        return {
            "energy": balance.energy,
            "kinetic_energy": balance.energy,
            "dissipation": balance.dissipation,
            **drag,
            **flow,
            **scalar_diagnostics(layout, s.scalars, fields),
            "rate": self.rate(flow),
        }

    def warnings(self, row: Mapping[str, float]) -> list[str]:
        return unresolved(row)

    def spectral_energies(self, fields: Fields) -> Fields:
        kinetic = 0.5 * squared(fields["velocity"])
        return {
            "kinetic_energy": kinetic,
            **scalar_spectra(self.transform.layout, self.settings.scalars, fields),
        }

    def transfers(self, fields: Fields) -> Fields:
        return self.transfers_of(
            self.transform.evaluate(self.inputs(fields), self.pointwise).products, fields
        )

    def transfers_of(self, products: Fields, fields: Fields) -> Fields:
        """`transfers` from the coefficients of the products."""
        layout = self.transform.layout
        scalars = scalar_transfers(layout, self.settings.scalars, products, fields)
        return {
            "kinetic_energy": transfer(fields["velocity"], self.advection.force(layout, products)),
            **scalars,
        }

    def derived(self) -> Mapping[str, DerivedField]:
        pressure = DerivedField(PRESSURE, self._pressure)
        return {**flow_fields(self.transform), pressure.spec.name: pressure}

    def _pressure(self, fields: Fields) -> jax.Array:
        return flow_pressure(self.transform, fields["velocity"], self.settings.rotation)
