"""Observables of a magnetic field: its energy, its helicities, its scales and its exchange of
energy with the flow."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add, mul
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from simulator.physics.models import fields as specs
from simulator.physics.models.advection import Rotational
from simulator.physics.models.damping import absent, diffusive_terms
from simulator.physics.models.fields import DerivedField, Fields, products_of
from simulator.physics.models.observables.budget import energy_transfer, weighted_square
from simulator.physics.models.observables.energy import scalar_transfers
from simulator.physics.models.observables.observable import Columns, Observable, PointMoments, Row
from simulator.physics.models.observables.resolution import (
    dissipation_scale,
    tail_fraction,
)
from simulator.physics.models.observables.turbulence import mean_and_rms, products_about
from simulator.physics.models.observables.velocity_fields import curl_fields
from simulator.physics.models.passive_scalars import scalar_fluxes
from simulator.physics.models.tendency import linear_terms
from simulator.spectral import Local, Points
from simulator.spectral.arrays import Number, OfModes, PointValues
from simulator.spectral.operators import cross, curl, divergence, inverse_curl, squared
from simulator.spectral.transform import Tree

if TYPE_CHECKING:
    from simulator.physics.models.mhd import Mhd


class MagneticField(Observable["Mhd"]):
    """Energy and dissipation of the magnetic field, its strength, its scales, and what it has in
    common with the flow."""

    def moments(self, model: Mhd, fields: Fields) -> PointMoments:
        layout = model.transform.layout
        b = fields["magnetic"]

        def at_point(values: PointValues, points: Points, mean: Tree) -> Local:
            u = values["velocity"]
            b = values["magnetic"]
            work = reduce(add, map(mul, u, cross(values["current"], b)))
            maxima = {
                "field": jnp.sqrt(squared(b)),
                "magnetic_divergence": abs(values["magnetic_divergence"]),
            }
            return Local({}, maxima, {"lorentz": work, **products_about(mean, b, "magnetic")})

        inputs = {
            "magnetic": b,
            "current": curl(layout, b),
            "magnetic_divergence": divergence(layout, b),
        }
        return PointMoments(inputs, at_point, layout.at_zero(b).real)

    def columns(self, model: Mhd, fields: Fields, row: Row) -> Columns:
        layout = model.transform.layout
        u = fields["velocity"]
        b = fields["magnetic"]
        mean = layout.at_zero(b).real
        ohmic = weighted_square(layout, -linear_terms(model)["magnetic"], b)
        columns: Columns = {}
        if not absent(model.resistivity):
            columns["magnetic_reynolds"] = (
                row.before["u_rms"] * row.before["integral_scale"] / model.resistivity
            )
            columns["magnetic_prandtl"] = jnp.asarray(model.viscosity / model.resistivity)
        return {
            **columns,
            "magnetic_energy": 0.5 * weighted_square(layout, 1.0, b),
            "ohmic_dissipation": ohmic,
            "lorentz_work": row.moments.means["lorentz"],
            "cross_helicity": layout.inner(u, b).sum(),
            **{name: layout.sum(modes) for name, modes in topology(model, b).items()},
            **mean_and_rms(mean, row.moments.means, "magnetic", "b_rms", "maxwell_stress"),
            **_scales(model, curl(layout, b), ohmic),
            "max_magnetic": row.moments.maxima["field"],
            "max_magnetic_divergence": row.moments.maxima["magnetic_divergence"],
        }

    def energies(self, model: Mhd, fields: Fields) -> dict[str, OfModes]:
        return {"magnetic_energy": 0.5 * squared(fields["magnetic"])}

    def cospectra(self, model: Mhd, fields: Fields) -> dict[str, OfModes]:
        """`cross_helicity` Re u* . b, `magnetic_helicity` Re a* . b with curl a = b or, in two
        dimensions, `square_potential` |a|^2, and the Elsasser energies |u + b|^2 / 4 and |u - b|^2
        / 4: their sum is the energy, their difference the cross-helicity."""
        u = fields["velocity"]
        b = fields["magnetic"]
        return {
            "cross_helicity": energy_transfer(u, b),
            **topology(model, b),
            "elsasser_plus": 0.25 * squared(u + b),
            "elsasser_minus": 0.25 * squared(u - b),
        }


class MagneticTransfers(Observable["Mhd"]):
    """Advection conserves kinetic energy; `lorentz` converts it into magnetic energy, its
    `induction`."""

    def transfers(self, model: Mhd, fields: Fields) -> dict[str, OfModes]:
        exact = Rotational(magnetic=True)

        def terms(values: PointValues) -> PointValues:
            u = values["velocity"]
            b = values["magnetic"]
            advection = cross(u, values["vorticity"])
            lorentz = cross(values["current"], b)
            fluxes = scalar_fluxes(model.transported, values)
            exchanged = {"emf": model.products(values)["emf"], **fluxes}
            return {**exchanged, "advection": advection, "lorentz": lorentz}

        u = fields["velocity"]
        b = fields["magnetic"]
        inputs = {**fields, **exact.inputs(model.transform.layout, fields)}
        products = products_of(model.transform, inputs, terms)
        return {
            "kinetic_energy": energy_transfer(u, products["advection"]),
            "lorentz": energy_transfer(u, products["lorentz"]),
            "induction": energy_transfer(b, model.curl(products["emf"])),
            **scalar_transfers(model, products, fields),
        }


class Currents(Observable["Mhd"]):
    """The current, and in three dimensions its magnitude."""

    def derived(self, model: Mhd) -> Mapping[str, DerivedField]:
        transform = model.transform

        def current(fields: Fields) -> jax.Array:
            return transform.inverse(curl(transform.layout, fields["magnetic"]))

        return specs.by_name(
            *curl_fields(transform, current, specs.CURRENT, specs.CURRENT_MAGNITUDE)
        )


def topology(model: Mhd, b: jax.Array) -> dict[str, OfModes]:
    """The third quantity that ideal flow conserves, for each mode: Re a* . b with curl a = b; in
    planes |a|^2."""
    potential = inverse_curl(model.transform.layout, b)
    if model.transform.grid.dimensions == 2:
        return {"square_potential": squared(potential)}
    return {"magnetic_helicity": energy_transfer(potential, b)}


def _scales(model: Mhd, current: jax.Array, ohmic: Number) -> Columns:
    """Scales as `Turbulence` has them for the velocity. A kinematic dynamo, in which the strength
    of the field is arbitrary, has no dissipation scale."""
    layout = model.transform.layout
    scales = {
        "magnetic_enstrophy": 0.5 * layout.inner(current, current).sum(),
        "edge_magnetic_enstrophy": tail_fraction(layout, squared(current), 0.0),
    }
    terms = diffusive_terms(model.resistivity, model.hyperresistivity)
    # With a closure the cascade ends at scales below the grid.
    if terms and not model.kinematic and model.closure is None:
        scale = dissipation_scale(terms, ohmic)
        scales["resistive_scale"] = scale
        scales["k_max_resistive"] = model.transform.grid.largest_wavenumber * scale
    return scales
