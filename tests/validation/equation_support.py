"""Runs of the equations of configs/equations, and states of them from values on the grid."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from simulator import Simulation, load_config
from simulator.physics.models import State

EQUATIONS = Path(__file__).parents[2] / "configs" / "equations"


def simulation(name: str, *overrides: str) -> Simulation:
    usual = ("devices.platform=cpu", "devices.count=2")
    return Simulation(
        load_config(EQUATIONS / f"{name}.yaml", (*usual, *overrides)), report=lambda line: None
    )


def stepped(simulation: Simulation, steps: int, dt: float) -> State:
    """The state after so many steps of dt; the simulation goes on from there."""
    loop = jax.jit(lambda s: jax.lax.fori_loop(0, steps, lambda _, s: simulation.step(s, dt), s))
    simulation.state = loop(simulation.state)
    return simulation.state


def with_values(simulation: Simulation, values: dict[str, Any]) -> None:
    """Puts real or complex values on the grid, the same on every device, into the state."""
    transform = simulation.transform

    def coefficients(value: jax.Array) -> jax.Array:
        shape = (
            *value.shape[: value.ndim - len(transform.physical.seen_order)],
            *transform.physical.shape,
        )
        return transform.layout.constrain(
            transform.forward(transform.physical.constrain(value.reshape(shape)))
        )

    fields = jax.jit(lambda: {n: coefficients(jnp.asarray(v)) for n, v in values.items()})()
    model = simulation.model
    evolved = model.variables.evolved
    begun = jax.jit(lambda: simulation.begin(evolved(model, fields, fields.keys())))()
    simulation.state = simulation.placed(begun)
