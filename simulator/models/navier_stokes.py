"""Incompressible Navier-Stokes equations in three dimensions, in rotational form."""

from collections.abc import Callable, Mapping
from math import hypot
from typing import ClassVar, Literal

import jax

from simulator.diagnostics.flow import flow_scalars
from simulator.diagnostics.spectra import shell_spectra
from simulator.models.fluid import (
    FlowSettings,
    advection_force,
    advection_inputs,
    advection_products,
    advection_rate,
    drag_rate,
    flow_fields,
    flow_pressure,
    fluxes,
    gain,
    power,
    scalar_decays,
    scalar_diagnostics,
    scalar_spectra,
    scalar_tendencies,
    scalar_transfers,
    viscous_rate,
)
from simulator.models.model import Balance, Fields
from simulator.spectral import Local, Points, Transform
from simulator.spectral.operators import project, squared


class NavierStokesSettings(FlowSettings):
    kind: Literal["navier_stokes"] = "navier_stokes"


class NavierStokes:
    """du/dt = P[u x (omega + 2 Omega)] - L u, div u = 0, omega = curl u, with P the solenoidal projection and
    L = nu k^2 + nu_n k^(2 n) + drag; passive scalars dtheta/dt = -div(u theta) - u . G + D lap theta.

    The pressure is eliminated by P; what P removes from u x omega is the gradient of p + |u|^2 / 2 (density 1).
    See e.g. Canuto et al., Spectral Methods: Evolution to Complex Geometries (2007), section 3.3.
    """

    Settings = NavierStokesSettings
    solenoidal: ClassVar[tuple[str, ...]] = ("velocity",)
    closes: ClassVar[bool] = True

    def __init__(self, settings: NavierStokesSettings, transform: Transform):
        self.settings, self.transform = settings, transform
        self.components: Mapping[str, tuple[int, ...]] = {
            "velocity": (3,),
            **{s.name: () for s in settings.scalars},
        }

    # ---- the equation ------------------------------------------------------------------------------------

    def inputs(self, fields: Fields) -> Fields:
        return {**fields, **advection_inputs(self.transform, fields["velocity"])}

    def pointwise(self, values: Fields, points: Points, parameters) -> Local:
        products = {
            **advection_products(self.transform.grid, values),
            **fluxes(self.settings.scalars, values),
        }
        return Local(products, {"rate": advection_rate(self.transform.grid, values["velocity"])})

    def _advection(self, products: Fields, velocity: jax.Array) -> jax.Array:
        return advection_force(self.transform.layout, products, velocity, self.settings.rotation)

    def parameters(self, time: jax.Array) -> tuple:
        return ()

    def combine(self, products: Fields, fields: Fields) -> Fields:
        layout = self.transform.layout
        u = fields["velocity"]
        scalars = scalar_tendencies(layout, self.settings.scalars, products, u)
        return {"velocity": project(layout, self._advection(products, u)), **scalars}

    def decay(self) -> Fields:
        layout, dtype, s = self.transform.layout, self.transform.dtype, self.settings
        velocity = viscous_rate(layout, s, dtype) + drag_rate(layout, s, dtype)
        return {"velocity": velocity, **scalar_decays(layout, s.scalars, dtype)}

    def rate(self, maxima: Mapping[str, jax.Array]) -> jax.Array:
        return maxima["rate"] + 2 * hypot(*self.settings.rotation)

    # ---- what is measured --------------------------------------------------------------------------------

    def balance(self, fields: Fields) -> Balance:
        u, layout = fields["velocity"], self.transform.layout
        return Balance(0.5 * power(layout, 1.0, u), 0.0, power(layout, self.decay()["velocity"], u))

    def work(self, fields: Fields, forces: Fields) -> jax.Array:
        return self.transform.layout.inner(fields["velocity"], forces["velocity"]).sum()

    def diagnostics(self, fields: Fields, time: jax.Array) -> dict[str, jax.Array]:
        layout, u, s = self.transform.layout, fields["velocity"], self.settings
        balance = self.balance(fields)
        viscous = power(layout, viscous_rate(layout, s, u.real.dtype), u)
        drag = {"drag_dissipation": balance.dissipation - viscous} if s.drag else {}
        flow = flow_scalars(
            self.transform, u, s.viscosity, viscous, lambda v: advection_rate(self.transform.grid, v)
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

    def spectral_energies(self, fields: Fields) -> Fields:
        kinetic = 0.5 * squared(fields["velocity"])
        return {
            "kinetic_energy": kinetic,
            **scalar_spectra(self.transform.layout, self.settings.scalars, fields),
        }

    def spectra(self, fields: Fields) -> dict[str, jax.Array]:
        return shell_spectra(self.transform.layout, self.spectral_energies(fields))

    def transfers(self, fields: Fields) -> Fields:
        u = fields["velocity"]
        products = self.transform.evaluate(self.inputs(fields), self.pointwise).products
        scalars = scalar_transfers(self.transform.layout, self.settings.scalars, products, fields)
        return {"kinetic_energy": gain(u, self._advection(products, u)), **scalars}

    def derived(self) -> Mapping[str, Callable[[Fields], jax.Array]]:
        return {
            **flow_fields(self.transform),
            "pressure": lambda f: flow_pressure(self.transform, f["velocity"], self.settings.rotation),
        }
