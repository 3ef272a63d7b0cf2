"""Energy of incompressible flows: its budget, its spectra and its transfers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import jax.numpy as jnp

from simulator.physics.models.damping import Drag, damping_rate, diffusive_terms
from simulator.physics.models.fields import Fields, products_of
from simulator.physics.models.observables.budget import (
    Balance,
    Budget,
    energy_transfer,
    weighted_square,
)
from simulator.physics.models.observables.observable import Columns, Observable, Row
from simulator.physics.models.observables.subgrid import loss_column, losses
from simulator.physics.models.shear import production
from simulator.physics.models.tendency import linear_terms
from simulator.spectral.arrays import Number, OfModes
from simulator.spectral.operators import squared

if TYPE_CHECKING:
    from simulator.physics.models.navier_stokes import NavierStokes

AnyFlow = TypeVar("AnyFlow", bound="NavierStokes")


class EnergyBudget(Budget[AnyFlow]):
    """The sum of w <f . f> / 2 over some evolved fields f, the `energy_weights` of a flow: kinetic
    energy with w = 1. Nonlinear terms conserve it."""

    def momentary(self, model: AnyFlow) -> bool:
        # The loss to a stress takes a nonlinear term.
        return model.closure is not None and not model.closure.modal

    def balance(self, model: AnyFlow, fields: Fields) -> Balance:
        layout = model.transform.layout
        weights = model.energy_weights
        linear = linear_terms(model)
        energy: Number | float = 0
        lost: Number | float = 0
        for name, weight in weights.items():
            energy = energy + 0.5 * weight * weighted_square(layout, 1.0, fields[name])
        for name, weight in weights.items():
            lost = lost + weight * weighted_square(layout, -linear[name], fields[name])
        if model.closure is not None:
            subgrid = losses(model, fields)
            variances = {scalar.name for scalar in model.transported}
            for name, weight in weights.items():
                lost += weight / (2 if name in variances else 1) * subgrid[loss_column(name)]
        produced = 0.0 if model.sheared is None else production(model, fields)
        return Balance(jnp.asarray(energy), produced, jnp.asarray(lost))

    def work(self, model: AnyFlow, fields: Fields, forces: Fields) -> Number:
        inner = model.transform.layout.inner
        weights = {n: w for n, w in model.energy_weights.items() if n in forces}
        return jnp.asarray(sum(w * inner(fields[n], forces[n]).sum() for n, w in weights.items()))

    def columns(self, model: AnyFlow, fields: Fields, row: Row) -> Columns:
        layout = model.transform.layout
        velocity = fields["velocity"]
        balance = self.balance(model, fields)
        terms = diffusive_terms(model.viscosity, model.hyperviscosity)
        viscous = damping_rate(layout, terms, velocity.real.dtype)
        columns = {
            "energy": balance.energy,
            "kinetic_energy": 0.5 * weighted_square(layout, 1.0, velocity),
            "dissipation": balance.dissipation,
            "viscous_dissipation": weighted_square(layout, viscous, velocity),
        }
        for damping in model.damps:
            if isinstance(damping, Drag):
                columns["drag_dissipation"] = weighted_square(
                    layout, damping.rate(model.transform), velocity
                )
        return columns

    def energies(self, model: AnyFlow, fields: Fields) -> dict[str, OfModes]:
        return {"kinetic_energy": 0.5 * squared(fields["velocity"])}


class AdvectiveTransfers(Observable[AnyFlow]):
    """The kinetic energy, and the variance of each scalar, that modes receive by advection."""

    def transfers(self, model: AnyFlow, fields: Fields) -> dict[str, OfModes]:
        products = products_of(model.transform, model.inputs(fields), model.products)
        advection = model.momentum.force(model.transform.layout, products)
        kinetic = energy_transfer(fields["velocity"], advection)
        return {"kinetic_energy": kinetic, **scalar_transfers(model, products, fields)}


def scalar_transfers(model: NavierStokes, products: Fields, fields: Fields) -> dict[str, OfModes]:
    """The rate at which advection adds to the variance of each mode, as `NAME_variance`."""
    mixing = {s.name: -model.divergence(products[s.name]) for s in model.transported}
    return {f"{name}_variance": 2 * energy_transfer(fields[name], r) for name, r in mixing.items()}
