"""The energy and variance that a closure moves to scales below the grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.physics.models.fields import Fields
from simulator.physics.models.observables.budget import energy_transfer
from simulator.physics.models.observables.observable import Columns, Observable, Row
from simulator.spectral.arrays import OfModes

if TYPE_CHECKING:
    from simulator.physics.models.navier_stokes import NavierStokes


class SubgridLosses(Observable["NavierStokes"]):
    """Kinetic energy, the variance of each scalar, and the energy of a magnetic field."""

    def columns(self, model: NavierStokes, fields: Fields, row: Row) -> Columns:
        return losses(model, fields)

    def transfers(self, model: NavierStokes, fields: Fields) -> dict[str, OfModes]:
        """`subgrid`, the energy that modes gain from scales below the grid, and `NAME_subgrid`, the
        variance of a scalar that they gain."""
        if model.closure is None:
            return {}
        gains = {}
        for name, rate in model.closure.tendencies(model, fields).items():
            column = "subgrid" if name == "velocity" else f"{name}_subgrid"
            gains[column] = _weight(model, name) * energy_transfer(fields[name], rate)
        return gains


def losses(model: NavierStokes, fields: Fields) -> Columns:
    """The rates, by column, at which the closure moves energy and variance to scales below the
    grid; none without a closure."""
    if model.closure is None:
        return {}
    inner = model.transform.layout.inner
    return {
        loss_column(name): -_weight(model, name) * inner(fields[name], rate).sum()
        for name, rate in model.closure.tendencies(model, fields).items()
    }


def loss_column(name: str) -> str:
    """The column of the loss of a field."""
    return "subgrid_dissipation" if name == "velocity" else f"{name}_subgrid_dissipation"


def _weight(model: NavierStokes, name: str) -> float:
    """1 for f^2 / 2 of a field, 2 for the variance of a scalar."""
    return 2.0 if name in {scalar.name for scalar in model.transported} else 1.0
