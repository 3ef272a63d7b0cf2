"""Incompressible magnetohydrodynamics, with the magnetic field in Alfven units (a velocity)."""

from collections.abc import Mapping
from functools import reduce
from operator import add, mul
from typing import Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
from pydantic import model_validator

from simulator.errors import UserError
from simulator.physics.models import fields as specs
from simulator.physics.models import flow, fluid
from simulator.physics.models.advection import Momentum, Rotational, advection_of
from simulator.physics.models.fields import DerivedField, Fields
from simulator.physics.models.flow import Damping
from simulator.physics.models.fluid import FlowSettings
from simulator.physics.models.navier_stokes import NavierStokes
from simulator.settings import Flag, NonNegative, wrong
from simulator.spectral import Evaluated, Layout, Local, Points, Transform, arrays
from simulator.spectral.operators import cross, curl, divergence, inverse_curl, squared


class MhdSettings(FlowSettings):
    kind: Literal["mhd"] = "mhd"
    resistivity: NonNegative
    """Magnetic diffusivity, length^2 / time."""
    hyperresistivity: fluid.Hyperdiffusion | None = None
    """Further damping of the magnetic field at the rate coefficient * k^(2 order)."""
    ion_length: NonNegative = 0.0
    """d of the Hall effect, the ion inertial length: the magnetic field moves with u - d j. Three
    dimensions only."""
    kinematic: Flag = False
    """The velocity keeps its initial value: the kinematic dynamo problem."""

    magnetic: ClassVar[bool] = True

    @model_validator(mode="after")
    def _closes_both_fields(self) -> Self:
        given = {
            "hyperviscosity": self.hyperviscosity,
            "drag": self.drag,
            "rotation": any(self.rotation),
        }
        if self.kinematic and self.ion_length:
            raise wrong(
                "ion_length",
                "the Hall effect needs the momentum equation; leave this or kinematic out",
            )
        for key, value in {"subgrid": self.subgrid, **given}.items():
            if self.kinematic and value:
                raise wrong(
                    key, "has no effect: model.kinematic prescribes the velocity; leave it out"
                )
        if (closure := self.subgrid) is None:
            return self
        if closure.kind != "smagorinsky":
            raise wrong(
                "subgrid.kind", f"{closure.kind} closes no magnetic field; mhd takes smagorinsky"
            )
        if closure.resistive_coefficient is None:
            raise wrong(
                "subgrid.resistive_coefficient", "is required in mhd, C_eta in (C_eta Delta)^2 |j|"
            )
        return self


class PrescribedVelocity(Momentum):
    """No force: 6 + 3 transforms per tendency for the electromotive force alone."""

    def products(self, values: arrays.PointValues) -> arrays.PointValues:
        return {}

    def force(self, layout: Layout, products: Fields) -> arrays.SpectralVector:
        return jnp.zeros_like(products["emf"])


