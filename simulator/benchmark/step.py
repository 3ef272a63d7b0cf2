"""What a step of a configuration costs: time, and what of it; memory; what is sent; compilation.

A step and the parts of its transforms by themselves are timed in turn, so that a busy moment of the machine meets
all alike; medians are compared.
"""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from simulator.benchmark.anatomy import Anatomy, anatomy, exchange_alone, part_alone
from simulator.errors import RunFailure
from simulator.run.memory import Memory, compiled_loop, words
from simulator.run.simulation import Simulation
from simulator.spectral.bench import timed
from simulator.spectral.collectives import Collective, collectives
from simulator.stepping import Until

ROUND = 0.2
"""Seconds that a round of steps takes at least."""


@dataclass(frozen=True)
class StepCosts:
    """Of one step; times in seconds, memory of one device in words of the run's precision for each of its grid
    points."""

    step: float
    fastest: float
    slowest: float
    transforms: float
    """Of the step's transforms by themselves, without what they exchange."""
    communication: float | None
    """Of their exchanges by themselves; None where the backend does not say what it exchanges."""
    diagnostics: float
    """Of a row of `diagnostics.csv`."""
    resident: float
    """The state."""
    temporary: float
    memory_bytes: int
    """Of one device, all together."""
    collectives: dict[str, Collective]
    """Kind to number and bytes that one device sends; a loop within a step counts once."""
    compile_cold: float
    compile_cached: float
    """Tracing and compilation of the loop over steps, without and with what an earlier run has kept."""
    points_per_second: float
    """Grid points of one device."""
    rounds: list[float] = field(repr=False)

    @property
    def rest(self) -> float:
        """Whatever is not a transform: products at the points, registers, sums."""
        return max(self.step - self.transforms - (self.communication or 0.0), 0.0)


class _Steps:
    """Rounds of steps of a simulation."""

    def __init__(self, simulation: Simulation, compiled: Any):
        self._simulation, self._compiled = simulation, compiled
        self.steps = 1

    def round(self) -> float:
        """Seconds for a step."""
        before = int(self._simulation.state.step)
        until = Until(np.float64(np.inf), np.float64(np.inf), np.int64(self.steps))
        began = perf_counter()
        state = jax.block_until_ready(self._compiled(self._simulation.state, until))
        seconds = perf_counter() - began
        self._simulation.state = state
        if int(state.step) < before + self.steps:
            what, _ = self._simulation.trouble()
            raise RunFailure(f"step {before}: {what}; measure another configuration, or a smaller time step")
        return seconds / self.steps


class _Diagnostics:
    """Rounds of what a row of `diagnostics.csv` costs."""

    def __init__(self, simulation: Simulation):
        self._simulation = simulation

    def round(self) -> float:
        """Seconds for a row, without its writing."""
        began = perf_counter()
        self._simulation.nonfinite()
        jax.device_get(self._simulation.diagnostics(self._simulation.state))
        return perf_counter() - began


class _Calls:
    """Rounds of as many calls of a function of arrays as some steps make, in a loop on the device as there."""

    def __init__(self, function: Callable[..., Any], arguments: Sequence[jax.ShapeDtypeStruct], times: int):
        def loop(*arrays):
            def again(_, carry):
                # One number ties each call to the one before: what does not change in a loop is taken out of it.
                (first, *others), result = carry
                number = jax.tree.leaves(result)[0].reshape(-1)[0]
                tied = first.at[(0,) * first.ndim].add((0 * number.real).astype(first.dtype))
                return (tied, *others), function(tied, *others)

            return lax.fori_loop(0, times, again, (arrays, function(*arrays)))[1]

        loop.__name__ = f"{function.__name__}_{times}"
        self._compiled = jax.jit(loop).lower(*arguments).compile()
        make = jax.jit(
            lambda: [jnp.full(a.shape, 1e-3, a.dtype) for a in arguments],
            out_shardings=[a.sharding for a in arguments],
        )
        self._arguments, self._times = make(), times + 1

    def round(self) -> float:
        """Seconds for a call."""
        began = perf_counter()
        jax.block_until_ready(self._compiled(*self._arguments))
        return (perf_counter() - began) / self._times


def measure_step(simulation: Simulation, compiled: Any, seconds: float = 10.0) -> StepCosts:
    """Measures for about `seconds`; `compiled` is the simulation's `compiled_loop`. Called by every process."""
    cluster = simulation.cluster
    # Compiled under a name of its own it is in no cache yet; the second time it is.
    name = cluster.broadcast(f"{simulation.advance.__name__}_{os.getpid()}_{os.urandom(4).hex()}")
    cold, cached = (_seconds(lambda: _recompiled(simulation, name)) for _ in range(2))
    found = anatomy(simulation.step, simulation.placed_template, np.float64(1e-3))
    steps = _Steps(simulation, compiled)
    steps.round()
    steps.steps = cluster.broadcast(max(1, round(ROUND / steps.round())))
    row = _Diagnostics(simulation)
    rounds, rows, parts, exchanges = _timed(steps, row, found, seconds, cluster.broadcast)
    step, points, devices = median(rounds), simulation.grid.points, len(cluster.devices)
    known = exchanges > 0 or not any(c.bytes for k, c in collectives(compiled).items() if k == "all-to-all")
    memory = Memory.of(compiled)

    def in_words(count: int) -> float:
        return words(count, simulation.config, points, devices)

    return StepCosts(
        step=step,
        fastest=min(rounds),
        slowest=max(rounds),
        transforms=max(parts - exchanges, 0.0),
        communication=exchanges if known else None,
        diagnostics=rows,
        resident=in_words(memory.resident),
        temporary=in_words(memory.temporary),
        memory_bytes=memory.total,
        collectives={k: c for k, c in collectives(compiled).items() if c.count},
        compile_cold=cold,
        compile_cached=cached,
        points_per_second=points / devices / step,
        rounds=rounds,
    )


def _recompiled(simulation: Simulation, name: str) -> None:
    jax.clear_caches()  # of traced functions: they are part of what a start has to do
    compiled_loop(simulation, name)


def _seconds(call: Callable[[], Any]) -> float:
    began = perf_counter()
    call()
    return perf_counter() - began


def _timed(
    steps: _Steps, row: _Diagnostics, found: Anatomy, seconds: float, agree: Callable[[Any], Any]
) -> tuple[list[float], float, float, float]:
    """Rounds of the step; median times of a row of diagnostics, of a step's transforms, of their exchanges."""

    def calls(alone: Callable[..., Any], counts: Counter[Any]) -> list[tuple[_Calls, int]]:
        return [(_Calls(*alone(what), times=n * steps.steps), n) for what, n in counts.items()]

    parts, exchanges = calls(part_alone, found.parts), calls(exchange_alone, found.exchanges)
    rounds = timed([steps, row, *(call for call, _ in parts + exchanges)], seconds, agree)

    def total(some: list[tuple[_Calls, int]], first: int) -> float:
        times = rounds[first : first + len(some)]
        return sum(median(r) * count for r, (_, count) in zip(times, some, strict=True))

    return rounds[0], median(rounds[1]), total(parts, 2), total(exchanges, 2 + len(parts))
