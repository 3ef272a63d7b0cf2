"""Incompressible magnetohydrodynamics, with the magnetic field in Alfven units (a velocity)."""

from collections.abc import Mapping
from typing import Literal

import jax
import jax.numpy as jnp

from simulator.diagnostics.flow import absent, flow_scalars, mean_and_rms, products_about
from simulator.diagnostics.resolution import dissipation_scale, tail_fraction, unresolved
from simulator.models.advection import (
    cross,
    divergence_of_stress,
    products_are_exact,
    stress_without_trace,
)
from simulator.models.fields import (
    CURRENT,
    CURRENT_MAGNITUDE,
    MAGNETIC,
    PRESSURE,
    VELOCITY,
    DerivedField,
    Fields,
    by_name,
)
from simulator.models.fluid import advection_rate, flow_fields, power, pressure, transfer
from simulator.models.model import Balance, Model
from simulator.settings import Flag, NonNegative, Settings
from simulator.spectral import Layout, Local, Points, Transform
from simulator.spectral.operators import curl, divergence, dot, inverse_curl, project, squared


class MhdSettings(Settings):
    kind: Literal["mhd"] = "mhd"
    viscosity: NonNegative
    """Kinematic viscosity, length^2 / time."""
    resistivity: NonNegative
    """Magnetic diffusivity, length^2 / time."""
    kinematic: Flag = False
    """The velocity keeps its initial value: the kinematic dynamo problem."""


class StressForce:
    """-div(u u - b b) up to a gradient: 6 + 8 transforms per tendency with the electromotive force. Used if products
    are exact, because aliased products of this form do not conserve energy (compare `advection.BasdevantStress`)."""

    def inputs(self, layout: Layout, fields: Fields) -> Fields:
        return fields

    def products(self, values: Fields) -> Fields:
        stress = stress_without_trace(values["velocity"]) - stress_without_trace(values["magnetic"])
        return {"stress": stress}

    def force(self, layout: Layout, products: Fields) -> jax.Array:
        return -divergence_of_stress(layout, products["stress"])


class RotationalForce:
    """u x omega + j x b: 12 + 6 transforms per tendency with the electromotive force. With u x b it conserves energy
    even with aliased products."""

    def inputs(self, layout: Layout, fields: Fields) -> Fields:
        vorticity, current = curl(layout, fields["velocity"]), curl(layout, fields["magnetic"])
        return {**fields, "vorticity": vorticity, "current": current}

    def products(self, values: Fields) -> Fields:
        advection = cross(values["velocity"], values["vorticity"])
        return {"force": advection + cross(values["current"], values["magnetic"])}

    def force(self, layout: Layout, products: Fields) -> jax.Array:
        return products["force"]


class PrescribedVelocity:
    """No force: 6 + 3 transforms per tendency for the electromotive force alone."""

    def inputs(self, layout: Layout, fields: Fields) -> Fields:
        return fields

    def products(self, values: Fields) -> Fields:
        return {}

    def force(self, layout: Layout, products: Fields) -> jax.Array | None:
        return None