class Mhd(NavierStokes):
    """du/dt = P[-(u . grad) u + j x b - 2 Omega x u] + damping,  db/dt = curl((u - d j) x b) + eta
    lap b - eta_n k^(2 n) b, j = curl b; both solenoidal. Damping and passive scalars are those of
    `NavierStokes`.

    The mean magnetic field is the k = 0 mode of `magnetic`; the induction equation keeps it. With
    `kinematic` the velocity is prescribed. Biskamp, Magnetohydrodynamic Turbulence (2003), section
    2.1.

    In two dimensions both fields lie in the plane; vorticity, current and the vector potential are
    along its normal. The energy flows to small scales there, too (Biskamp, section 8.1).

    The Hall term, of length d, conserves the energy. Along a mean field B waves have omega = k B
    (sqrt(1 + (k d / 2)^2) +- k d / 2): Mahajan & Krishan, Mon. Not. R. Astron. Soc. 359, L27
    (2005)."""

    Settings = MhdSettings
    exact_force = Rotational(magnetic=True)

    def __init__(self, settings: MhdSettings, transform: Transform):
        super().__init__(settings, transform, [specs.MAGNETIC])  # type: ignore[arg-type] - has all keys of a flow
        if settings.kinematic:
            self.unforced = "has no effect: model.kinematic prescribes the velocity"
            self.budget = "none"
        self.hall = not flow.absent(settings.ion_length)
        if self.hall and transform.grid.planar:
            raise UserError("ion_length: the Hall effect needs three dimensions; leave it out")
        # The rotational form has the values of j that the Hall term needs.
        solved = (
            Rotational(magnetic=True) if self.hall else advection_of(transform.grid, magnetic=True)
        )
        self.momentum = PrescribedVelocity() if settings.kinematic else solved

    def _resolved(self, values: arrays.PointValues, points: Points, parameters: Any) -> Local:
        flow = super()._resolved(values, points, parameters)
        u, b = values["velocity"], values["magnetic"]
        carrier = u - self.settings.ion_length * values["current"] if self.hall else u
        products = {**flow.products, "emf": cross(carrier, b)}
        return flow._replace(products=products, maxima={**flow.maxima, "rate": self._rate(u, b)})

    def _subgrid_inputs(self, fields: Fields) -> Fields:
        if self.closure is None:
            return {}
        return {
            **super()._subgrid_inputs(fields),
            "current": curl(self.transform.layout, fields["magnetic"]),
        }

    def _subgrid_products(
        self, values: arrays.PointValues, held: Mapping[str, Any]
    ) -> arrays.PointValues:
        assert self.closure is not None
        return {
            **super()._subgrid_products(values, held),
            "emf": self.closure.electromotive_force(values),
        }

    def _of_products(self, products: Fields) -> Fields:
        return {
            **super()._of_products(products),
            "magnetic": curl(self.transform.layout, products["emf"]),
        }

    def _rate(self, u: arrays.PhysicalVector, b: arrays.PhysicalVector) -> arrays.OverPoints:
        # The fastest whistler on the grid travels at k_max d times the Alfven speed.
        whistler = 1 + self.settings.ion_length * self.transform.grid.largest_wavenumber
        waves = () if self.settings.kinematic else (whistler * b,)
        return fluid.advection_rate(self.transform.grid, u, *waves)

    def acceleration(self, products: Fields, fields: Fields) -> arrays.SpectralVector:
        if self.settings.kinematic:  # nothing to project
            return self.momentum.force(self.transform.layout, products)
        return super().acceleration(products, fields)

    def combine(self, products: Fields, fields: Fields) -> Fields:
        induction = curl(self.transform.layout, products["emf"])
        return {**super().combine(products, fields), "magnetic": induction}

    def _resistive_damping(self) -> Damping:
        return fluid.damping(self.settings.resistivity, self.settings.hyperresistivity)

    def linear(self) -> dict[str, arrays.OverModes]:
        dtype = self.transform.dtype
        found = super().linear()
        if self.settings.kinematic:
            found["velocity"] = jnp.zeros((1, 1, 1), dtype)
        rate = fluid.damping_rate(self.transform.layout, self._resistive_damping(), dtype)
        return {**found, "magnetic": -rate}

    @property
    def energy_weights(self) -> dict[str, float]:
        return {"velocity": 1.0, "magnetic": 1.0}

    def _measured(self, fields: Fields) -> Evaluated:
        layout, u, b = self.transform.layout, fields["velocity"], fields["magnetic"]

        def further(values: arrays.PointValues, mean: Any) -> Local:
            u, b = values["velocity"], values["magnetic"]
            work = reduce(add, map(mul, u, cross(values["current"], b)))
            maxima = {
                "field": jnp.sqrt(squared(b)),
                "magnetic_divergence": abs(values["magnetic_divergence"]),
            }
            return Local({}, maxima, {"lorentz": work, **flow.products_about(mean, b, "magnetic")})

        inputs = {"velocity": u, "magnetic": b, "current": curl(layout, b)}
        inputs["magnetic_divergence"] = divergence(layout, b)
        mean = layout.at_zero(b).real
        return flow.moments(
            self.transform,
            inputs,
            lambda v: self._rate(v["velocity"], v["magnetic"]),
            further,
            mean,
        )

    def _columns(
        self, fields: Fields, time: arrays.Number, measured: Evaluated
    ) -> dict[str, arrays.Number]:
        layout, u, b = self.transform.layout, fields["velocity"], fields["magnetic"]
        columns, mean = super()._columns(fields, time, measured), layout.at_zero(b).real
        ohmic, numbers = fluid.power(layout, -self.linear()["magnetic"], b), {}
        if not flow.absent(resistivity := self.settings.resistivity):
            numbers["magnetic_reynolds"] = (
                columns["u_rms"] * columns["integral_scale"] / resistivity
            )
            numbers["magnetic_prandtl"] = jnp.asarray(self.settings.viscosity / resistivity)
        return {
            **columns,
            **numbers,
            "magnetic_energy": 0.5 * fluid.power(layout, 1.0, b),
            "ohmic_dissipation": ohmic,
            "lorentz_work": measured.means["lorentz"],
            "cross_helicity": layout.inner(u, b).sum(),
            **{name: layout.sum(modes) for name, modes in self._topology(b).items()},
            **flow.mean_and_rms(mean, measured.means, "magnetic", "b_rms", "maxwell_stress"),
            **self._magnetic_scales(curl(layout, b), ohmic),
            "max_magnetic": measured.maxima["field"],
            "max_magnetic_divergence": measured.maxima["magnetic_divergence"],
        }

    def _cascaded(self, viscous: jax.Array, vorticity: jax.Array) -> flow.Cascade:
        return flow.Cascade("energy", viscous)

    def _topology(self, b: jax.Array) -> dict[str, arrays.OfModes]:
        """The third quantity that ideal flow conserves, for each mode: Re a* . b with curl a = b;
        in planes |a|^2."""
        potential = inverse_curl(self.transform.layout, b)
        if self.transform.grid.planar:
            return {"square_potential": squared(potential)}
        return {"magnetic_helicity": fluid.transfer(potential, b)}

    def _magnetic_scales(self, current: jax.Array, ohmic: jax.Array) -> dict[str, jax.Array]:
        """Scales as `flow_scalars` computes them for the velocity. A kinematic dynamo, in which the
        strength of the field is arbitrary, has no dissipation scale."""
        layout = self.transform.layout
        scales = {
            "magnetic_enstrophy": 0.5 * layout.inner(current, current).sum(),
            "edge_magnetic_enstrophy": flow.tail_fraction(layout, squared(current), 0.0),
        }
        present = [(n, eta) for n, eta in self._resistive_damping() if not flow.absent(eta)]
        # With a closure the cascade ends at scales below the grid.
        if present and not self.settings.kinematic and self.closure is None:
            scale = flow.dissipation_scale(present, ohmic)
            scales["resistive_scale"] = scale
            scales["k_max_resistive"] = self.transform.grid.largest_wavenumber * scale
        return scales

    def warnings(self, row: Mapping[str, float]) -> list[str]:
        return [] if self.settings.kinematic else super().warnings(row)

    def spectral_energies(self, fields: Fields) -> dict[str, arrays.OfModes]:
        return {
            **super().spectral_energies(fields),
            "magnetic_energy": 0.5 * squared(fields["magnetic"]),
        }

    def cospectra(self, fields: Fields) -> dict[str, arrays.OfModes]:
        """The fluxes of scalars; `cross_helicity` Re u* . b, `magnetic_helicity` Re a* . b with
        curl a = b or, in two dimensions, `square_potential` |a|^2, and the Elsasser energies |u +
        b|^2 / 4 and |u - b|^2 / 4: their sum is the energy, their difference the cross-helicity."""
        u, b = fields["velocity"], fields["magnetic"]
        return {
            **super().cospectra(fields),
            "cross_helicity": fluid.transfer(u, b),
            **self._topology(b),
            "elsasser_plus": 0.25 * squared(u + b),
            "elsasser_minus": 0.25 * squared(u - b),
        }

    def wave_parts(self, fields: Fields) -> dict[str, arrays.OfModes]:
        return {}  # the waves of a rotating conductor are not those of a rotating flow

    def transfers(self, fields: Fields) -> dict[str, arrays.OfModes]:
        """Advection conserves kinetic energy; `lorentz` converts it into magnetic energy, its
        `induction`."""

        def terms(values, points, parameters) -> Local:
            u, b = values["velocity"], values["magnetic"]
            advection, lorentz = cross(u, values["vorticity"]), cross(values["current"], b)
            carrier = u - self.settings.ion_length * values["current"]
            products = {"advection": advection, "lorentz": lorentz, "emf": cross(carrier, b)}
            return Local({**products, **fluid.fluxes(self.mean_gradients, values)})

        layout, u, b = self.transform.layout, fields["velocity"], fields["magnetic"]
        inputs = {**fields, **self.exact_force.inputs(layout, fields)}
        products = self.transform.evaluate(inputs, terms).products
        return {
            "kinetic_energy": fluid.transfer(u, products["advection"]),
            "lorentz": fluid.transfer(u, products["lorentz"]),
            "induction": fluid.transfer(b, curl(layout, products["emf"])),
            **self.scalar_transfers(products, fields),
            **self.subgrid_transfers(fields),
        }

    def derived(self) -> Mapping[str, DerivedField]:
        inverse, layout = self.transform.inverse, self.transform.layout

        def current(fields: Fields) -> jax.Array:
            return inverse(curl(layout, fields["magnetic"]))

        currents = fluid.curl_fields(
            self.transform, current, specs.CURRENT, specs.CURRENT_MAGNITUDE
        )
        derived = {**super().derived(), **specs.by_name(*currents)}
        if self.settings.kinematic:
            del derived[specs.PRESSURE.name]
        return derived
