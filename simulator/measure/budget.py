"""The energy budget over a time step or at one time."""

import jax.numpy as jnp

from simulator.physics.models import Equation, Fields, Force
from simulator.physics.models.observables.budget import Balance
from simulator.spectral.arrays import Number


def injection(model: Equation, fields: Fields, time: Number, force: Force | None) -> Number:
    """The energy that the forcing adds per time."""
    if force is None or model.budget is None:
        return jnp.float64(0)
    return model.budget.work(model.at(time), fields, force(fields, time))


def budget(model: Equation, fields: Fields, time: Number, force: Force | None) -> Balance:
    """The balance of the model with the forcing."""
    assert model.budget is not None
    balance = model.budget.balance(model.at(time), fields)
    return balance._replace(production=injection(model, fields, time, force) + balance.production)


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
