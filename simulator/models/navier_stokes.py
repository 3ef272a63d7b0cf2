"""Incompressible Navier-Stokes equations, with rotation and passive scalars."""

from collections.abc import Mapping, Sequence
from math import hypot
from typing import Literal

import jax

from simulator.diagnostics.flow import flow_scalars
from simulator.diagnostics.resolution import unresolved
from simulator.models.advection import Momentum, Rotational, advection_of
from simulator.models.fields import PRESSURE, VELOCITY, DerivedField, Fields, FieldSpec
from simulator.models.fluid import (
    FlowSettings,
    advection_rate,
    coriolis,
    damping_rate,
    drag_rate,
    flow_fields,
    fluxes,
    power,
    pressure,
    scalar_diagnostics,
    scalar_linear,
    scalar_spectra,
    scalar_tendencies,
    scalar_transfers,
    transfer,
    viscous_damping,
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
    exact_force: Momentum = Rotational()
    """The nonlinear force with its gradients but that of u^2 / 2, which the pressure needs."""

    def __init__(
        self, settings: NavierStokesSettings, transform: Transform, further: Sequence[FieldSpec] = ()
    ):
        """`further`: fields that a subclass evolves besides velocity and scalars."""
        scalars = [FieldSpec(s.name) for s in settings.scalars]
        super().__init__(settings, transform, [VELOCITY, *further, *scalars])
        self.momentum: Momentum = advection_of(transform.grid)

    # ---- the equation ------------------------------------------------------------------------------------

    def inputs(self, fields: Fields) -> Fields:
        return {**fields, **self.momentum.inputs(self.transform.layout, fields)}

    def pointwise(self, values: Fields, points: Points, parameters) -> Local:
        products = {**self.momentum.products(values), **fluxes(self.settings.scalars, values)}
        return Local(products, {"rate": advection_rate(self.transform.grid, values["velocity"])})

    def linear_force(self, fields: Fields) -> jax.Array | float:
        """The accelerations of the velocity that are linear in the fields, before the projection."""
        return coriolis(fields["velocity"], self.settings.rotation)

    def acceleration(self, products: Fields, fields: Fields) -> jax.Array:
        """N of the velocity: its accelerations without the pressure, projected."""
        layout = self.transform.layout
        return project(layout, self.momentum.force(layout, products) + self.linear_force(fields))

    def combine(self, products: Fields, fields: Fields) -> Fields:
        scalars = scalar_tendencies(
            self.transform.layout, self.settings.scalars, products, fields["velocity"]
        )
        return {"velocity": self.acceleration(products, fields), **scalars}

    def linear(self) -> Fields:
        layout, dtype, s = self.transform.layout, self.transform.dtype, self.settings
        velocity = damping_rate(layout, viscous_damping(s), dtype) + drag_rate(layout, s, dtype)
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
        damping = viscous_damping(s)
        viscous = power(layout, damping_rate(layout, damping, u.real.dtype), u)
        drag = {"drag_dissipation": power(layout, drag_rate(layout, s, u.real.dtype), u)} if s.drag else {}
        flow = flow_scalars(
            self.transform, u, damping, viscous, lambda v: advection_rate(self.transform.grid, v)
        )
        return {
            "energy": balance.energy,
            "kinetic_energy": 0.5 * power(layout, 1.0, u),
            "dissipation": balance.dissipation,
            "viscous_dissipation": viscous,
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
            "kinetic_energy": transfer(fields["velocity"], self.momentum.force(layout, products)),
            **scalars,
        }

    def derived(self) -> Mapping[str, DerivedField]:
        pressure = DerivedField(PRESSURE, self._pressure)
        return {**flow_fields(self.transform), pressure.spec.name: pressure}

    def _pressure(self, fields: Fields) -> jax.Array:
        force = self.exact_force
        inputs = {n: fields[n] for n in force.fields} | force.inputs(self.transform.layout, fields)
        return pressure(
            self.transform, inputs, lambda v: force.products(v)["force"], self.linear_force(fields)
        )
