"""The loop of a run: advance on the devices; wake for events, and about once a second; agree; act.

Conditions that only one process knows (clock, signal, stop file, a slow disk) go into one vector of
flags. All processes act on its maximum over the processes, so that they take the same decision at
the same step."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import jax
import numpy as np

from simulator.archive.manifest import SAVES
from simulator.archive.run_writer import Output
from simulator.archive.snapshot_writer import Writer
from simulator.cluster.failure import Watchdog
from simulator.errors import RunFailure
from simulator.physics.models import State
from simulator.physics.particles.population import crowded
from simulator.run.events import Moment, Schedule, WallTimer
from simulator.run.progress import Progress
from simulator.run.signals import Flag, Watch, stop_reason
from simulator.run.state_file import Outcome, StateFile
from simulator.simulation.advance import Until
from simulator.simulation.simulation import Simulation
from simulator.stopwatch import Stopwatch

WAKE = 1.0  # Seconds of work between two checks of signals, stop files and the clock.


@dataclass
class Loop:
    """Runs a simulation from its current state to the end, or until a request to stop. `advance` is
    the compiled `simulation.advance`."""

    simulation: Simulation
    schedule: Schedule
    output: Output
    writer: Writer
    watch: Watch
    advance: Callable[[State, Until], State]
    watchdog: Watchdog
    progress: Progress
    state_file: StateFile
    spent: Stopwatch

    def __post_init__(self) -> None:
        self._wall = WallTimer(self.schedule.events, time.monotonic)
        self._speed: float | None = None
        self._flags = np.zeros(len(Flag), np.int32)

    def run(self, *, continued: bool) -> Outcome:
        """Runs the loop. `continued`: the state comes from a checkpoint, whose events were taken
        before it was saved."""
        first = self._look().step
        seconds = 0.0
        due: tuple[str, ...] = ()
        while True:
            moment = self._look()
            if moment.step > first or not continued:
                due = self.schedule.due(moment)
                planned = self.schedule.planned(moment)
                # A checkpoint of this state stores the schedule after the events of this moment.
                self.schedule = self.schedule.passed(moment)
                self._take(due, moment, planned)
            finished = self.schedule.finished(moment)
            steps, wall = self._agree(moment)
            reason = None if finished else stop_reason(self._flags)
            leaving = finished or (reason is not None and moment.step > first)
            if moment.step > first or not continued:
                saves = leaving or self._flags[Flag.CHECKPOINT_FILE]
                asked: list[str] = [*wall, *(["checkpoints"] if saves else [])]
                further = tuple(name for name in dict.fromkeys(asked) if name not in due)
                self._take(further, moment, further)
            self.watch.obey(self._flags)
            if leaving:
                self._finish_save()
                self._raise_trouble()
                ended = "finished" if finished else "stopped"
                return Outcome(ended, reason, moment.step - first, seconds, moment)
            seconds += self._advance(moment, 1 if reason else steps)

    def _look(self) -> Moment:
        """The clock of the current state. Raises RunFailure if the state is no longer finite."""
        state = self.simulation.state
        step, t, dt = (x.item() for x in jax.device_get((state.step, state.time, state.dt)))
        moment = Moment(step, t, dt, self._speed or 0.0)
        if not np.isfinite(dt):
            self._cannot_go_on(moment)
        return moment

    def _cannot_go_on(self, moment: Moment) -> NoReturn:
        self.output.write(lambda: self.state_file.reached(moment))
        what, cure = self.simulation.trouble()
        self._fail(
            f"step {moment.step}, t = {moment.time:g}: {what}; all earlier output is intact. {cure} may help"
        )

    def _fail(self, line: str) -> NoReturn:
        """Finishes a save in progress, then ends the run for a reason that all processes know."""
        self.output.flush()
        self._finish_save()
        raise RunFailure(line)

    def _finish_save(self) -> None:
        with self.spent.on("waiting for files"):
            folder = self.writer.wait()
        self._committed(folder)

    def _committed(self, folder: Path | None) -> None:
        if folder is not None:
            self.output.write(lambda: self.state_file.committed(folder))

    def _take(self, names: tuple[str, ...], moment: Moment, planned: tuple[str, ...]) -> None:
        # A step checks its initial state, so the present state may be the first one that is not
        # finite.
        if names and self.simulation.nonfinite():
            self._cannot_go_on(moment)
        for name in names:
            if name in SAVES:
                self._finish_save()
            with self.spent.on(name.replace("_", " ")):
                self.output.take(
                    name, self.simulation.state, self.schedule.state(), planned=name in planned
                )
            self._wall.reset(name)

    def _agree(self, moment: Moment) -> tuple[int, tuple[str, ...]]:
        """The number of steps to take next, and the events due by wall clock; sets the agreed
        flags."""
        wake = max(1, int(WAKE * self._speed)) if self._speed else 1
        flags = self.watch.poll(failed=self.output.trouble is not None, wall=self._wall.due())
        mine = np.array([*flags, self.writer.busy, wake], np.int64)
        with self.spent.on("waiting for other processes"):
            *agreed, busy, wake = self.simulation.cluster.any(mine).tolist()
        self._flags = np.array(agreed[: len(Flag)], np.int32)
        self.watchdog.feed("the last wake of the loop")
        self.watch.agreed(self._flags)
        if self._flags[Flag.FAILURE]:
            self._raise_trouble()
        self._committed(self.writer.poll(bool(busy)))
        # The write checks the lock: after a takeover the log belongs to another start, too.
        self.output.write(lambda: self.state_file.running(moment))
        if self.output.trouble is None:
            self.progress.update(moment)
        until_due = self.schedule.steps_until_due(moment.step)
        steps = wake if until_due is None else min(wake, max(until_due, 1))
        return steps, tuple(
            n for n, d in zip(self._wall.names, agreed[len(Flag) :], strict=True) if d
        )

    def _raise_trouble(self) -> None:
        """Raises, on every process, the first error of any process in writing a file."""
        for line in filter(None, self.simulation.cluster.gather(self.output.trouble)):
            raise RunFailure(line)

    def _advance(self, moment: Moment, steps: int) -> float:
        """Takes up to `steps` steps; returns their duration in seconds."""
        until = Until(
            np.float64(self.schedule.next_aligned(moment.dt)),
            np.float64(self.schedule.next_soft()),
            np.int64(steps),
        )
        began = time.monotonic()
        with self.spent.on("steps"):
            state = self.advance(self.simulation.state, until)
            jax.block_until_ready(state)
        self.simulation.state = state
        grew = self._make_room(state)
        seconds = time.monotonic() - began
        if not grew and float(state.time) <= moment.time and np.isfinite(dt := float(state.dt)):
            self._fail(
                f"step {moment.step}, t = {moment.time:g}: dt = {dt:g} no longer advances the time; "
                "all earlier output is intact. The flow is under-resolved: use a finer grid or more viscosity"
            )
        self._speed = (int(state.step) - moment.step) / max(seconds, 1e-9)
        return seconds

    def _make_room(self, state: State) -> bool:
        """Enlarges buffers of particles that are too small; later steps use programs for the larger
        buffers. Returns whether a buffer was too small."""
        simulation = self.simulation
        name = crowded(state.particles)
        if name is None:
            return False
        with self.spent.on("particles"):
            simulation.state = simulation.grow(state)
        self.advance = simulation.advance
        self.output.use({})
        if simulation.cluster.is_first:
            simulation.report(
                f"step {int(state.step)}: {name} crowd on a device; buffers grow to "
                f"{simulation.populations[name].capacity} particles each"
            )
        return True
