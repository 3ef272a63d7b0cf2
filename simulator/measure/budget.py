"""The energy budget over a time step or at one time."""

from typing import NamedTuple

import jax.numpy as jnp

from simulator.physics.models import Fields, Force, Model
from simulator.spectral.arrays import Number

RESIDUAL = "budget_residual"  # The name of the residual in the state's memory and in the diagnostics.


class Budget(NamedTuple):
    """The energy and its rates of gain and loss at one time."""

    energy: Number
    gained: Number
    dissipation: Number


def injection(model: Model, fields: Fields, time: Number, force: Force | None) -> Number:
    """The energy that the forcing adds per time."""
    return jnp.float64(0) if force is None else model.work(fields, force(fields, time))


def budget(model: Model, fields: Fields, time: Number, force: Force | None) -> Budget:
    balance = model.balance(fields)
    gained = injection(model, fields, time, force) + balance.production
    return Budget(balance.energy, gained, balance.dissipation)


def residual(before: Budget, after: Budget, dt: Number) -> Number:
    """The `imbalance` of a step, with the mean of gain and of dissipation over both ends of the step."""
    change = (after.energy.astype(jnp.float64) - before.energy) / dt
    return imbalance(change, (before.gained + after.gained) / 2, (before.dissipation + after.dissipation) / 2)


def imbalance(change: Number, gained: Number, dissipation: Number) -> Number:
    """dE/dt minus gain plus dissipation, divided by the dissipation; undivided if the dissipation is 0. With dE/dt of
    the equations on this grid it is the error of the truncation of modes, without that of the time integration."""
    lost = dissipation.astype(jnp.float64)
    error = change.astype(jnp.float64) - gained + lost
    return jnp.where(lost > 0, error / jnp.where(lost > 0, lost, 1), error)
