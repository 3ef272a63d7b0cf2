"""Scalars that a flow transports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax.numpy as jnp

from simulator.physics.models.fields import DerivedField, Fields, FieldSpec, along, by_name
from simulator.physics.models.observables.budget import energy_transfer, weighted_square
from simulator.physics.models.observables.observable import Columns, Observable, Row
from simulator.physics.models.observables.resolution import scalar_resolution
from simulator.physics.models.passive_scalars import TransportedScalar
from simulator.spectral import Layout, Transform
from simulator.spectral.arrays import OfModes, PhysicalScalar, SpectralScalar
from simulator.spectral.operators import fluctuation, gradient, squared

if TYPE_CHECKING:
    from simulator.physics.models.navier_stokes import NavierStokes


class Scalars(Observable["NavierStokes"]):
    """For each passive scalar the mean, the variance <theta'^2> (without the mean), its dissipation
    2 D <|grad theta|^2>, and its production -2 <theta' u'> . G: d variance/dt = production -
    dissipation. For each scalar, buoyancy too, how well the grid resolves it, unless a closure cuts
    it off."""

    def columns(self, model: NavierStokes, fields: Fields, row: Row) -> Columns:
        columns: Columns = {}
        layout = model.transform.layout
        for s in model.scalars:
            theta = fields[s.name]
            k2 = layout.k_squared(theta.real.dtype)
            fluctuations = fluctuation(layout, theta)
            columns[f"{s.name}_mean"] = layout.at_zero(theta).real
            columns[f"{s.name}_variance"] = layout.inner(fluctuations, fluctuations)
            columns[f"{s.name}_dissipation"] = (
                2 * s.diffusivity * weighted_square(layout, k2, theta)
            )
            if any(s.mean_gradient):
                carried = along(s.mean_gradient, fields["velocity"])
                columns[f"{s.name}_production"] = -2 * layout.inner(fluctuations, carried)
        for s in model.transported if model.closure is None else ():
            columns |= scalar_resolution(layout, s, fields[s.name], row.before["enstrophy"])
        return columns

    def energies(self, model: NavierStokes, fields: Fields) -> dict[str, OfModes]:
        layout = model.transform.layout
        return {f"{s.name}_variance": variance_modes(layout, fields[s.name]) for s in model.scalars}

    def cospectra(self, model: NavierStokes, fields: Fields) -> dict[str, OfModes]:
        """Re theta* u_i of each mode but k = 0, as `NAME_flux_x`, ...; the sum over the modes is
        <theta' u_i'>."""
        layout = model.transform.layout
        fluxes = {}
        for s in model.transported:
            theta = fluctuation(layout, fields[s.name])
            for i, axis in enumerate(layout.grid.names.values()):
                fluxes[f"{s.name}_flux_{axis}"] = energy_transfer(theta, fields["velocity"][i])
        return fluxes

    def derived(self, model: NavierStokes) -> Mapping[str, DerivedField]:
        """For every scalar `NAME_gradient_magnitude`, |grad theta|, and `NAME_dissipation_rate`, 2 D
        |grad theta|^2, whose mean is the column `NAME_dissipation`."""
        derived = []
        for s in model.transported:
            derived += gradient_fields(model.transform, s)
        return by_name(*derived)


def scalar_injections(model: NavierStokes, fields: Fields, parts: Mapping[str, Fields]) -> Columns:
    """2 <theta' f'>, the rate at which the forces and terms `parts`, accelerations by field, add to
    the variance of each scalar that they act on; of several parts also that of each."""
    layout = model.transform.layout
    columns: Columns = {}
    for s in model.transported:
        fluctuations = fluctuation(layout, fields[s.name])
        gains = {
            f"{s.name}_power_{name}": 2 * layout.inner(fluctuations, forces[s.name])
            for name, forces in parts.items()
            if s.name in forces
        }
        if gains:
            columns[f"{s.name}_injection"] = sum(gains.values(), jnp.zeros(()))
        columns |= gains if len(gains) > 1 else {}
    return columns


def gradient_fields(transform: Transform, scalar: TransportedScalar) -> tuple[DerivedField, ...]:
    """|grad theta| and 2 D |grad theta|^2 of a scalar."""

    def squares(fields: Fields) -> PhysicalScalar:
        return squared(transform.inverse(gradient(transform.layout, fields[scalar.name])))

    def dissipation(fields: Fields) -> PhysicalScalar:
        return 2 * scalar.diffusivity * squares(fields)

    def magnitude(fields: Fields) -> PhysicalScalar:
        return jnp.sqrt(squares(fields))

    return (
        DerivedField(FieldSpec(f"{scalar.name}_gradient_magnitude"), magnitude),
        DerivedField(FieldSpec(f"{scalar.name}_dissipation_rate"), dissipation),
    )


def variance_modes(layout: Layout, field: SpectralScalar) -> OfModes:
    """|f|^2 of each mode except k = 0; their sum is the variance of a scalar."""
    return abs(fluctuation(layout, field)) ** 2
