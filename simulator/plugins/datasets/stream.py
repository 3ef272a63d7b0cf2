"""Batches of trajectories straight from running ensembles, without the disk."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from simulator.archive.stored_state import RunInputs
from simulator.cluster import discover
from simulator.cluster.start import Cluster
from simulator.config import RunConfig, as_mapping
from simulator.config.compare import leaves
from simulator.errors import RunFailure, UserError, did_you_mean
from simulator.physics.models import State, outputs
from simulator.plugins.datasets.beside import Beside
from simulator.plugins.datasets.frames import check_alike, frame_times
from simulator.run.events import Event, Moment, Schedule, events
from simulator.simulation.advance import NO_STEPS, Until
from simulator.simulation.placement import connect
from simulator.simulation.simulation import Simulation
from simulator.study.batch import (
    UNTRACEABLE,
    BatchedStep,
    Values,
    groups,
    on_one_device,
    varied_numbers,
)
from simulator.study.runs import Group, SweepRun
from simulator.study.sweep import Sweep, open_sweep

Frames = dict[str, jax.Array]  # By field, (run, time, component, x, y, z).
_ALL = np.int64(1 << 40)  # More steps than a frame takes.
_SINGLE = {"float64": "float32", "complex128": "complex64"}


@dataclass(frozen=True)
class StreamedRuns:
    """Trajectories of some runs of a study: `trajectories["velocity"]` is a jax array (run, time,
    component, x, y, z) on the devices where it was computed; it has no component for scalars and no
    z in two dimensions."""

    fields: dict[str, jax.Array]
    time: np.ndarray  # The times of the frames, shape (time,).
    # The runs in the order of the arrays; `run.values` are their swept values.
    runs: tuple[SweepRun, ...]

    def __getitem__(self, field: str) -> jax.Array:
        check_known([field], self.fields)
        return self.fields[field]


def check_known(fields: Iterable[str], known: Collection[str]) -> None:
    """Raises UserError for a field that is not `known`."""
    for name in fields:
        if name not in known:
            meant = did_you_mean(name, known)
            raise UserError(f"stream: unknown field {name!r}{meant} there are {', '.join(known)}")


def stream(
    study: Sweep | str | os.PathLike[str],
    *,
    batch: int,
    fields: Sequence[str] | None = None,
    seed: int | None = None,
) -> "TrajectoryStream":
    """Computes the runs of a study, `batch` of them in one program, and yields their trajectories,
    without any file.

        for trajectories in stream("study.yaml", batch=8, seed=1):
            loss = train(trajectories["velocity"])  # (run, time, component, x, y, z)

    The frames are those of `output.snapshots`, with the values of the snapshots that `simulator
    dataset` would store; `fields` chooses other fields. Runs come in the order of their numbers,
    with `seed` in random order. A batch holds runs that one program can step, which differ in
    numbers and starts only; the last batch may be smaller. The random numbers of a run depend on
    its own `initial.seed` alone. `beside` computes them in another process while a network learns.

    Raises UserError, before anything is computed, for a study whose runs differ in grid, fields or
    times, or cannot be stepped together; RunFailure if a run diverges."""
    sweep = study if isinstance(study, Sweep) else open_sweep(study)
    if batch < 1:
        raise UserError(f"stream: batch must be at least 1, not {batch}")
    check_alike(sweep)
    order = (
        range(len(sweep.runs))
        if seed is None
        else np.random.default_rng(seed).permutation(len(sweep.runs))
    )
    runs = [sweep.runs[i] for i in order]
    alike = groups(runs, most=len(runs))
    times = frame_times(sweep)
    parts = (part for group in alike for part in _streamed(group, batch, times, fields))
    return TrajectoryStream(sweep, parts, batch, fields, seed)


class TrajectoryStream(Iterator[StreamedRuns]):
    """The trajectories of a study, computed as they are asked for."""

    def __init__(
        self,
        sweep: Sweep,
        parts: Iterator[StreamedRuns],
        batch: int,
        fields: Sequence[str] | None,
        seed: int | None,
    ) -> None:
        self._sweep = sweep
        self._parts = parts
        self._arguments = {
            "study": str(sweep.file),
            "batch": batch,
            "fields": list(fields) if fields else None,
            "seed": seed,
        }

    def __next__(self) -> StreamedRuns:
        return next(self._parts)

    def beside(
        self,
        *,
        reservoir: int = 64,
        window: int | None = None,
        repeat: bool = True,
        launcher: Sequence[str] = (),
        environ: Mapping[str, str] = MappingProxyType({}),
    ) -> Beside:
        """The trajectories one by one as numpy arrays, computed by another process while this one
        trains, and drawn at random from a reservoir of the last ones.

            samples = stream("study.yaml", batch=8, seed=1).beside(reservoir=64, window=2)
            for sample in samples:
                before, after = sample["velocity"]  # (component, x, y, z) each
            loader = torch.utils.data.DataLoader(samples.torch(), batch_size=16)

        `window`: the number of successive frames of a sample, at a random place; by default all.
        `repeat`: a trajectory may be drawn again until a new one takes its place, so that training
        does not wait; else each comes once. `launcher`: the words before the command of the other
        process, such as `["srun", "--overlap", "--ntasks=1", "--gpus=1"]` for a Slurm step;
        `environ`: its further environment variables, such as CUDA_VISIBLE_DEVICES. Raises
        UserError for impossible numbers."""
        frames = len(frame_times(self._sweep))
        if reservoir < 1:
            raise UserError(f"stream: reservoir must be at least 1, not {reservoir}")
        if window is not None and not 1 <= window <= frames:
            raise UserError(f"stream: window must be 1 to {frames} frames, not {window}")
        return Beside(self._arguments, reservoir, window, repeat, launcher, environ)


def _streamed(
    group: Group, batch: int, times: np.ndarray, fields: Sequence[str] | None
) -> Iterator[StreamedRuns]:
    """The trajectories of runs that share one program; with `batch` 1 each run has its own."""
    members: StreamedGroup | None = None
    for first in range(0, len(group.runs), batch):
        runs = group.runs[first : first + batch]
        if members is None or batch == 1:
            config = on_one_device(runs[0].config)
            cluster = (
                members.simulation.cluster if members else connect(config, discover(os.environ))
            )
            members = StreamedGroup(config, group.keys if batch > 1 else (), cluster, batch, fields)
        yield StreamedRuns(members.trajectories(runs, len(times)), times, runs)


class StreamedGroup:
    """The compiled programs of runs that are stepped together, `size` at a time."""

    def __init__(
        self,
        config: RunConfig,
        keys: Sequence[str],
        cluster: Cluster,
        size: int,
        fields: Sequence[str] | None,
    ):
        self.simulation = Simulation(
            config, cluster=cluster, inputs=RunInputs(), report=lambda line: None
        )
        self._step = BatchedStep(self.simulation, keys)
        self._size = 1 if self._step.in_turn else size
        if self.simulation.populations:
            raise UserError(
                "stream: runs with particles cannot be streamed; `simulator sweep run` writes them"
            )
        self.fields = tuple(
            fields or config.output.snapshots.fields or outputs.stored_fields(self.simulation.model)
        )
        check_known(self.fields, self.simulation.field_names)

    def trajectories(self, runs: Sequence[SweepRun], frames: int) -> dict[str, jax.Array]:
        """Every frame of the runs by field, (run, time, component, x, y, z). No frame waits for the
        host."""
        size = self._size
        clocks = []
        places = -(-len(runs) // size) * size
        shapes = jax.eval_shape(self._values, self.simulation.template)
        arrays = jax.tree.map(lambda a: jnp.empty((places, frames, *a.shape), a.dtype), shapes)
        for first in range(0, len(runs), size):
            for frame, (values, clock) in enumerate(
                self._frames(runs[first : first + size], frames)
            ):
                arrays = self._placed(arrays, values, first, frame)
                clocks.append((first, clock))
        for first, clock in jax.device_get(clocks):
            for run, step, time, dt in zip(runs[first:], *clock, strict=False):
                if not np.isfinite(dt):
                    raise RunFailure(
                        f"stream: run {run.index} is not finite after t = {time:g}, step {step}"
                    )
        return (
            arrays
            if places == len(runs)
            else {name: array[: len(runs)] for name, array in arrays.items()}
        )

    def _frames(
        self, runs: Sequence[SweepRun], frames: int
    ) -> Iterator[tuple[dict[str, jax.Array], Any]]:
        """The values, and step, time and dt, of runs that are stepped together, at each frame."""
        # The program is compiled for `size` runs; the places of a smaller batch hold a run that
        # takes no steps.
        idle = (self._size - len(runs)) * [0]
        places = [*range(len(runs)), *idle]
        values = [self._step.values(varied_numbers(run.config)) for run in runs]
        begun = [self.start(run) for run in runs]
        configs = [run.config for run in runs]
        first = self.simulation.first_time
        stops = [_stops(events(c.output), c.time.stop, first, frames) for c in configs]
        stack = partial(jax.tree.map, lambda *leaves: np.stack(leaves))
        states = self._joined(*(begun[i] for i in places))
        shared = stack(*(values[i] for i in places))
        for frame in range(frames):
            frames_at: Any = ()
            for turn in range(max(len(own[frame]) for own in stops)):
                ends = [own[frame][turn] if turn < len(own[frame]) else None for own in stops]
                until = stack(*map(steps_to, [*ends, *(None for _ in idle)]))
                states, *frames_at = self._framed(shared, states, until)
            yield frames_at

    def start(self, run: SweepRun) -> State:
        """The initial state of a run of the group."""
        simulation = self.simulation
        state = (
            self._step.start(simulation, run.config)
            if _unseeded(run.config) == _unseeded(simulation.config)
            else None
        )
        if state is None:
            config = run.config.model_copy(update={"devices": simulation.config.devices})
            simulation = Simulation(
                config, cluster=simulation.cluster, inputs=RunInputs(), report=lambda line: None
            )
            state = self._step.start(simulation, config)
        return simulation.start() if state is None else state

    @cached_property
    def _joined(self) -> Callable[..., State]:
        return jax.jit(lambda *states: jax.tree.map(lambda *leaves: jnp.stack(leaves), *states))

    @cached_property
    def _framed(self) -> Callable[[Values, State, Until], tuple[State, dict[str, jax.Array], Any]]:
        """The compiled function from values, states and ends of all runs, stacked, to new states,
        the values of their fields, and their clocks."""

        def framed(
            values: Values, state: State, until: Until
        ) -> tuple[State, dict[str, jax.Array], Any]:
            run = self.simulation.varied(values) if values else self.simulation
            state = run.advance(state, until)
            return state, self._values(state, run), (state.step, state.time, state.dt)

        first = partial(jax.tree.map, lambda leaf: leaf[0])
        back = partial(jax.tree.map, lambda leaf: leaf[None])
        step = (
            jax.vmap(framed)
            if self._size > 1
            else lambda *arguments: back(framed(*map(first, arguments)))
        )
        # A single run without values uses the programs that the simulation compiles for itself.
        together = jax.jit(step, donate_argnums=1) if self._step.keys or self._size > 1 else step

        def called(*arguments: Any) -> Any:
            try:
                return together(*arguments)
            except UNTRACEABLE as error:
                said = str(error).partition("\n")[0]
                raise UserError(
                    f"stream: these runs cannot be stepped together ({said}); use batch=1"
                ) from None

        return called

    def _values(self, state: State, run: Simulation | None = None) -> dict[str, jax.Array]:
        """The fields of a frame without padding, in the snapshots' precision."""
        config = self.simulation.config
        inside = (..., *(slice(n) for n in config.grid.shape))
        single = config.output.snapshots.precision == "single"
        fields = {
            name: (run or self.simulation).field_program(name)(state)[inside]
            for name in self.fields
        }
        return {
            n: a.astype(_SINGLE.get(str(a.dtype), a.dtype)) if single else a
            for n, a in fields.items()
        }

    @cached_property
    def _placed(self) -> Callable[..., dict[str, jax.Array]]:
        """The compiled function that writes a frame of runs, from the run `first` on, into the
        trajectories."""

        def placed(arrays: Frames, frames: Frames, first: jax.Array, frame: jax.Array) -> Frames:
            def write(array: jax.Array, values: jax.Array) -> jax.Array:
                return lax.dynamic_update_slice(
                    array, values[:, None], (first, frame, *(0,) * (array.ndim - 2))
                )

            return jax.tree.map(write, arrays, frames)

        return jax.jit(placed, donate_argnums=0)


def steps_to(end: float | None) -> Until:
    """Steps to the time `end`, or none."""
    return NO_STEPS if end is None else Until(np.float64(end), np.float64(np.inf), _ALL)


@lru_cache
def _stops(planned: tuple[Event, ...], stop: float, begin: float, frames: int) -> list[list[float]]:
    """The times, up to each frame, at which a step ends exactly."""
    dt = (stop - begin) / frames * 1e-3  # times that differ by round-off are one, as in a run
    schedule = Schedule(planned, stop, begin).passed(Moment(0, begin, dt))
    stops: list[list[float]] = [[begin]]
    due: tuple[str, ...] = ("snapshots",)
    while len(stops) < frames or "snapshots" not in due:
        if "snapshots" in due:
            stops.append([])
        stops[-1].append(schedule.next_aligned(dt))
        moment = Moment(1, stops[-1][-1], dt)
        due = schedule.due(moment)
        schedule = schedule.passed(moment)
    return stops


def _unseeded(config: RunConfig) -> list[tuple[str, object]]:
    """The settings of a start without its seeds."""
    return [pair for pair in leaves(as_mapping(config)["initial"]) if not pair[0].endswith("seed")]
