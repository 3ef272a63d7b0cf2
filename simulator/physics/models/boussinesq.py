"""Boussinesq equations: a stratified, incompressible fluid."""

from collections.abc import Mapping, Sequence
from math import hypot
from typing import Literal, Self

import jax.numpy as jnp
from pydantic import model_validator

from simulator.physics.models import fluid
from simulator.physics.models.fields import BUOYANCY, Fields, along_axes
from simulator.physics.models.flow import absent, energy_parts, ratio
from simulator.physics.models.fluid import FlowSettings
from simulator.physics.models.model import Balance
from simulator.physics.models.navier_stokes import NavierStokes
from simulator.settings import AxisVector, NonNegative, Real, wrong
from simulator.spectral import Transform
from simulator.spectral.arrays import Number, OfModes, SpectralScalar, SpectralVector
from simulator.spectral.operators import hermitian


class BoussinesqSettings(FlowSettings):
    kind: Literal["boussinesq"] = "boussinesq"
    diffusivity: NonNegative
    """Diffusivity of the buoyancy, length^2 / time; viscosity / diffusivity is the Prandtl
    number."""
    stratification: Real
    """N^2 (1/time^2): positive for stable stratification with the buoyancy frequency N, negative
    for unstable."""
    gravity: AxisVector | None = None
    """Direction of gravity, of any length: a number for each axis; by default [0, 0, -1], in two
    dimensions [0, -1]."""

    @model_validator(mode="after")
    def _gravity_has_a_direction(self) -> Self:
        if self.gravity is not None and not any(self.gravity):
            raise wrong("gravity", "has no direction; give e.g. [0, 0, -1]")
        return self

    @property
    def transports_scalars(self) -> bool:
        return True


