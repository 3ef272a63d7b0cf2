"""The status of a run, from its folder and Slurm's queue, for `simulator status`."""

import contextlib
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from simulator.archive.state import RunState, read_state
from simulator.cluster.queue import ENDED, job_state
from simulator.run.alive import LOCK, is_written

LOG = "run.log"
JOB = ".job"
"""The file in which `submit` stores the id of the job."""


@dataclass(frozen=True)
class RunStatus:
    """The status of one run: its folder, the content of its state file, its job and the job's state in Slurm.

    `writing`: a process renews the run's lock. `began`: a process has held the lock.
    """

    folder: Path
    state: RunState | None
    job: str | None
    job_state: str | None
    writing: bool
    began: bool = False

    @property
    def job_lives(self) -> bool:
        """Whether the job waits or runs, according to Slurm."""
        return self.job_state is not None and self.job_state not in ENDED

    @property
    def word(self) -> str:
        """The state in one or a few words."""
        if self.state is None:
            if self.job_state in ENDED:
                return f"{self.job_state.lower().replace('_', ' ')} before its first step"
            if self.job_state is not None:
                return self.job_state.lower()
            if self.writing:
                return "starting"
            return "ended before its first step" if self.began else "not started"
        if self.state.state == "finished":
            return "finished"
        if self.job_state == "PENDING":
            return f"{self.state.state}, queued" if self.state.state != "running" else "queued"
        if self.state.state == "running" and not self.writing:
            return "killed"
        return self.state.state

    @property
    def ends(self) -> datetime | None:
        """The expected time of the run's end, from its last speed; None if that is unknown."""
        state = self.state
        if (
            state is None
            or state.state != "running"
            or not self.writing
            or state.steps_per_second * state.dt <= 0
        ):
            return None
        seconds = (state.stop - state.time) / (state.steps_per_second * state.dt)
        with contextlib.suppress(OverflowError, ValueError):
            return datetime.fromisoformat(state.updated) + timedelta(seconds=seconds)
        return None

    def cells(self, now: datetime) -> tuple[str, ...]:
        """The row of the table: run, job, state, step, t, %, steps/s, expected end, last checkpoint."""
        job = " ".join(filter(None, (self.job, self.job_state if self.job_lives else None))) or "-"
        head = (str(self.folder), job, self.word)
        state = self.state
        if state is None:
            return (*head, "-", "-", "-", "-", "-", "-")
        ends = self.ends
        checkpoint = "-" if state.last_checkpoint is None else f"step {state.last_checkpoint}"
        if state.last_checkpoint_time is not None:
            checkpoint += f", t = {state.last_checkpoint_time:g}"
        return (
            *head,
            str(state.step),
            f"{state.time:g} / {state.stop:g}",
            f"{state.percent:.1f}",
            f"{state.steps_per_second:.3g}" if state.state == "running" else "-",
            _when(ends.astimezone(now.tzinfo), now) if ends else "-",
            checkpoint,
        )


def look_at(folder: Path, now: datetime) -> RunStatus:
    """The status of the run in `folder`."""
    state = read_state(folder)
    # The job in the state file has run; a job that was submitted later may still wait.
    job = submitted_job(folder) or (state.job_id if state else None)
    began = (folder / LOCK).exists() or (folder / LOG).exists()
    writing = is_written(folder, now.timestamp())
    return RunStatus(folder, state, job, job_state(job) if job else None, writing, began)


def remember_job(folder: Path, job: str) -> None:
    """Store the id of the job that was submitted for the run in `folder`."""
    (folder / JOB).write_text(json.dumps({"job": job}) + "\n")


def submitted_job(folder: Path) -> str | None:
    """The job that was submitted for the run in `folder`; the task of an array as ARRAY_TASK."""
    try:
        return str(json.loads((folder / JOB).read_text())["job"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _when(moment: datetime, now: datetime) -> str:
    """A time of today, or a day and a time."""
    return f"{moment:%H:%M}" if moment.date() == now.date() else f"{moment:%Y-%m-%d %H:%M}"
