"""The number of steps of a run."""

from dataclasses import dataclass
from math import ceil, isfinite, log

import jax

from simulator.archive.stored_state import RunInputs
from simulator.config import RunConfig
from simulator.config.blocks import FftSettings
from simulator.errors import UserError
from simulator.simulation.abstract_run import paper_simulation
from simulator.simulation.advance import rate_of

# Points along the longest side of the grids on which the initial time step is computed.
COARSE = (16, 32)


@dataclass(frozen=True)
class StepCount:
    count: int | None  # None if it is unknown.
    source: str


def scaled(shape: tuple[int, ...], longest: int, least: int = 1) -> tuple[int, ...]:
    """A shape with the proportions of `shape`, `longest` points along its longest side and at least
    `least` along the other sides; an axis of one point keeps one point."""
    return tuple(max(min(least, n), round(longest * n / max(shape))) if n > 1 else 1 for n in shape)


def fixed_steps(config: RunConfig) -> StepCount:
    """The number of steps if the configuration determines it, else an unknown number."""
    time = config.time
    if time.steps is not None:
        return StepCount(
            _limited(config, time.steps), "of time.steps, and those that output divides"
        )
    if time.dt is None:
        unknown = "dt follows from the flow" if time.error is None else "dt follows from time.error"
        return StepCount(
            time.max_steps, "at most, by time.max_steps" if time.max_steps else unknown
        )
    return StepCount(
        _limited(config, ceil(round(time.stop / time.dt, 6))), f"of time.dt = {time.dt:g}"
    )


def estimated_steps(config: RunConfig) -> StepCount:
    """The number of steps; if dt follows from the CFL number, an estimate from the initial dt. The
    initial condition is built on grids of 16 and 32 points along the longest side, and the increase
    of 1/dt between these grids is extrapolated to the run's grid. A flow that speeds up takes more
    steps, a decaying flow fewer."""
    known = fixed_steps(config)
    time = config.time
    if any(choice is not None for choice in (time.dt, time.steps, time.error)):
        return known
    shape = config.grid.shape
    shapes = [scaled(shape, n, least=4) for n in COARSE if n < max(shape)]
    try:
        starts = [_start(config, s) for s in (shapes if len(shapes) == len(COARSE) else [shape])]
    except (UserError, OSError):
        return StepCount(
            config.time.max_steps,
            "the initial condition cannot be built on a coarse grid; give --steps",
        )
    rates = [rate for rate, _ in starts]
    first = starts[0][1]
    if not all(isfinite(r) for r in rates):
        return StepCount(config.time.max_steps, "the initial time step is unknown; give --steps")
    rate = rates[-1]
    if len(rates) > 1 and min(rates) > 0:
        coarse, fine = COARSE
        power = min(2.0, max(0.0, log(rates[1] / rates[0]) / log(fine / coarse)))
        rate *= (max(shape) / fine) ** power
    cfl = config.time.cfl or 0.5
    largest = config.time.max_dt
    dt = cfl / rate if rate else largest
    if dt is None:
        return StepCount(config.time.max_steps, "the initial state is at rest; give --steps")
    dt = min(dt, largest) if largest else dt
    return StepCount(
        _limited(config, ceil((config.time.stop - first) / dt)), f"of the initial dt = {dt:.3g}"
    )


def _limited(config: RunConfig, count: int) -> int:
    return count if config.time.max_steps is None else min(count, config.time.max_steps)


def _start(config: RunConfig, shape: tuple[int, ...]) -> tuple[float, float]:
    """The rate (1/time) of the initial state that limits dt, on a grid of this shape, and the time
    of this state."""
    config = config.changed(grid={"shape": shape}, run={"memory": "fast"})
    config = config.model_copy(update={"fft": FftSettings()})
    simulation = paper_simulation(config, RunInputs(), jax.local_devices(backend="cpu")[:1])
    # Optimizations take longer than the execution of a program that runs once on few points.
    name = "jax_disable_most_optimizations"
    before = jax.config.values[name]
    jax.config.update(name, True)
    try:
        state = simulation.state
        return float(jax.jit(lambda s: rate_of(simulation.model, s))(state)), float(state.time)
    finally:
        jax.config.update(name, before)