class Mhd(Model):
    """du/dt = P[-(u . grad) u + j x b] + nu lap u,  db/dt = curl(u x b) + eta lap b,  j = curl b; both solenoidal.

    The mean magnetic field is the k = 0 mode of `magnetic`; the induction equation keeps it. With `kinematic`
    the velocity is prescribed. Biskamp, Magnetohydrodynamic Turbulence (2003), section 2.1.
    """

    Settings = MhdSettings

    def __init__(self, settings: MhdSettings, transform: Transform):
        super().__init__(settings, transform, [VELOCITY, MAGNETIC])
        if settings.kinematic:
            self.unforced = "has no effect: model.kinematic prescribes the velocity"
            self.momentum = PrescribedVelocity()
        else:
            self.budget = "step"
            self.momentum = StressForce() if products_are_exact(transform.grid) else RotationalForce()

    # ---- the equation ------------------------------------------------------------------------------------

    def inputs(self, fields: Fields) -> Fields:
        return self.momentum.inputs(self.transform.layout, fields)

    def pointwise(self, values: Fields, points: Points, parameters) -> Local:
        u, b = values["velocity"], values["magnetic"]
        return Local({**self.momentum.products(values), "emf": cross(u, b)}, {"rate": self._rate(u, b)})

    def _rate(self, u: jax.Array, b: jax.Array) -> jax.Array:
        """Rate of the flow and, unless the run is kinematic, of Alfven waves."""
        waves = () if self.settings.kinematic else (b,)
        return advection_rate(self.transform.grid, u, *waves)

    def combine(self, products: Fields, fields: Fields) -> Fields:
        layout = self.transform.layout
        force = self.momentum.force(layout, products)
        velocity = jnp.zeros_like(fields["velocity"]) if force is None else project(layout, force)
        return {"velocity": velocity, "magnetic": curl(layout, products["emf"])}

    def linear(self) -> Fields:
        k2, s = self.transform.layout.k_squared(self.transform.dtype), self.settings
        viscosity = 0.0 if s.kinematic else s.viscosity
        return {"velocity": -viscosity * k2, "magnetic": -s.resistivity * k2}

    # ---- diagnostics --------------------------------------------------------------------------------------

    def balance(self, fields: Fields) -> Balance:
        layout, linear = self.transform.layout, self.linear()
        energy = sum(0.5 * power(layout, 1.0, fields[n]) for n in self.fields)
        return Balance(
            jnp.asarray(energy),
            0.0,
            jnp.asarray(sum(power(layout, -linear[n], fields[n]) for n in self.fields)),
        )

    def work(self, fields: Fields, forces: Fields) -> jax.Array:
        return jnp.asarray(sum(self.transform.layout.inner(fields[n], f).sum() for n, f in forces.items()))

    def diagnostics(self, fields: Fields, time: jax.Array) -> dict[str, jax.Array]:
        layout, s = self.transform.layout, self.settings
        u, b = fields["velocity"], fields["magnetic"]
        k2 = layout.k_squared(u.real.dtype)
        viscous, ohmic = s.viscosity * power(layout, k2, u), s.resistivity * power(layout, k2, b)
        kinetic, magnetic = 0.5 * power(layout, 1.0, u), 0.5 * power(layout, 1.0, b)
        current = curl(layout, b)
        flow = flow_scalars(
            self.transform, u, [(1, s.viscosity)], viscous, lambda v: advection_rate(self.transform.grid, v)
        )

        def exchange(values, points, parameters) -> Local:
            u, b, j = values["velocity"], values["magnetic"], values["current"]
            strength = jnp.sqrt(squared(b))
            maxima = {"field": strength, "divergence": abs(values["divergence"]), "rate": self._rate(u, b)}
            means = {"lorentz": dot(u, cross(j, b)), **products_about(parameters, b, "magnetic")}
            return Local({}, maxima, means)

        inputs = {"velocity": u, "magnetic": b, "current": current, "divergence": divergence(layout, b)}
        mean = layout.at_zero(b).real
        evaluated = self.transform.evaluate(inputs, exchange, mean)
        return {
            "energy": kinetic + magnetic,
            "kinetic_energy": kinetic,
            "magnetic_energy": magnetic,
            "dissipation": ohmic if s.kinematic else viscous + ohmic,
            "viscous_dissipation": viscous,
            "ohmic_dissipation": ohmic,
            "lorentz_work": evaluated.means["lorentz"],
            "cross_helicity": layout.inner(u, b).sum(),
            "magnetic_helicity": layout.inner(inverse_curl(layout, b), b).sum(),
            **mean_and_rms(mean, evaluated.means, "magnetic", "b_rms", "maxwell_stress"),
            **self._magnetic_scales(current, ohmic),
            **flow,
            "max_magnetic": evaluated.maxima["field"],
            "max_magnetic_divergence": evaluated.maxima["divergence"],
            "rate": evaluated.maxima["rate"],
        }

    def _magnetic_scales(self, current: jax.Array, ohmic: jax.Array) -> dict[str, jax.Array]:
        """Scales as `flow_scalars` computes them for the velocity. A kinematic dynamo, in which the strength of the
        field is arbitrary, has no dissipation scale."""
        layout, resistivity = self.transform.layout, self.settings.resistivity
        scales = {
            "magnetic_enstrophy": 0.5 * layout.inner(current, current).sum(),
            "edge_magnetic_enstrophy": tail_fraction(layout, squared(current), 0.0),
        }
        if not (absent(resistivity) or self.settings.kinematic):
            scale = dissipation_scale([(1, resistivity)], ohmic)
            scales["resistive_scale"] = scale
            scales["k_max_resistive"] = self.transform.grid.largest_wavenumber * scale
        return scales

    def warnings(self, row: Mapping[str, float]) -> list[str]:
        return [] if self.settings.kinematic else unresolved(row)

    def spectral_energies(self, fields: Fields) -> Fields:
        names = {"velocity": "kinetic_energy", "magnetic": "magnetic_energy"}
        return {name: 0.5 * squared(fields[field]) for field, name in names.items()}

    def transfers(self, fields: Fields) -> Fields:
        """Advection conserves the kinetic energy; `lorentz` converts kinetic into magnetic energy, its
        `induction`."""

        def terms(values, points, parameters) -> Local:
            u, b = values["velocity"], values["magnetic"]
            advection, lorentz = cross(u, values["vorticity"]), cross(values["current"], b)
            return Local({"advection": advection, "lorentz": lorentz, "emf": cross(u, b)})

        layout, u, b = self.transform.layout, fields["velocity"], fields["magnetic"]
        inputs = {**fields, "vorticity": curl(layout, u), "current": curl(layout, b)}
        products = self.transform.evaluate(inputs, terms).products
        return {
            "kinetic_energy": transfer(u, products["advection"]),
            "lorentz": transfer(u, products["lorentz"]),
            "induction": transfer(b, curl(layout, products["emf"])),
        }

    def derived(self) -> Mapping[str, DerivedField]:
        inverse, layout = self.transform.inverse, self.transform.layout

        def current(fields: Fields) -> jax.Array:
            return inverse(curl(layout, fields["magnetic"]))

        derived = {
            **flow_fields(self.transform),
            **by_name(
                DerivedField(CURRENT, current),
                DerivedField(CURRENT_MAGNITUDE, lambda f: jnp.sqrt(squared(current(f)))),
            ),
        }
        if not self.settings.kinematic:
            derived |= by_name(DerivedField(PRESSURE, self._pressure))
        return derived

    def _pressure(self, fields: Fields) -> jax.Array:
        rotational = RotationalForce()
        inputs = rotational.inputs(self.transform.layout, fields)
        return pressure(self.transform, inputs, lambda values: rotational.products(values)["force"])
