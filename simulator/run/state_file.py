"""Keeps `RUN/state.json` up to date while one start of a run goes on."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from simulator.archive.ledger import Ledger
from simulator.archive.run_state import RunState, StateName, percent, read_state, write_state
from simulator.archive.snapshot_reader import open_snapshot
from simulator.cluster.variables import whole_number
from simulator.run.events import Moment
from simulator.run.run_status import job_of


@dataclass(frozen=True)
class Outcome:
    """How one start of a run has ended."""

    ended: Literal["finished", "stopped"]
    reason: str | None  # Why the run ended early.
    steps: int  # Number of steps that this start of the run took.
    seconds: float  # Wall time of these steps, without output.
    moment: Moment


EVERY = 2.0  # Seconds between two writes of the state file while the run goes on.


class StateFile:
    """Writes `state.json` for one start of a run, on process 0."""

    def __init__(self, folder: Path, stop: float):
        """`stop` is the simulation time at which the run ends."""
        restarts = whole_number(os.environ.get("SLURM_RESTART_COUNT")) or 0
        self._state = RunState("running", 0, 0.0, stop, 0.0, 0.0, 0.0, job_of(os.environ), restarts)
        self._folder = folder
        self._began = time.monotonic()
        self._last = 0.0
        self._before = 0.0
        self._first_time = 0.0
        self._first_step = 0
        self.ledger: Ledger | None = None
        """The run's ledger, once it is open; the state file records how often the ledger was
        written."""

    def continues(self) -> None:
        """Take over the position, the checkpoint and the wall time of earlier starts from the
        existing file."""
        if (state := read_state(self._folder)) is not None:
            self._before = state.seconds
            fields = ("step", "time", "dt", "last_checkpoint", "last_checkpoint_time", "energy")
            self._state = replace(self._state, **{name: getattr(state, name) for name in fields})

    def took(self, joules: Mapping[str, float]) -> None:
        """Add the energy of this start, by source."""
        if joules:
            before = self._state.energy or {}
            sums = before | {n: before.get(n, 0.0) + value for n, value in joules.items()}
            self._state = replace(self._state, energy=sums)

    def begin(self, first_time: float, first_step: int, *, continued: bool) -> None:
        """The run began at `first_time`; this start takes its steps from `first_step` on."""
        self._first_time = first_time
        self._first_step = first_step
        if not continued:
            self._state = replace(self._state, last_checkpoint=None, last_checkpoint_time=None)

    def committed(self, folder: Path) -> None:
        """Record a committed checkpoint; `folder` may also be a snapshot."""
        if folder.parent.name == "checkpoints":
            at = open_snapshot(folder).time
            self._state = replace(
                self._state, last_checkpoint=int(folder.name), last_checkpoint_time=at
            )
            self._last = 0.0

    def reached(self, moment: Moment) -> None:
        """The position that the next state file has, also that of a failure."""
        self._state = replace(self._state, step=moment.step, time=moment.time)

    def running(self, moment: Moment) -> None:
        """Write the state of a run that goes on, at most every two seconds."""
        self.reached(moment)
        if time.monotonic() - self._last < EVERY:
            return
        if self.ledger is not None:
            self.ledger.mark()
        self.write("running", moment)

    def write(self, how: StateName, moment: Moment, reason: str | None = None) -> None:
        self._last = now = time.monotonic()
        self._state = replace(
            self._state,
            **moment._asdict(),
            state=how,
            reason=reason,
            percent=percent(self._first_time, moment.time, self._state.stop),
            advanced=moment.step > self._first_step,
            seconds=round(self._before + now - self._began, 3),
            ledger=self.ledger.saves if self.ledger is not None else 0,
        )
        write_state(self._folder, self._state)
        if self.ledger is not None:
            self.ledger.state_written()

    def ended(self, how: StateName, reason: str) -> None:
        """Write the state of a run that an error has ended, with its last known position."""
        self.write(how, Moment(self._state.step, self._state.time, self._state.dt), reason)
