"""The energy budget of an equation."""

from typing import NamedTuple

import jax

from simulator.physics.models.fields import Fields
from simulator.physics.models.observables.observable import Columns, Model, Observable
from simulator.physics.models.outputs import diagnostics
from simulator.physics.models.tendency import linear_terms, tendency
from simulator.spectral.arrays import Number


class Balance(NamedTuple):
    """An energy and its sources without forcing: d energy / dt = production - dissipation."""

    energy: Number
    production: Number | float
    dissipation: Number


class Budget(Observable[Model]):
    """The energy budget of an equation."""

    def momentary(self, model: Model) -> bool:
        """Whether the budget is evaluated only for rows of output. Otherwise it is evaluated in
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
    ) -> tuple[Columns, Number, Balance]:
        """For a `momentary` budget the columns of diagnostics; dE/dt of the equations on this grid,
        with the accelerations of a forcing; and the `balance`."""
        rates = tendency(model, fields, time, accelerations)[0]
        linear = linear_terms(model)
        rates = {n: rate + linear[n] * fields[n] for n, rate in rates.items()}

        def energy(fields: Fields) -> tuple[jax.Array, Balance]:
            balance = self.balance(model, fields)
            return balance.energy, balance

        _, change, balance = jax.jvp(energy, (fields,), (rates,), has_aux=True)
        return diagnostics(model, fields, time), change, balance
