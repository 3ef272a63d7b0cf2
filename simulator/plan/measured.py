"""Measures the rate of a run's own steps on this machine, on a grid of at most 128 points along an
axis (256 on GPUs)."""

import time
from collections.abc import Callable
from math import log2, prod
from typing import Any

import jax
import numpy as np

from simulator.archive.stored_state import RunInputs
from simulator.cluster import discover
from simulator.cluster.hardware import physical_memory, usable_cores
from simulator.cluster.memory import keep_freed_memory
from simulator.cluster.mesh import Device
from simulator.cluster.start import Cluster
from simulator.config import RunConfig
from simulator.config.blocks import DeviceSettings
from simulator.errors import RunFailure, UserError
from simulator.plan.machines import Machine
from simulator.plan.step_count import scaled
from simulator.plan.step_memory import Step
from simulator.simulation.abstract_run import (
    planned_threads,
    prepare_virtual_devices,
    with_planned_threads,
)
from simulator.simulation.advance import Until
from simulator.simulation.placement import most_devices
from simulator.simulation.simulation import Simulation

LARGEST = {"cpu": 128, "gpu": 256}
"""Points along the longest side of the measured grid, whose arrays exceed the device's cache, as
larger grids do. (An H200 moves 1.8 TB/s in a step on 128^3 points, 2.5 TB/s on 512^3.)"""
# Seconds of one timed call, and of all timed calls together.
SHORTEST = 0.02
WHOLE = 1.0

Clock = Callable[[], float]


class TimedSteps:
    """Takes steps of a simulation from its initial state, and starts again if the run ends early on
    so few points."""

    def __init__(self, simulation: Simulation, clock: Clock = time.perf_counter):
        self.compiled = simulation.compiled_loop()
        self.shortest = float("inf")
        self._clock = clock
        self._start = simulation.state
        self._state = None
        self._take(1)
        self._count = max(1, round(SHORTEST / self._take(1)))

    def time(self, seconds: float = WHOLE) -> float:
        """Takes steps for about `seconds`; returns the shortest time per step so far."""
        end = time.perf_counter() + seconds
        while True:
            self.shortest = min(self.shortest, self._take(self._count))
            if time.perf_counter() >= end:
                return self.shortest

    def _take(self, count: int) -> float:
        """Takes `count` steps; returns the seconds per step, infinite if the run ends within these
        steps."""
        state: Any = (
            self._state
            if self._state is not None
            else jax.tree.map(lambda a: a.copy(), self._start)
        )
        before = int(state.step)
        began = self._clock()
        state = jax.block_until_ready(
            self.compiled(state, Until(np.float64(np.inf), np.float64(np.inf), np.int64(count)))
        )
        took = (self._clock() - began) / count
        ended = int(state.step) < before + count
        if ended and before == 0:
            raise RunFailure(
                "the run stops at its start; take another configuration, or a smaller time step"
            )
        self._state = None if ended else state
        return float("inf") if ended else took


def _operations(shape: tuple[int, ...]) -> float:
    return prod(shape) * log2(prod(shape))


def _timed_steps(config: RunConfig, cluster: Cluster, clock: Clock) -> TimedSteps:
    """Raises UserError if the run cannot start on the grid of `config`."""
    count = len(cluster.devices)
    settings = DeviceSettings(count=count, threads=config.devices.threads)
    config = config.model_copy(update={"devices": settings})
    try:
        simulation = Simulation(
            config, cluster=cluster, inputs=RunInputs(), report=lambda line: None
        )
        return TimedSteps(simulation, clock)
    except (UserError, OSError) as error:
        text = " x ".join(map(str, config.grid.shape))
        raise UserError(
            f"--device here: a step on {text} points is measured, and there the run cannot start: {error}; "
            "name a device instead, e.g. --device epyc-7763"
        ) from None


def this_machine(
    config: RunConfig,
    devices: int | None = None,
    clock: Clock = time.perf_counter,
    largest: int | None = None,
) -> Machine:
    """The devices that a run would take here, with the rate of the run's own steps. Starts JAX on
    these devices.

    devices: the number of devices of the run; by default all GPUs, or one device with all cores.
    clock: returns seconds; on cores that other programs use too, the processor time of this
    process. largest: points along the longest side of the measured grid, by default `LARGEST`.
    Raises UserError if the run cannot start on the measured grid."""
    config, present, threads = _present_devices(config, devices)
    platform = "gpu" if present[0].platform == "gpu" else "cpu"
    used = present[: devices or (most_devices(config, len(present)) if platform == "gpu" else None)]
    largest = min(largest or LARGEST[platform], max(config.grid.shape))
    shape = scaled(config.grid.shape, largest, least=4)
    cluster = Cluster(discover({}), platform, used, threads=threads)
    steps = _timed_steps(config.changed(grid={"shape": shape}), cluster, clock)
    # For N points the time of a step is proportional to N log N, its bytes to N; the rate belongs
    # to the run's grid.
    took = steps.time() * _operations(config.grid.shape) / _operations(shape)
    work = Step(config, len(used), platform).work
    rate = (work.bytes + work.sent) / took
    if platform == "gpu":
        memory = (jax.devices()[0].memory_stats() or {}).get("bytes_limit", 0.0) / 0.9
    else:
        memory = physical_memory() / len(present)
    return Machine(
        "this machine",
        platform,
        memory,
        bandwidth=rate,
        per_node=len(present),
        link=rate,
        network=rate * len(present),
        source=f"measured: a step on {' x '.join(map(str, shape))} points, "
        f"{len(used)} of {len(present)} devices",
        measured=True,
        threads=threads,
    )


def _present_devices(
    config: RunConfig, devices: int | None
) -> tuple[RunConfig, tuple[Device, ...], int]:
    """The configuration with the threads that its run has here, the devices that are present, and
    the threads of each."""
    jax.config.update("jax_enable_x64", True)  # as in every run
    prepare_virtual_devices(gpus=True)
    present = tuple(jax.devices())
    if present[0].platform == "gpu":
        return config, present, 1
    cores = usable_cores()
    config = with_planned_threads(config, 1 if devices else cores)
    threads = planned_threads(config)
    keep_freed_memory()  # as in every run
    return config, present[: max(1, cores // threads)], threads
