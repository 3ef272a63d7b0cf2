"""Runs of a study computed again on another grid, with another integrator or time step."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simulator.archive.stored_state import RunInputs
from simulator.cluster import discover
from simulator.config import RunConfig
from simulator.errors import UserError
from simulator.physics.models import State
from simulator.plugins.datasets.stream import StreamedGroup, steps_to
from simulator.simulation.advance import NO_STEPS
from simulator.simulation.placement import connect, most_devices
from simulator.simulation.simulation import Simulation
from simulator.study.batch import BatchedStep, Values, on_one_device, varied_numbers
from simulator.study.runs import Group, SweepRun
from simulator.words import brief

Frames = Mapping[str, np.ndarray]  # Values by field, (time, component, x, y, z).


def resampled(values: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Periodic values (..., x, y, z) at the points of a grid of `shape`, by their Fourier series.
    A coarser grid keeps the modes below its Nyquist wavenumber."""
    axes = tuple(range(-len(shape), 0))
    modes = np.fft.fftn(values, axes=axes, norm="forward")
    for axis, points in zip(axes, shape, strict=True):
        kept = (min(points, modes.shape[axis]) - 1) // 2
        low = np.r_[0 : kept + 1, -kept:0]
        extents = list(modes.shape)
        extents[axis] = points
        padded = np.zeros(extents, modes.dtype)
        np.moveaxis(padded, axis, 0)[low] = np.moveaxis(modes, axis, 0)[low]
        modes = padded
    result = np.fft.ifftn(modes, axes=axes, norm="forward")
    return result if np.iscomplexobj(values) else result.real


def distance(frames: Frames, reference: Frames, shape: Sequence[int]) -> float:
    """The root mean square difference over the standard deviation of `reference`, whose grid has
    `shape`: the mean over all fields and all frames after the first (VRMSE of Ohana et al., NeurIPS
    2024). Coarser `frames` are interpolated by their Fourier series."""
    axes = tuple(range(-len(shape), 0))
    errors = []
    for name, expected in reference.items():
        for found, wanted in zip(frames[name][1:], expected[1:], strict=True):
            square = (abs(resampled(found, shape) - wanted) ** 2).mean(axes).sum()
            variance = (abs(wanted - wanted.mean(axes, keepdims=True)) ** 2).mean(axes).sum()
            if variance > 0:  # a uniform field has no scale
                errors.append((square / variance) ** 0.5)
    return float(np.mean(errors)) if errors else float("nan")


class Starts:
    """The initial conditions of the runs of a group, on their own grid."""

    def __init__(self, group: Group):
        """Raises UserError for runs that cannot be computed on another grid."""
        config = on_one_device(group.runs[0].config)
        cluster = connect(config, discover(os.environ))
        self._group = StreamedGroup(config, (), cluster, 1, None)
        self.cluster = cluster
        simulation = self._group.simulation
        if simulation.template.memory.forcing:
            raise UserError(
                f"{config.name}: a random force differs with the time step, so runs on other grids "
                "are other realisations; use constant_power, or no forcing"
            )
        self.fields = self._group.fields
        self._known: dict[str, dict[str, np.ndarray]] = {}

    def of(self, run: SweepRun) -> dict[str, np.ndarray]:
        """The evolved fields at the start of a run, (component, x, y, z), in double precision."""
        simulation = self._group.simulation
        if run.hash not in self._known:
            state = self._group.start(run)
            inside = (..., *(slice(n) for n in simulation.config.grid.shape))
            self._known[run.hash] = {
                name: np.asarray(simulation.field_program(name)(state))[inside]
                for name in simulation.model.fields
            }
        return self._known[run.hash]


class Solver:
    """The runs of a group on another grid, one after another, by one program for all runs and all
    values of the key `pace`, `time.cfl` or `time.dt`; on the devices of `starts`, or on as many of
    them as the grid can be divided among."""

    def __init__(self, group: Group, starts: Starts, config: RunConfig, pace: str | None = None):
        devices = starts.cluster.devices
        count = most_devices(config, len(devices)) or len(devices)
        self.config = config.changed(devices={"count": count})
        self.cluster = replace(starts.cluster, devices=devices[:count])
        self.simulation = Simulation(
            self.config, cluster=self.cluster, inputs=RunInputs(), report=lambda line: None
        )
        keys = [key for key in group.keys if not key.startswith("time.")]
        self.pace = pace
        self._step = BatchedStep(self.simulation, [*keys, *([pace] if pace else [])])
        self._starts = starts

    def trajectory(
        self, run: SweepRun, times: np.ndarray, value: float | None = None
    ) -> tuple[dict[str, np.ndarray], float, int]:
        """The frames of a run at `times`, the seconds that its steps took, and their number; with
        `value` for the key `pace`. Frames of a run that diverges are nan from then on."""
        numbers = varied_numbers(run.config)
        if self.pace is not None and value is not None:
            numbers |= {self.pace: value}
        values = self._step.values(numbers)
        shape = self.config.grid.shape
        begun = {n: resampled(v, shape) for n, v in self._starts.of(run).items()}
        state = self.simulation.state_from({n: jnp.asarray(v) for n, v in begun.items()})
        state = self._step.alone(values, state, NO_STEPS)  # compiles
        frames = [self._frame(values, state)]
        seconds = 0.0
        for end in times[1:]:
            began = time.perf_counter()
            state = self._step.alone(values, state, steps_to(end))
            jax.block_until_ready(state)
            seconds += time.perf_counter() - began
            frames.append(self._frame(values, state))
            if not np.isfinite(state.dt):
                frames[-1] = {name: np.full_like(v, np.nan) for name, v in frames[-1].items()}
        joined = {name: np.stack([frame[name] for frame in frames]) for name in frames[0]}
        return joined, seconds, int(state.step)

    def _frame(self, values: Values, state: State) -> dict[str, np.ndarray]:
        inside = (..., *(slice(n) for n in self.config.grid.shape))
        return {n: np.asarray(a)[inside] for n, a in self._fields(values, state).items()}

    @cached_property
    def _fields(self) -> Any:
        """The compiled function from values and state to the fields of a frame."""

        def fields(values: Values, state: State) -> dict[str, jax.Array]:
            run = self.simulation.varied(values)
            return {name: run.field_program(name)(state) for name in self._starts.fields}

        return jax.jit(fields)


def finer(config: RunConfig) -> RunConfig:
    """The configuration on a grid with twice the points along each axis and half the time step."""
    pace: dict[str, Any] = {}
    if config.time.dt is not None:
        pace = {"dt": config.time.dt / 2}
    if config.time.steps is not None:
        pace = {"steps": 2 * config.time.steps}
    shape = tuple(2 * n for n in config.grid.shape)
    return config.changed(grid={"shape": shape}, time=pace)


def grid_in_words(shape: Sequence[int]) -> str:
    """A grid in words: `64 x 64`."""
    return " x ".join(map(brief, shape))
