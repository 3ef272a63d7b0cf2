"""What a run folder and Slurm's queue tell about a run, for `simulator status`."""

import contextlib
import json
import shutil
import subprocess
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from simulator.run.lock import NAME as LOCK
from simulator.run.lock import STALE_AFTER
from simulator.run.state import RunState, read_state

JOB = ".job"
"""The file in which `submit` leaves the id of the job that it submitted."""


@dataclass(frozen=True)
class Status:
    """One run: its folder, what its state file says, its job and what Slurm says of that.

    `writing`: a process renews the run's lock.
    """

    folder: Path
    state: RunState | None
    job: str | None
    job_state: str | None
    writing: bool

    @property
    def word(self) -> str:
        """The state in one word or two."""
        if self.state is None:
            return (self.job_state or "").lower() or ("starting" if self.writing else "not started")
        if self.state.state == "finished":
            return "finished"
        if self.job_state == "PENDING":
            return f"{self.state.state}, queued" if self.state.state != "running" else "queued"
        if self.state.state == "running" and not self.writing:
            return "killed"
        return self.state.state

    @property
    def ends(self) -> datetime | None:
        """When the run will reach its end, at its last speed; None where that is not known."""
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
        job = " ".join(filter(None, (self.job, self.job_state))) or "-"
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


def look_at(folder: Path, now: datetime) -> Status:
    """The status of the run in `folder`."""
    state = read_state(folder)
    submitted = _submitted(folder)
    # the state file's job has run; one that was submitted later may still wait
    job = submitted or (state.job_id if state else None)
    try:
        writing = now.timestamp() - (folder / LOCK).stat().st_mtime < STALE_AFTER
    except OSError:
        writing = False
    return Status(folder, state, job, _job_state(job) if job else None, writing)


def remember_job(folder: Path, job: str) -> None:
    """Leave the id of the job that was submitted for the run in `folder`."""
    (folder / JOB).write_text(json.dumps({"job": job}) + "\n")


def _submitted(folder: Path) -> str | None:
    try:
        return str(json.loads((folder / JOB).read_text())["job"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _job_state(job: str) -> str | None:
    """What squeue says: PENDING, RUNNING, ...; None where it knows nothing, or is not there."""
    if shutil.which("squeue") is None:
        return None
    command = ["squeue", "--noheader", f"--job={job}", "--format=%T"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return next(iter(answer.stdout.split()), None)


def _when(moment: datetime, now: datetime) -> str:
    """A time of today, or a day and a time."""
    return f"{moment:%H:%M}" if moment.date() == now.date() else f"{moment:%Y-%m-%d %H:%M}"
