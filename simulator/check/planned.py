"""Compares the planned duration of steps with the measured one, on this machine's processors.

Calibrations of the machine and steps are timed in turns, and the shortest times of both are compared, since other
programs at work on the same cores slow one or the other down.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import jax
import numpy as np

from simulator.config import RunConfig
from simulator.errors import RunFailure
from simulator.plan import Step, this_machine
from simulator.plan.machines import Machine
from simulator.plan.step_time import Seconds, seconds
from simulator.processes import discover
from simulator.processes.start import Cluster
from simulator.simulation.advance import Until
from simulator.simulation.simulation import Simulation

ROUNDS = 3
SHORTEST = 0.02
"""Minimum duration of a timed call in seconds."""
EACH = 0.3
"""Duration of a step's timing in each round in seconds."""
_RATES = ("bandwidth", "block_bandwidth", "double", "single", "link")
_TIMES = ("start", "exchange_latency")


@dataclass(frozen=True)
class Compared:
    planned: Seconds
    """Duration of a step, by part."""
    measured: float
    """Duration of a step in seconds."""

    @property
    def ratio(self) -> float:
        return self.planned.all / self.measured


def compare(
    configs: Mapping[str, RunConfig], devices: int, precision: str, clock: Callable[[], float] = perf_counter
) -> dict[str, Compared]:
    """Planned and measured steps of some configurations, all of the given precision, on that many devices.

    clock: seconds of a device at work, as in `this_machine`. Raises RunFailure if a run stops.
    """
    cluster = Cluster(discover({}), "cpu", tuple(jax.devices("cpu")[:devices]))
    machine = this_machine(devices, precision, clock)  # the settings of a run precede its first allocation
    runs = {name: _Run(config, cluster, clock) for name, config in configs.items()}
    for _ in range(ROUNDS):
        machine = _faster(machine, this_machine(devices, precision, clock))
        for run in runs.values():
            run.time()
    return {
        name: Compared(
            seconds(Step(config, devices).traffic, machine, precision, devices), runs[name].shortest
        )
        for name, config in configs.items()
    }


def _faster(a: Machine, b: Machine) -> Machine:
    """A machine with the higher rates and shorter times of two measurements."""
    best = {name: max(getattr(a, name), getattr(b, name)) for name in _RATES}
    return replace(a, **best, **{name: min(getattr(a, name), getattr(b, name)) for name in _TIMES})


class _Run:
    """Steps from the start of a simulation, which is repeated."""

    def __init__(self, config: RunConfig, cluster: Cluster, clock: Callable[[], float]):
        self._clock, self.shortest = clock, float("inf")
        simulation = Simulation(config, cluster=cluster, report=lambda _: None)
        self._compiled, self._start, self._state = simulation.compiled_loop(), simulation.state, None
        self._steps(1)
        took = self._steps(1)
        self._count = max(1, round(SHORTEST / took))

    def _steps(self, count: int) -> float:
        """Seconds per step."""
        if self._state is None:
            self._state = jax.tree.map(lambda a: a.copy(), self._start)
        before = int(self._state.step)
        until = Until(np.float64(np.inf), np.float64(np.inf), np.int64(count))
        began = self._clock()
        state: Any = jax.block_until_ready(self._compiled(self._state, until))
        took = (self._clock() - began) / count
        self._state = state
        if int(state.step) < before + count:
            if before == 0:
                raise RunFailure(
                    "the run stops at its start; measure another configuration, or a smaller time step"
                )
            self._state = None  # too long ago: from the start again
            return float("inf")
        return took

    def time(self) -> None:
        end, first = perf_counter() + EACH, True
        while first or perf_counter() < end:
            first = False
            self.shortest = min(self.shortest, self._steps(self._count))
