"""The energy budget of an equation."""

from typing import NamedTuple

from simulator.physics.models.fields import Fields
from simulator.physics.models.observables.observable import Columns, Model, Observable
from simulator.spectral.arrays import Number


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
