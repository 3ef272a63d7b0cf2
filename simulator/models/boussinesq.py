"""Boussinesq equations: a stratified, incompressible fluid."""

from collections.abc import Callable, Mapping
from math import hypot
from typing import ClassVar, Literal, Self

import jax
import jax.numpy as jnp
from pydantic import model_validator

from simulator.diagnostics.flow import flow_scalars
from simulator.diagnostics.spectra import shell_spectra
from simulator.models.fluid import (
    FlowSettings,
    Vector,
    advection_force,
    advection_inputs,
    advection_products,
    advection_rate,
    along,
    constant,
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
from simulator.settings import NonNegative, Real, wrong
from simulator.spectral import Local, Points, Transform
from simulator.spectral.operators import divergence, hermitian, project, squared


class BoussinesqSettings(FlowSettings):
    kind: Literal["boussinesq"] = "boussinesq"
    diffusivity: NonNegative
    """Of the buoyancy, length^2 / time; viscosity / diffusivity is the Prandtl number."""
    stratification: Real
    """N^2 (1/time^2): above zero stable with the buoyancy frequency N, below zero unstable."""
    gravity: Vector = (0.0, 0.0, -1.0)
    """Direction of gravity; its length does not matter."""

    @model_validator(mode="after")
    def _gravity_has_a_direction(self) -> Self:
        if not any(self.gravity):
            raise wrong("gravity", "has no direction; give e.g. [0, 0, -1]")
        return self


class Boussinesq:
    """du/dt = P[u x (omega + 2 Omega) + b e] - L u,  db/dt = -div(u b) - N^2 u . e + kappa lap b, div u = 0.

    b is the buoyancy (an acceleration) beside the background stratification N^2, e the unit vector against
    gravity, L as in `navier_stokes`. For N^2 > 0, <u^2>/2 + <b^2>/(2 N^2) is conserved without dissipation.
    Davidson, Turbulence in Rotating, Stratified and Electrically Conducting Fluids (2013), section 4.1.
    """

    Settings = BoussinesqSettings
    solenoidal: ClassVar[tuple[str, ...]] = ("velocity",)
    closes: ClassVar[bool] = True

    def __init__(self, settings: BoussinesqSettings, transform: Transform):
        self.settings, self.transform = settings, transform
        self.components: Mapping[str, tuple[int, ...]] = {
            "velocity": (3,),
            "buoyancy": (),
            **{s.name: () for s in settings.scalars},
        }
        length = hypot(*settings.gravity)
        self.up = tuple(-g / length for g in settings.gravity)

    @property
    def stable(self) -> bool:
        return self.settings.stratification > 0

    # ---- the equation ------------------------------------------------------------------------------------

    def inputs(self, fields: Fields) -> Fields:
        return {**fields, **advection_inputs(self.transform, fields["velocity"])}

    def pointwise(self, values: Fields, points: Points, parameters) -> Local:
        u = values["velocity"]
        products = {
            **advection_products(self.transform.grid, values),
            "buoyancy": values["buoyancy"] * u,
            **fluxes(self.settings.scalars, values),
        }
        return Local(products, {"rate": advection_rate(self.transform.grid, u)})

    def _advection(self, products: Fields, velocity: jax.Array) -> jax.Array:
        return advection_force(self.transform.layout, products, velocity, self.settings.rotation)

    def _lift(self, fields: Fields) -> jax.Array:
        """b e."""
        return fields["buoyancy"] * constant(self.up, fields["buoyancy"].real.dtype)

    def parameters(self, time: jax.Array) -> tuple:
        return ()

    def combine(self, products: Fields, fields: Fields) -> Fields:
        layout = self.transform.layout
        if self.settings.stratification < 0:  # what the grid does not show would grow with nothing to stop it
            fields = {name: hermitian(layout, field) for name, field in fields.items()}
        u = fields["velocity"]
        background = self.settings.stratification * along(self.up, u)
        return {
            "velocity": project(layout, self._advection(products, u) + self._lift(fields)),
            "buoyancy": -divergence(layout, products["buoyancy"]) - background,
            **scalar_tendencies(layout, self.settings.scalars, products, u),
        }

    def decay(self) -> Fields:
        layout, dtype, s = self.transform.layout, self.transform.dtype, self.settings
        return {
            "velocity": viscous_rate(layout, s, dtype) + drag_rate(layout, s, dtype),
            "buoyancy": s.diffusivity * layout.k_squared(dtype),
            **scalar_decays(layout, s.scalars, dtype),
        }

    def rate(self, maxima: Mapping[str, jax.Array]) -> jax.Array:
        """Inertia-gravity waves have frequencies up to max(2 Omega, N), or grow at up to sqrt(-N^2)."""
        buoyancy = abs(self.settings.stratification) ** 0.5
        return maxima["rate"] + 2 * hypot(*self.settings.rotation) + buoyancy

    # ---- what is measured --------------------------------------------------------------------------------

    def _buoyancy_flux(self, fields: Fields) -> jax.Array:
        """<b u . e>: the kinetic energy's gain from buoyancy."""
        return self.transform.layout.inner(fields["buoyancy"], along(self.up, fields["velocity"]))

    def balance(self, fields: Fields) -> Balance:
        """Of kinetic plus potential energy; of the kinetic energy alone where N^2 is not positive."""
        layout, u, b = self.transform.layout, fields["velocity"], fields["buoyancy"]
        decay, square = self.decay(), self.settings.stratification
        kinetic, loss = 0.5 * power(layout, 1.0, u), power(layout, decay["velocity"], u)
        if not self.stable:
            return Balance(kinetic, self._buoyancy_flux(fields), loss)
        potential = 0.5 * power(layout, 1.0, b) / square
        return Balance(kinetic + potential, 0.0, loss + power(layout, decay["buoyancy"], b) / square)

    def work(self, fields: Fields, forces: Fields) -> jax.Array:
        weights = {"velocity": 1.0, "buoyancy": 1 / self.settings.stratification if self.stable else 0.0}
        inner = self.transform.layout.inner
        return jnp.asarray(
            sum(weights[n] * inner(fields[n], f).sum() for n, f in forces.items() if n in weights)
        )

    def diagnostics(self, fields: Fields, time: jax.Array) -> dict[str, jax.Array]:
        layout, s = self.transform.layout, self.settings
        u, b = fields["velocity"], fields["buoyancy"]
        balance, kinetic = self.balance(fields), 0.5 * power(layout, 1.0, u)
        viscous = power(layout, viscous_rate(layout, s, u.real.dtype), u)
        potential = {"potential_energy": balance.energy - kinetic} if self.stable else {}
        drag = {"drag_dissipation": power(layout, drag_rate(layout, s, u.real.dtype), u)} if s.drag else {}
        flow = flow_scalars(
            self.transform, u, s.viscosity, viscous, lambda v: advection_rate(self.transform.grid, v)
        )
        return {
            "energy": balance.energy,
            "kinetic_energy": kinetic,
            **potential,
            "dissipation": balance.dissipation,
            "viscous_dissipation": viscous,
            **drag,
            "buoyancy_flux": self._buoyancy_flux(fields),
            "buoyancy_variance": layout.inner(b, b),
            "buoyancy_dissipation": 2 * power(layout, self.decay()["buoyancy"], b),
            **flow,
            **scalar_diagnostics(layout, s.scalars, fields),
            "rate": self.rate(flow),
        }

    def spectral_energies(self, fields: Fields) -> Fields:
        """Kinetic energy; the potential one where N^2 > 0, else |b|^2 / 2 as `buoyancy`."""
        name, scale = ("potential_energy", self.settings.stratification) if self.stable else ("buoyancy", 1.0)
        return {
            "kinetic_energy": 0.5 * squared(fields["velocity"]),
            name: 0.5 * abs(fields["buoyancy"]) ** 2 / scale,
            **scalar_spectra(self.transform.layout, self.settings.scalars, fields),
        }

    def spectra(self, fields: Fields) -> dict[str, jax.Array]:
        return shell_spectra(self.transform.layout, self.spectral_energies(fields))

    def transfers(self, fields: Fields) -> Fields:
        """By advection, and `buoyancy_flux`: what each mode of the velocity gains from buoyancy."""
        layout, u, b = self.transform.layout, fields["velocity"], fields["buoyancy"]
        products = self.transform.evaluate(self.inputs(fields), self.pointwise).products
        name, scale = ("potential_energy", self.settings.stratification) if self.stable else ("buoyancy", 1.0)
        return {
            "kinetic_energy": gain(u, self._advection(products, u)),
            name: gain(b, -divergence(layout, products["buoyancy"])) / scale,
            "buoyancy_flux": gain(u, self._lift(fields)),
            **scalar_transfers(layout, self.settings.scalars, products, fields),
        }

    def derived(self) -> Mapping[str, Callable[[Fields], jax.Array]]:
        return {
            **flow_fields(self.transform),
            "pressure": lambda f: flow_pressure(
                self.transform, f["velocity"], self.settings.rotation, self._lift(f)
            ),
        }
