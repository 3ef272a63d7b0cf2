"""Observables of a stratified flow: potential energy, buoyancy flux, waves, and numbers that
describe mixing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax.numpy as jnp

from simulator.physics.models.damping import absent
from simulator.physics.models.fields import Fields, along, directed
from simulator.physics.models.observables.budget import Balance, energy_transfer, weighted_square
from simulator.physics.models.observables.energy import (
    AdvectiveTransfers,
    EnergyBudget,
)
from simulator.physics.models.observables.observable import Columns, Observable, Row
from simulator.physics.models.observables.resolution import ratio
from simulator.physics.models.observables.scalars import variance_modes
from simulator.physics.models.observables.waves import energy_parts
from simulator.spectral.arrays import Number, OfModes

if TYPE_CHECKING:
    from simulator.physics.models.boussinesq import Boussinesq


class StratifiedBudget(EnergyBudget["Boussinesq"]):
    """Kinetic plus potential energy; the kinetic energy alone if N^2 is not positive, which
    buoyancy produces."""

    def balance(self, model: Boussinesq, fields: Fields) -> Balance:
        balance = super().balance(model, fields)
        if model.stable:
            return balance
        lifted = buoyancy_flux(model, fields)
        return balance._replace(production=lifted + balance.production if model.sheared else lifted)


class Stratification(Observable["Boussinesq"]):
    """Energy and variance of the buoyancy, and for stable stratification the numbers that describe
    it (Davidson 2013, section 4.3)."""

    def columns(self, model: Boussinesq, fields: Fields, row: Row) -> Columns:
        layout = model.transform.layout
        b = fields["buoyancy"]
        diffused = 2 * weighted_square(layout, -model.linear()["buoyancy"], b)
        columns: Columns = {}
        if model.stable:
            columns["potential_energy"] = row.before["energy"] - row.before["kinetic_energy"]
        columns |= {
            "buoyancy_flux": buoyancy_flux(model, fields),
            "buoyancy_mean": layout.at_zero(b).real,
            "buoyancy_variance": layout.sum(variance_modes(layout, b)),
            "buoyancy_dissipation": diffused,
        }
        return {**columns, **_numbers(model, row.before, diffused)} if model.stable else columns

    def energies(self, model: Boussinesq, fields: Fields) -> dict[str, OfModes]:
        """The potential energy if N^2 > 0, else `buoyancy_variance`."""
        b = fields["buoyancy"]
        if not model.stable:
            return {"buoyancy_variance": variance_modes(model.transform.layout, b)}
        return {"potential_energy": 0.5 * abs(b) ** 2 / model.stratification}

    def cospectra(self, model: Boussinesq, fields: Fields) -> dict[str, OfModes]:
        """The energy of waves and of the rest, if stratification is stable."""
        if not model.stable:
            return {}
        frequency = model.stratification**0.5
        u = fields["velocity"]
        theta = fields["buoyancy"] / frequency
        layout = model.transform.layout
        return energy_parts(layout, u, theta, model.rotation, frequency, model.up)


class StratifiedTransfers(AdvectiveTransfers["Boussinesq"]):
    """Transfers by advection, and `buoyancy_flux`, the energy that buoyancy adds to modes of the
    velocity."""

    def transfers(self, model: Boussinesq, fields: Fields) -> dict[str, OfModes]:
        transfers = super().transfers(model, fields)
        if model.stable:
            variance = transfers.pop("buoyancy_variance")
            transfers["potential_energy"] = 0.5 * variance / model.stratification
        flux = energy_transfer(fields["velocity"], directed(model.up, fields["buoyancy"]))
        return {**transfers, "buoyancy_flux": flux}


def buoyancy_flux(model: Boussinesq, fields: Fields) -> Number:
    """<b u . e>: the rate at which buoyancy adds kinetic energy."""
    rising = along(model.up, fields["velocity"])
    return model.transform.layout.inner(fields["buoyancy"], rising)


def _numbers(model: Boussinesq, row: Mapping[str, Number], diffused: Number) -> Columns:
    """`diffused`: the loss of variance of b by diffusion."""
    square = model.stratification
    viscous = row["viscous_dissipation"]
    mixing = 0.5 * diffused / square
    numbers = {
        "froude": ratio(row["u_rms"], jnp.sqrt(square) * row["integral_scale"]),
        "ozmidov_scale": jnp.sqrt(viscous / square**1.5),
        "mixing_efficiency": ratio(mixing, mixing + viscous),
    }
    if not absent(model.viscosity):
        numbers["buoyancy_reynolds"] = viscous / (model.viscosity * square)
    return numbers
