"""Incompressible magnetohydrodynamics, with the magnetic field in Alfven units (a velocity)."""

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp

from simulator.diagnostics.flow import flow_scalars
from simulator.diagnostics.spectra import shell_spectra
from simulator.models.fluid import advection_rate, cross, flow_fields, gain, power, pressure
from simulator.models.model import Balance, Fields
from simulator.settings import Flag, NonNegative, Settings
from simulator.spectral import Local, Points, Transform
from simulator.spectral.operators import curl, divergence, dot, inverse_curl, project, squared


class MhdSettings(Settings):
    kind: Literal["mhd"] = "mhd"
    viscosity: NonNegative
    """Kinematic viscosity, length^2 / time."""
    resistivity: NonNegative
    """Magnetic diffusivity, length^2 / time."""
    kinematic: Flag = False
    """The velocity stays as it began: the kinematic dynamo problem."""


class Mhd:
    """du/dt = P[u x omega + j x b] + nu lap u,  db/dt = curl(u x b) + eta lap b,  j = curl b; both solenoidal.

    The mean magnetic field is the k = 0 mode of `magnetic`; the induction equation keeps it. With `kinematic`
    the velocity is prescribed. Biskamp, Magnetohydrodynamic Turbulence (2003), section 2.1.
    """

    Settings = MhdSettings
    components: ClassVar[Mapping[str, tuple[int, ...]]] = {"velocity": (3,), "magnetic": (3,)}
    solenoidal: ClassVar[tuple[str, ...]] = ("velocity", "magnetic")

    def __init__(self, settings: MhdSettings, transform: Transform):
        self.settings, self.transform = settings, transform
        self.closes = not settings.kinematic

    # ---- the equation ------------------------------------------------------------------------------------

    def inputs(self, fields: Fields) -> Fields:
        layout = self.transform.layout
        if self.settings.kinematic:
            return fields
        vorticity, current = curl(layout, fields["velocity"]), curl(layout, fields["magnetic"])
        return {**fields, "vorticity": vorticity, "current": current}

    def pointwise(self, values: Fields, points: Points, parameters) -> Local:
        u, b = values["velocity"], values["magnetic"]
        products = {"emf": cross(u, b)}
        if not self.settings.kinematic:
            products["force"] = self._force(values)
        return Local(products, {"rate": self._rate(u, b)})

    def _force(self, values: Fields) -> jax.Array:
        """u x omega + j x b."""
        return cross(values["velocity"], values["vorticity"]) + cross(values["current"], values["magnetic"])

    def _rate(self, u: jax.Array, b: jax.Array) -> jax.Array:
        """Flow and, where the field acts back on it, Alfven waves."""
        waves = () if self.settings.kinematic else (b,)
        return advection_rate(self.transform.grid, u, *waves)

    def parameters(self, time: jax.Array) -> tuple:
        return ()

    def combine(self, products: Fields, fields: Fields) -> Fields:
        layout = self.transform.layout
        kinematic = self.settings.kinematic
        force = jnp.zeros_like(fields["velocity"]) if kinematic else project(layout, products["force"])
        return {"velocity": force, "magnetic": curl(layout, products["emf"])}

    def decay(self) -> Fields:
        k2, s = self.transform.layout.k_squared(self.transform.dtype), self.settings
        viscosity = 0.0 if s.kinematic else s.viscosity
        return {"velocity": viscosity * k2, "magnetic": s.resistivity * k2}

    def rate(self, maxima: Mapping[str, jax.Array]) -> jax.Array:
        return maxima["rate"]

    # ---- what is measured --------------------------------------------------------------------------------

    def balance(self, fields: Fields) -> Balance:
        layout, decay = self.transform.layout, self.decay()
        energy = sum(0.5 * power(layout, 1.0, fields[n]) for n in self.components)
        return Balance(
            jnp.asarray(energy),
            0.0,
            jnp.asarray(sum(power(layout, decay[n], fields[n]) for n in self.components)),
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
            self.transform, u, s.viscosity, viscous, lambda v: advection_rate(self.transform.grid, v)
        )

        def exchange(values, points, parameters) -> Local:
            u, b, j = values["velocity"], values["magnetic"], values["current"]
            strength = jnp.sqrt(squared(b))
            maxima = {"field": strength, "divergence": abs(values["divergence"]), "rate": self._rate(u, b)}
            return Local({}, maxima, {"lorentz": dot(u, cross(j, b))})

        inputs = {"velocity": u, "magnetic": b, "current": current, "divergence": divergence(layout, b)}
        found = self.transform.evaluate(inputs, exchange)
        return {
            "energy": kinetic + magnetic,
            "kinetic_energy": kinetic,
            "magnetic_energy": magnetic,
            "dissipation": ohmic if s.kinematic else viscous + ohmic,
            "viscous_dissipation": viscous,
            "ohmic_dissipation": ohmic,
            "lorentz_work": found.means["lorentz"],
            "cross_helicity": layout.inner(u, b).sum(),
            "magnetic_helicity": layout.inner(inverse_curl(layout, b), b).sum(),
            "mean_square_current": layout.inner(current, current).sum(),
            **flow,
            "max_magnetic": found.maxima["field"],
            "max_magnetic_divergence": found.maxima["divergence"],
            "rate": found.maxima["rate"],
        }

    def spectral_energies(self, fields: Fields) -> Fields:
        names = {"velocity": "kinetic_energy", "magnetic": "magnetic_energy"}
        return {name: 0.5 * squared(fields[field]) for field, name in names.items()}

    def spectra(self, fields: Fields) -> dict[str, jax.Array]:
        return shell_spectra(self.transform.layout, self.spectral_energies(fields))

    def transfers(self, fields: Fields) -> Fields:
        """Advection conserves the kinetic energy; what `lorentz` takes from it, `induction` gives to the field."""

        def terms(values, points, parameters) -> Local:
            u, b = values["velocity"], values["magnetic"]
            advection, lorentz = cross(u, values["vorticity"]), cross(values["current"], b)
            return Local({"advection": advection, "lorentz": lorentz, "emf": cross(u, b)})

        layout, u, b = self.transform.layout, fields["velocity"], fields["magnetic"]
        inputs = {**fields, "vorticity": curl(layout, u), "current": curl(layout, b)}
        products = self.transform.evaluate(inputs, terms).products
        return {
            "kinetic_energy": gain(u, products["advection"]),
            "lorentz": gain(u, products["lorentz"]),
            "induction": gain(b, curl(layout, products["emf"])),
        }

    def derived(self) -> Mapping[str, Callable[[Fields], jax.Array]]:
        inverse, layout = self.transform.inverse, self.transform.layout

        def current(fields: Fields) -> jax.Array:
            return inverse(curl(layout, fields["magnetic"]))

        found = {
            **flow_fields(self.transform),
            "current": current,
            "current_magnitude": lambda f: jnp.sqrt(squared(current(f))),
        }
        if not self.settings.kinematic:
            found["pressure"] = lambda f: pressure(self.transform, self.inputs(f), self._force)
        return found