class Boussinesq(NavierStokes):
    """Navier-Stokes with buoyancy: du/dt = ... + P[b e],  db/dt = -div(u b) - N^2 u . e + kappa lap
    b.

    b is the buoyancy (an acceleration) relative to the background stratification N^2, e the unit
    vector against gravity. For N^2 > 0, <u^2>/2 + <b^2>/(2 N^2) is conserved without dissipation.
    Davidson, Turbulence in Rotating, Stratified and Electrically Conducting Fluids (2013), section
    4.1."""

    Settings = BoussinesqSettings

    def __init__(self, settings: BoussinesqSettings, transform: Transform):
        super().__init__(settings, transform, [BUOYANCY])  # type: ignore[arg-type] - has all keys of a flow
        grid, gravity = transform.grid, settings.gravity
        down = (0.0,) * (len(grid.axes) - 1) + (-1.0,)
        direction = down if gravity is None else along_axes(grid, "gravity", gravity)
        self.up = tuple(-g / hypot(*direction) for g in direction)

    @property
    def stable(self) -> bool:
        return self.settings.stratification > 0

    @property
    def mean_gradients(self) -> Mapping[str, Sequence[float]]:
        background = tuple(self.settings.stratification * e for e in self.up)
        return {**super().mean_gradients, "buoyancy": background}

    def buoyancy_force(self, fields: Fields) -> SpectralVector:
        """b e, an acceleration (length/time^2)."""
        return jnp.stack([e * fields["buoyancy"] for e in self.up])

    def linear_force(self, fields: Fields) -> SpectralVector:
        return super().linear_force(fields) + self.buoyancy_force(fields)

    def combine(self, products: Fields, fields: Fields) -> Fields:
        if self.settings.stratification < 0:
            # The anti-Hermitian part of the fields, which is invisible on the grid, would grow
            # without limit.
            fields = {
                name: hermitian(self.transform.layout, field) for name, field in fields.items()
            }
        return super().combine(products, fields)

    def production_of(self, name: str, velocity: SpectralVector) -> SpectralScalar | None:
        if name != "buoyancy":
            return super().production_of(name, velocity)
        return self.settings.stratification * fluid.along(self.up, velocity)

    def rate(self, maxima: Mapping[str, Number]) -> Number:
        """Inertia-gravity waves have frequencies up to max(2 Omega, N), or grow at up to
        sqrt(-N^2)."""
        return super().rate(maxima) + abs(self.settings.stratification) ** 0.5

    def _buoyancy_flux(self, fields: Fields) -> Number:
        """<b u . e>: the rate at which buoyancy adds kinetic energy."""
        return self.transform.layout.inner(
            fields["buoyancy"], fluid.along(self.up, fields["velocity"])
        )

    @property
    def energy_weights(self) -> dict[str, float]:
        """Kinetic plus potential energy; the kinetic energy alone if N^2 is not positive."""
        return {"velocity": 1.0} | (
            {"buoyancy": 1 / self.settings.stratification} if self.stable else {}
        )

    def balance(self, fields: Fields) -> Balance:
        found = super().balance(fields)
        return found if self.stable else found._replace(production=self._buoyancy_flux(fields))

    def diagnostics(self, fields: Fields, time: Number) -> dict[str, Number]:
        layout, b = self.transform.layout, fields["buoyancy"]
        flow = super().diagnostics(fields, time)
        diffused = 2 * fluid.power(layout, -self.linear()["buoyancy"], b)
        potential = (
            {"potential_energy": flow["energy"] - flow["kinetic_energy"]} if self.stable else {}
        )
        return {
            **flow,
            **potential,
            "buoyancy_flux": self._buoyancy_flux(fields),
            "buoyancy_mean": layout.at_zero(b).real,
            "buoyancy_variance": layout.sum(fluid.variance_modes(layout, b)),
            "buoyancy_dissipation": diffused,
            **(self._stratified(flow, diffused) if self.stable else {}),
        }

    @property
    def diffusivities(self) -> dict[str, float]:
        return {"buoyancy": self.settings.diffusivity, **super().diffusivities}

    def _stratified(self, flow: Mapping[str, Number], diffused: Number) -> dict[str, Number]:
        """Numbers of a stably stratified flow (Davidson 2013, section 4.3); `diffused`: the loss of
        variance of b by diffusion."""
        square = self.settings.stratification
        viscous, mixing = flow["viscous_dissipation"], 0.5 * diffused / square
        found = {
            "froude": ratio(flow["u_rms"], jnp.sqrt(square) * flow["integral_scale"]),
            "ozmidov_scale": jnp.sqrt(viscous / square**1.5),
            "mixing_efficiency": ratio(mixing, mixing + viscous),
        }
        if not absent(self.settings.viscosity):
            found["buoyancy_reynolds"] = viscous / (self.settings.viscosity * square)
        return found

    def spectral_energies(self, fields: Fields) -> dict[str, OfModes]:
        """Kinetic energy; the potential energy if N^2 > 0, else `buoyancy_variance`; variances of
        scalars."""
        energies = super().spectral_energies(fields)
        if self.stable:
            del energies["buoyancy_variance"]
            energies["potential_energy"] = (
                0.5 * abs(fields["buoyancy"]) ** 2 / self.settings.stratification
            )
        return energies

    def wave_parts(self, fields: Fields) -> dict[str, OfModes]:
        if not self.stable:
            return {}
        frequency, layout = self.settings.stratification**0.5, self.transform.layout
        u, theta = fields["velocity"], fields["buoyancy"] / frequency
        return energy_parts(layout, u, theta, self.settings.rotation, frequency, self.up)

    def transfers_of(self, products: Fields, fields: Fields) -> dict[str, OfModes]:
        """Transfers by advection, and `buoyancy_flux`, the energy that buoyancy adds to modes of
        the velocity."""
        found = super().transfers_of(products, fields)
        if self.stable:
            found["potential_energy"] = (
                0.5 * found.pop("buoyancy_variance") / self.settings.stratification
            )
        return {
            **found,
            "buoyancy_flux": fluid.transfer(fields["velocity"], self.buoyancy_force(fields)),
        }
