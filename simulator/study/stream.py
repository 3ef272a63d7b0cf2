"""Batches of trajectories straight from running ensembles, without the disk."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from simulator.archive.states import RunInputs
from simulator.cluster import discover
from simulator.cluster.start import Cluster
from simulator.config import RunConfig
from simulator.errors import RunFailure, UserError, did_you_mean
from simulator.physics.models import State
from simulator.run.schedule import Schedule, events
from simulator.simulation.advance import Until
from simulator.simulation.placement import connect
from simulator.simulation.simulation import Simulation
from simulator.study.batch import BatchedStep, Values, groups, numbers, on_one_device
from simulator.study.dataset import check_alike, frame_times
from simulator.study.runs import Group, SweepRun
from simulator.study.sweep import Sweep, open_sweep

_ALL = np.int64(1 << 40)
"""More steps than a frame takes."""
_SINGLE = {"float64": "float32", "complex128": "complex64"}


@dataclass(frozen=True)
class StreamedRuns:
    """Trajectories of some runs of a study: `trajectories["velocity"]` is a jax array (run, time, component, x, y, z)
    on the devices where it was computed; it has no component for scalars and no z in two dimensions."""

    fields: dict[str, jax.Array]
    time: np.ndarray
    """The times of the frames, shape (time,)."""
    runs: tuple[SweepRun, ...]
    """The runs in the order of the arrays; `run.values` are their swept values."""

    def __getitem__(self, field: str) -> jax.Array:
        return self.fields[field]


def stream(
    study: Sweep | str | os.PathLike[str], *, batch: int, fields: Sequence[str] | None = None, seed: int | None = None
) -> Iterator[StreamedRuns]:
    """Computes the runs of a study, `batch` of them in one program, and yields their trajectories, without any file.

        for trajectories in stream("study.yaml", batch=8, seed=1):
            loss = train(trajectories["velocity"])  # (run, time, component, x, y, z)

    The frames are those of `output.snapshots`, with the values of the snapshots that `simulator dataset` would store;
    `fields` chooses other fields. Runs come in the order of their numbers, with `seed` in random order. A batch holds
    runs that one program can step, which differ in numbers and starts only; the last batch may be smaller. The random
    numbers of a run depend on its own `initial.seed` alone.

    Raises UserError, before anything is computed, for a study whose runs differ in grid, fields or times, or cannot
    be stepped together; RunFailure if a run diverges.
    """
    sweep = study if isinstance(study, Sweep) else open_sweep(study)
    if batch < 1:
        raise UserError(f"stream: batch must be at least 1, not {batch}")
    check_alike(sweep)
    order = range(len(sweep.runs)) if seed is None else np.random.default_rng(seed).permutation(len(sweep.runs))
    runs = [sweep.runs[i] for i in order]
    alike = groups(runs, most=len(runs))
    return (part for group in alike for part in _streamed(group, batch, frame_times(sweep), fields))


def _streamed(group: Group, batch: int, times: np.ndarray, fields: Sequence[str] | None) -> Iterator[StreamedRuns]:
    """The trajectories of runs that share one program; with `batch` 1 each run has its own."""
    members: _Members | None = None
    for first in range(0, len(group.runs), batch):
        runs = group.runs[first : first + batch]
        if members is None or batch == 1:
            config = on_one_device(runs[0].config)
            cluster = members.simulation.cluster if members else connect(config, discover(os.environ))
            members = _Members(config, group.keys if batch > 1 else (), cluster, batch, fields)
        yield StreamedRuns(members.trajectories(runs, len(times)), times, runs)


class _Members:
    """The compiled programs of runs that are stepped together, `size` at a time."""

    def __init__(
        self, config: RunConfig, keys: Sequence[str], cluster: Cluster, size: int, fields: Sequence[str] | None
    ):  # fmt: skip
        self.simulation = Simulation(config, cluster=cluster, inputs=RunInputs(), report=lambda line: None)
        self._step, self._size = BatchedStep(self.simulation, keys), size
        if self.simulation.populations:
            raise UserError("stream: runs with particles cannot be streamed; `simulator sweep run` writes them")
        self._fields = tuple(fields or config.output.snapshots.fields or self.simulation.model.stored)
        known = self.simulation.field_names
        if unknown := [name for name in self._fields if name not in known]:
            meant = did_you_mean(unknown[0], known)
            raise UserError(f"stream: unknown field {unknown[0]!r}{meant} there are {', '.join(known)}")

    def trajectories(self, runs: Sequence[SweepRun], frames: int) -> dict[str, jax.Array]:
        """Every frame of the runs by field, (run, time, component, x, y, z)."""
        values = [self._step.values(numbers(run.config)) for run in runs]
        states = [self._start(run) for run in runs]
        clocks = [(0, float(state.time), 0.0) for state in states]
        configs = [run.config for run in runs]
        schedules = [Schedule(events(c.output), c.time.stop, t) for c, (_, t, _) in zip(configs, clocks, strict=True)]
        seen = [[self._frame(*pair)] for pair in zip(values, states, strict=True)]
        for _ in range(frames - 1):
            waiting = set(range(len(runs)))
            while waiting:
                untils = [
                    Until(np.float64(s.next_aligned(dt)), np.float64(np.inf), _ALL if i in waiting else np.int64(0))
                    for i, (s, (_, _, dt)) in enumerate(zip(schedules, clocks, strict=True))
                ]
                states = self._stepped(values, states, untils)
                found = jax.device_get([(s.step, s.time, s.dt) for s in states])
                clocks = [tuple(x.item() for x in clock) for clock in found]
                for i in sorted(waiting):
                    step, time, dt = clocks[i]
                    if not np.isfinite(dt):
                        raise RunFailure(f"stream: run {runs[i].index} is not finite after t = {time:g}, step {step}")
                    if "snapshots" in schedules[i].due(step, time, dt):
                        waiting.discard(i)
                    schedules[i] = schedules[i].passed(time, dt)
            for own, pair in zip(seen, zip(values, states, strict=True), strict=True):
                own.append(self._frame(*pair))
        return self._stacked(seen)

    def _start(self, run: SweepRun) -> State:
        own = self.simulation
        if run.config.initial != own.config.initial or run.config.model != own.config.model:
            config = run.config.model_copy(update={"devices": own.config.devices})
            own = Simulation(config, cluster=own.cluster, inputs=RunInputs(), report=lambda line: None)
        state = self._step.start(own)
        return own.placed(own.start() if state is None else state)

    def _stepped(self, values: Sequence[Values], states: Sequence[State], untils: Sequence[Until]) -> Sequence[State]:
        """The states after the steps. The places of a smaller batch are filled with a run that takes no steps."""
        if self._size == 1:
            return [self.simulation.advance(states[0], untils[0])]
        idle = self._size - len(states)
        none = Until(np.float64(0), np.float64(0), np.int64(0))
        lists = ((values, values[0]), (states, states[0]), (untils, none))
        try:
            new = self._step.together(*(tuple([*own, *[other] * idle]) for own, other in lists))
        except (TypeError, ValueError, NotImplementedError, jax.errors.JAXTypeError) as error:
            said = str(error).partition("\n")[0]
            raise UserError(f"stream: these runs cannot be stepped together ({said}); use batch=1") from None
        return new[: len(states)]

    def _frame(self, values: Values, state: State) -> dict[str, jax.Array]:
        frame = {}
        for name in self._fields:
            measure = self._step.measure(name)
            frame[name] = self.simulation.values(name)(state) if measure is None else measure(values, state)
        return frame

    @cached_property
    def _stacked(self) -> Callable[[list[list[dict[str, jax.Array]]]], dict[str, jax.Array]]:
        """The compiled function that joins the frames of all runs, without padding, in the snapshots' precision."""
        config = self.simulation.config
        inside = (..., *(slice(n) for n in config.grid.shape))
        single = config.output.snapshots.precision == "single"

        def stack(*frames: jax.Array) -> jax.Array:
            joined = jnp.stack(frames)[inside]
            return joined.astype(_SINGLE.get(str(joined.dtype), joined.dtype) if single else joined.dtype)

        def stacked(seen: list[list[dict[str, jax.Array]]]) -> dict[str, jax.Array]:
            runs = [jax.tree.map(stack, *frames) for frames in seen]
            return jax.tree.map(lambda *arrays: jnp.stack(arrays), *runs)

        return jax.jit(stacked)
