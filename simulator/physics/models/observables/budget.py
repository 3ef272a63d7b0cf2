"""The energy budget of an equation, at one time and over a step, and energies of modes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp

from simulator.physics.models.fields import Fields
from simulator.physics.models.observables.observable import Columns, Model, Observable
from simulator.physics.models.state import Force
from simulator.spectral import Layout
from simulator.spectral.arrays import Number, OfModes, OverModes, SpectralField
from simulator.spectral.operators import dot

if TYPE_CHECKING:
    from simulator.physics.models.equation import Equation


class Balance(NamedTuple):
    """An energy and its sources without forcing: d energy / dt = production - dissipation."""

    energy: Number
    production: Number | float
    dissipation: Number


class BudgetRow(NamedTuple):
    """A row of output with a budget at one time."""

    columns: Columns
    """The columns of diagnostics."""
    change: Number
    """d energy / dt of the equations on this grid, with the accelerations of a forcing."""
    balance: Balance


class Budget(Observable[Model]):
    """The energy budget of an equation."""

    def momentary(self, model: Model) -> bool:
        """Whether the budget is evaluated only for rows of output, as always with terms. Otherwise it is evaluated in
        every step, which needs a budget of spectral fields only."""
        return False

    def balance(self, model: Model, fields: Fields) -> Balance:
        """The energy and its sources."""
        raise TypeError(f"{type(self).__name__} does not define balance")

    def work(self, model: Model, fields: Fields, forces: Fields) -> Number:
        """The energy per time that the accelerations of a force add."""
        raise TypeError(f"{type(self).__name__} does not define work")

    def row(
        self, model: Model, fields: Fields, time: Number, accelerations: Fields | None
    ) -> BudgetRow | None:
        """The row of a `momentary` budget that shares evaluations; None for `outputs.budget_row`."""
        return None


def powers(model: Equation, fields: Fields, forces: Mapping[str, Fields]) -> dict[str, Number]:
    """The energy that each of the `forces`, accelerations by field, adds per time; empty if the
    model states no energy."""
    if model.budget is None:
        return {}
    return {name: model.budget.work(model, fields, force) for name, force in forces.items()}


def budget(model: Equation, fields: Fields, time: Number, force: Force | None) -> Balance:
    """The balance of the model with the forcing."""
    assert model.budget is not None
    balance = model.budget.balance(model, fields)
    if force is None:
        return balance
    work = model.budget.work(model, fields, force(fields, time))
    return balance._replace(production=work + balance.production)


def residual(before: Balance, after: Balance, dt: Number) -> Number:
    """The `imbalance` of a step, with the mean of gain and of dissipation over both ends of the
    step."""
    change = (after.energy.astype(jnp.float64) - before.energy) / dt
    return imbalance(
        change,
        (before.production + after.production) / 2,
        (before.dissipation + after.dissipation) / 2,
    )


def imbalance(change: Number, gained: Number | float, dissipation: Number) -> Number:
    """dE/dt minus gain plus dissipation, divided by the dissipation; undivided if the dissipation
    is 0. With dE/dt of the equations on this grid it is the error of the truncation of modes,
    without that of the time integration."""
    lost = dissipation.astype(jnp.float64)
    error = change.astype(jnp.float64) - gained + lost
    return jnp.where(lost > 0, error / jnp.where(lost > 0, lost, 1), error)


def weighted_square(layout: Layout, rate: OverModes | float, field: SpectralField) -> Number:
    """Box mean of (rate f) . f for a damping rate (1/time) of each mode: twice the energy that is
    lost per time."""
    squares = field.real**2 + field.imag**2
    # Components are added first, so that a common factor is not broadcast to them.
    flat = squares.reshape(-1, *squares.shape[-3:])
    return layout.sum(rate * sum(flat[1:], start=flat[0]))


def energy_transfer(field: SpectralField, rate: SpectralField) -> OfModes:
    """Re f* . r of each mode, summed over components: the rate at which the tendency r adds to
    |f|^2 / 2."""
    if field.ndim > 3:
        return dot(field.real, rate.real) + dot(field.imag, rate.imag)
    return field.real * rate.real + field.imag * rate.imag
