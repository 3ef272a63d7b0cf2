"""A validation case, whose computed numbers are compared with a source, and the steps that cases
share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from simulator import Simulation
from simulator.config import run_config_class
from simulator.physics.models import State


@dataclass(frozen=True)
class Check:
    """One number, which passes if |measured - expected| <= allowed; relative to the expected value
    unless `absolute`."""

    quantity: str
    expected: float
    measured: float
    allowed: float
    source: str
    absolute: bool = False

    @property
    def error(self) -> float:
        """Absolute, or relative to the expected value."""
        difference = abs(self.measured - self.expected)
        return difference if self.absolute else difference / abs(self.expected)

    @property
    def passed(self) -> bool:
        return bool(np.isfinite(self.measured) and self.error <= self.allowed)


@dataclass(frozen=True)
class Curve:
    """A measured curve, and points of a reference."""

    name: str
    x: np.ndarray
    y: np.ndarray
    reference_x: np.ndarray
    reference_y: np.ndarray
    labels: tuple[str, str]
    source: str


@dataclass(frozen=True)
class Result:
    checks: Sequence[Check]
    curves: Sequence[Curve] = ()


@dataclass(frozen=True)
class Case:
    name: str
    what: str
    """A description in one line."""
    run: Callable[[], Result]
    full: bool = False
    """Whether only `--full` runs it, because it needs a GPU or a night."""
    part: str = ""
    """A model or a term of another plugin, without which the case is left out."""
    alone: bool = False
    """A case on one device, and so in one process."""


def simulation(
    model: dict[str, Any], initial: dict[str, Any], shape: Sequence[int], **blocks: Any
) -> Simulation:
    """A simulation on all available devices, without a run folder."""
    grid = {"shape": list(shape), **blocks.pop("grid", {})}
    config = {"model": model, "initial": initial, "grid": grid, "time": {"stop": 1.0}, **blocks}
    return Simulation(run_config_class().model_validate(config))


def march(
    simulation: Simulation, dt: float, steps: int, every: int = 0
) -> tuple[State, dict[str, np.ndarray]]:
    """The state after `steps` steps, and the diagnostics by name at the first, the last and every
    `every`-th step."""
    step = jax.jit(simulation.step)
    state = simulation.state
    rows = []
    for number in range(steps + 1):
        if number in (0, steps) or (every and number % every == 0):
            row = jax.device_get(simulation.diagnostics(state))
            rows.append({"time": float(state.time), **{name: float(v) for name, v in row.items()}})
        if number < steps:
            state = step(state, dt)
    return state, {name: np.array([row[name] for row in rows]) for name in rows[0]}


def followed(
    simulation: Simulation,
    dt: float,
    steps: int,
    measure: Callable[..., jax.Array],
    *arrays: jax.Array,
) -> tuple[np.ndarray, Any]:
    """The times of the initial state and of all steps, and the values of `measure(state, *arrays)`
    at these times."""
    step = jax.jit(simulation.step)
    measure = jax.jit(measure)
    state = simulation.state
    values = []
    for number in range(steps + 1):
        values.append(complex(measure(state, *arrays)))
        if number < steps:
            state = step(state, dt)
    return dt * np.arange(steps + 1), np.array(values)


def with_fields(simulation: Simulation, **fields: jax.Array) -> State:
    """The initial state with the given fields replaced."""
    state = simulation.state
    kind = next(iter(state.fields.values())).dtype
    hold = simulation.transform.layout.constrain
    held = {n: hold(f.astype(kind)) for n, f in fields.items()}
    return replace(state, fields={**state.fields, **held})
