"""The energy budget of one step."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from simulator.models.model import Budgeted, Fields, Force

RESIDUAL = "budget_residual"
"""Where the state's memory keeps it."""


class Budget(NamedTuple):
    """Energy, and what it gains and loses per time, at one moment."""

    energy: jax.Array
    gained: jax.Array
    dissipation: jax.Array


def closes(model: object) -> bool:
    """Whether the model's budget can be told in every step."""
    return isinstance(model, Budgeted) and model.closes


def injection(model: Budgeted, fields: Fields, time: jax.Array, force: Force | None) -> jax.Array:
    """What the forcing adds to the energy per time."""
    return jnp.float64(0) if force is None else model.work(fields, force(fields, time))


def budget(model: Budgeted, fields: Fields, time: jax.Array, force: Force | None) -> Budget:
    found = model.balance(fields)
    return Budget(found.energy, injection(model, fields, time, force) + found.production, found.dissipation)


def residual(before: Budget, after: Budget, dt: jax.Array) -> jax.Array:
    """(E(t + dt) - E(t)) / dt minus the mean of gain - dissipation at both ends, over the mean dissipation.

    Without dissipation it is not divided.
    """
    change = (after.energy.astype(jnp.float64) - before.energy) / dt
    gained = (before.gained + after.gained) / 2
    lost = (before.dissipation + after.dissipation).astype(jnp.float64) / 2
    error = change - gained + lost
    return jnp.where(lost > 0, error / jnp.where(lost > 0, lost, 1), error)
