"""Keeps `state.json` during a run: progress, speed, and the checkpoint from which the run could continue."""

import os
import time
from pathlib import Path
from typing import Literal

from simulator.archive.ledger import Ledger
from simulator.archive.reader import open_snapshot
from simulator.archive.state import RunState, percent, read_state, write_state
from simulator.cluster.variables import whole
from simulator.run.loop import Moment

EVERY = 2.0
"""Seconds between two writes while the run goes on."""
How = Literal["running", "finished", "stopped", "failed"]


class StateFile:
    """Writes `state.json` for one start of a run, on process 0."""

    def __init__(self, folder: Path, stop: float):
        """`stop` is the time at which the run ends."""
        self._folder, self._stop = folder, stop
        self._began, self._before, self._last = time.monotonic(), 0.0, 0.0
        self._first_time, self._first_step = 0.0, 0
        self._checkpoint: tuple[int, float] | None = None
        self.ledger: Ledger | None = None
        """The run's ledger, once it is open; the state records how often it was written."""

    def continues(self) -> None:
        """Add the wall time of the earlier starts, read from the existing state."""
        if (state := read_state(self._folder)) is not None:
            self._before = state.seconds

    def begin(self, first_time: float, first_step: int) -> None:
        """The run began at `first_time`; this start takes its steps from `first_step` on."""
        self._first_time, self._first_step = first_time, first_step

    def committed(self, folder: Path) -> None:
        """A snapshot or checkpoint was committed."""
        if folder.parent.name == "checkpoints":
            self._checkpoint = int(folder.name), open_snapshot(folder).time
            self._last = 0.0

    def running(self, moment: Moment) -> None:
        """The run goes on; writes at most every two seconds."""
        if time.monotonic() - self._last < EVERY:
            return
        if self.ledger is not None:
            self.ledger.mark()
        self.write("running", moment)

    def write(self, how: How, moment: Moment, reason: str | None = None) -> None:
        """Replace the file."""
        self._last = now = time.monotonic()
        before = read_state(self._folder)
        known = (before.last_checkpoint, before.last_checkpoint_time) if before else (None, None)
        step, at = self._checkpoint or known
        array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
        write_state(
            self._folder,
            RunState(
                state=how,
                step=moment.step,
                time=moment.time,
                stop=self._stop,
                percent=percent(self._first_time, moment.time, self._stop),
                steps_per_second=moment.steps_per_second,
                dt=moment.dt,
                job_id=f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID"),
                restart_count=whole(os.environ.get("SLURM_RESTART_COUNT")) or 0,
                last_checkpoint=step,
                last_checkpoint_time=at,
                advanced=moment.step > self._first_step,
                seconds=round(self._before + now - self._began, 3),
                reason=reason,
                ledger=self.ledger.saves if self.ledger is not None else 0,
            ),
        )
        if self.ledger is not None:
            self.ledger.state_written()

    def failed(self, reason: str) -> None:
        """The run has failed; its position is that of the last state."""
        state = read_state(self._folder)
        moment = Moment(state.step, state.time, state.dt, 0.0) if state else Moment(0, 0.0, 0.0, 0.0)
        self.write("failed", moment, reason)
