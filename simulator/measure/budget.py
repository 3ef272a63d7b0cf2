"""The energy budget over a time step or at one time."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from simulator.physics.models import Fields, Force, Model
from simulator.physics.models.model import Balance
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
    """(E(t + dt) - E(t)) / dt minus the mean of gain - dissipation over both ends of the step, divided by the mean
    dissipation; undivided if the dissipation is 0."""
    change = (after.energy.astype(jnp.float64) - before.energy) / dt
    return _relative(change, (before.gained + after.gained) / 2, (before.dissipation + after.dissipation) / 2)


def residual_now(model: Model, fields: Fields, time: Number, force: Force | None) -> Number:
    """dE/dt of the equations on this grid minus gain plus dissipation, divided by the dissipation: the error of the
    truncation of modes, without the error of the time integration."""
    accelerations = None if force is None else force(fields, time)
    rates, linear = model.tendency(fields, time, accelerations)[0], model.linear_terms()
    rates = {n: rate + linear[n] * fields[n] for n, rate in rates.items()}

    def energy(f: Fields) -> tuple[jax.Array, Balance]:
        return (balance := model.balance(f)).energy, balance

    _, change, balance = jax.jvp(energy, (fields,), (rates,), has_aux=True)
    gained = injection(model, fields, time, force) + balance.production
    return _relative(change.astype(jnp.float64), gained, balance.dissipation)


def _relative(change: jax.Array, gained: jax.Array, dissipation: jax.Array) -> jax.Array:
    lost = dissipation.astype(jnp.float64)
    error = change - gained + lost
    return jnp.where(lost > 0, error / jnp.where(lost > 0, lost, 1), error)
