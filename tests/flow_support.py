"""Flows in double precision on one device, marched with a fixed dt: what the validation tests
share."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from plugin_parts import need_plugins_of

from simulator import Simulation
from simulator.config import run_config_class
from simulator.physics.models import State

EPSILON = float(np.finfo(np.float64).eps)


def flow(
    *shape: int, initial: dict[str, Any], viscosity: float = 0.0, count: int = 1, **blocks: Any
) -> Simulation:
    """The simulation of a flow on `count` devices; `blocks` are further blocks of a
    configuration. Skips the rest of a test where a plugin is absent."""
    need_plugins_of(blocks)
    grid = {"shape": list(shape), **blocks.pop("grid", {})}
    config = run_config_class().model_validate(
        {
            "model": blocks.pop("model", {"kind": "navier_stokes", "viscosity": viscosity}),
            "initial": initial,
            "grid": grid,
            "time": {"stop": 1.0},
            "devices": {"platform": "cpu", "count": count},
            **blocks,
        }
    )
    return Simulation(config)


def marched(simulation: Simulation, dt: float, steps: int) -> Iterator[State]:
    """The states of `steps` steps from the initial one on, which comes first."""
    step = compiled_step(simulation)
    state = simulation.state
    yield state
    for _ in range(steps):
        state = step(state, dt)
        yield state


def last(states: Iterator[State]) -> State:
    """The last of them."""
    *_, state = states
    return state


def compiled_step(simulation: Simulation) -> Callable[[State, float], State]:
    """`simulation.step`, compiled once for each simulation."""
    if not hasattr(simulation, "_compiled_step"):
        simulation._compiled_step = jax.jit(simulation.step)
    return simulation._compiled_step


def measured(simulation: Simulation, state: State | None = None) -> dict[str, float]:
    """The row of diagnostics.csv for a state, by default that of the simulation."""
    row = simulation.diagnostics(simulation.state if state is None else state)
    return {name: float(value) for name, value in row.items()}


def assert_slopes(gradient: Any, numbers: dict[str, float], h: float) -> None:
    """The slopes by numbers are those of central differences with the step `h`."""
    _, slopes = gradient(numbers)
    for key, value in numbers.items():
        ahead, behind = (float(gradient.value({**numbers, key: value + s})) for s in (h, -h))
        assert float(slopes[key]) == pytest.approx((ahead - behind) / (2 * h), rel=1e-6), key


def values(simulation: Simulation, state: State) -> np.ndarray:
    """The velocity on the grid (3, x, y, z)."""
    nx, ny, nz = simulation.grid.shape
    return np.asarray(simulation.field_program("velocity")(state))[..., :nx, :ny, :nz]


def order(errors: list[float]) -> list[float]:
    """Measured orders of convergence from errors whose dt halves from one to the next."""
    return [float(np.log2(coarse / fine)) for coarse, fine in pairwise(errors)]


def python_flow(folder: Path, body: str, **parameters: Any) -> dict[str, Any]:
    """The settings of an initial condition given by a function `build` with this body."""
    path = folder / "flow.py"
    names = ", ".join(["x", "y", "z", *parameters])
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    path.write_text(f"import jax.numpy as jnp\n\n\ndef build({names}):\n{lines}")
    return {"kind": "python", "path": str(path), "function": "build", "parameters": parameters}
