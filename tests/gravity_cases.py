"""Simulations that the tests of gravity share: small, on one device or several, without files of a run."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import jax
import numpy as np

from simulator import Simulation, load_config
from simulator.cluster import discover
from simulator.cluster.start import Cluster
from simulator.physics.models import State

WAVE = """\
model: {kind: schrodinger_poisson}
grid: {shape: [8, 8, 8]}
initial: {kind: uniform}
time: {stop: 1.0, dt: 0.01}
"""
GAS = """\
model: {kind: self_gravitating_gas, sound_speed: 1.0}
grid: {shape: [16, 16, 16]}
initial: {kind: uniform}
time: {stop: 1.0, dt: 0.01}
"""


@cache
def folder() -> Path:
    return Path(mkdtemp(prefix="gravity"))


def simulation(text: str, *overrides: str, devices: int = 1, python: str | None = None) -> Simulation:
    """The simulation of a configuration, on the first `devices` of the test's virtual devices.

    `python` is the source of a function `build(x, y, z)` that gives the initial fields.
    """
    path = folder() / "run.yaml"
    path.write_text(text)
    if python is not None:
        source = folder() / f"fields_{abs(hash(python))}.py"
        source.write_text("import jax.numpy as jnp\n\ndef build(x, y, z):\n    return " + python + "\n")
        overrides = (*overrides, "initial.kind=python", f"initial.path={source}", "initial.function=build")
    config = load_config(path, overrides)
    return Simulation(config, cluster=on_devices(devices))


def on_devices(count: int) -> Cluster:
    return Cluster(discover({}), "cpu", tuple(jax.devices()[:count]))


def marching(run: Simulation) -> Callable[[State, float, int], State]:
    """(state, duration, steps) to the state after equal steps, compiled once."""

    @jax.jit
    def march(state: State, dt, steps) -> State:
        return jax.lax.fori_loop(0, steps, lambda i, s: run.step(s, dt), state)

    return lambda state, duration, steps: march(state, duration / steps, steps)


def stepped(run: Simulation, state: State, duration: float, steps: int) -> State:
    """The state after equal steps, in one compiled loop."""

    @jax.jit
    def loop(state: State) -> State:
        return jax.lax.fori_loop(0, steps, lambda i, s: run.step(s, duration / steps), state)

    return loop(state)


def coefficient(run: Simulation, field: jax.Array, mode: Sequence[int]) -> complex:
    """One coefficient of a spectral field of a simulation."""
    layout = run.transform.layout
    here: Any = True
    for axis, number in zip("xyz", mode, strict=True):
        here = here & (np.asarray(layout.integers(axis)) == number)
    return complex(np.asarray(field)[np.broadcast_to(here, field.shape)].item())


def measured(run: Simulation, state: State | None = None) -> dict[str, float]:
    return {k: float(v) for k, v in run.diagnostics(run.state if state is None else state).items()}
