"""The energy budget over a time step or at one time."""

from collections.abc import Mapping

import jax.numpy as jnp

from simulator.physics.models import Equation, Fields, Force
from simulator.physics.models.observables.budget import Balance
from simulator.spectral.arrays import Number


def powers(model: Equation, fields: Fields, forces: Mapping[str, Fields]) -> dict[str, Number]:
    """The energy that each of the `forces`, accelerations by field, adds per time; empty if the
    model states no energy."""
    if model.budget is None:
        return {}
    return {name: model.budget.work(model, fields, force) for name, force in forces.items()}


def budget(model: Equation, fields: Fields, time: Number, force: Force | None) -> Balance:
    """The balance of the model with the forcing."""
    model = model.at(time)
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
