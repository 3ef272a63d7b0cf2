"""Judges from lock, process and job whether a run is alive, for `status`, for sweeps and for the
lock itself."""

import contextlib
import math
import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

from simulator.archive.run_state import RunState, read_state
from simulator.cluster.queue import ENDED, WAITING, WORKING, job_is_gone, job_state, jobs_of
from simulator.cluster.variables import whole_number
from simulator.files import dataclass_from, read_json, replace_json

LOCK = "lock"
RENEW_EVERY = 10.0  # Seconds between two renewals of a lock.
STALE_AFTER = 60.0  # Seconds without renewal after which a lock is stale.
DOUBTFUL_AFTER = 2.5 * RENEW_EVERY
"""Seconds without renewal after which Slurm's answer that the holder's job has ended is trusted;
the Slurm of another cluster with the same file system does not know the job."""


@dataclass(frozen=True)
class Holder:
    """The holder of a lock. `machine` distinguishes boots and containers, `started` processes with
    the same pid."""

    host: str
    pid: int
    machine: str
    started: int | None
    job_id: str | None
    restart_count: int
    token: str

    @classmethod
    def this_process(cls, environ: Mapping[str, str]) -> Self:
        pid = os.getpid()
        restarts = whole_number(environ.get("SLURM_RESTART_COUNT")) or 0
        job = environ.get("SLURM_JOB_ID")
        token = uuid.uuid4().hex
        return cls(socket.gethostname(), pid, _machine(), _start_time(pid), job, restarts, token)

    @property
    def cure(self) -> str:
        """The command that ends the holder."""
        return f"scancel {self.job_id}" if self.job_id else f"kill {self.pid} (on {self.host})"

    def __str__(self) -> str:
        job = f", job {self.job_id}" if self.job_id else ""
        return f"{self.host}, pid {self.pid}{job}"


def read_holder(folder: Path) -> Holder | None:
    """The holder of the lock of `folder`, alive or not; None if there is no readable lock."""
    return dataclass_from(Holder, read_json(folder / LOCK))


def why_dead(
    holder: Holder | None,
    age: float,
    observer: Holder,
    job_is_gone: Callable[[str], bool],
    doubtful_after: float = DOUBTFUL_AFTER,
) -> str | None:
    """Why the holder of a lock that was renewed `age` seconds ago is known to be dead; None if it
    may be alive."""
    if holder is None:
        return None
    same_machine = (holder.host, holder.machine) == (observer.host, observer.machine)
    if same_machine and not _runs(holder.pid, holder.started):
        return "that process is dead"
    if (
        holder.job_id
        and holder.job_id == observer.job_id
        and holder.restart_count < observer.restart_count
    ):
        return "this is a later start of the same job"
    if holder.job_id and age > doubtful_after and job_is_gone(holder.job_id):
        return f"job {holder.job_id} has ended"
    return None


def is_written(folder: Path, now: float | None = None) -> bool:
    """Whether a process writes the run in `folder`. This function takes no lock over, so it trusts
    Slurm's answer at once. `now` is in seconds since the epoch."""
    try:
        age = (time.time() if now is None else now) - (folder / LOCK).stat().st_mtime
    except OSError:
        return False
    holder = read_holder(folder)
    observer = Holder.this_process(os.environ)
    return age <= STALE_AFTER and why_dead(holder, age, observer, job_is_gone, -math.inf) is None


def process_lives(host: str, pid: int, job_id: str | None) -> bool:
    """Whether the process `pid` on `host` is alive; for another host, whether the job of the
    process is alive."""
    if host == socket.gethostname():
        return _start_time(pid) is not None or _is_hidden(pid)
    return job_id is not None and not job_is_gone(job_id)


def _machine() -> str:
    """An identifier of the boot and of the pid namespace; pids with the same identifier can be
    compared."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink(
            "/proc/self/ns/pid"
        )
    except OSError:
        return ""


def _runs(pid: int, started: int | None) -> bool:
    """Whether the process `pid` that started at this time may still run."""
    now = _start_time(pid)
    return now == started or (now is None and _is_hidden(pid))


def _is_hidden(pid: int) -> bool:
    """Whether there is a process that /proc does not show: another user's, where /proc is mounted
    with `hidepid`."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return not Path(f"/proc/{pid}").exists()
    except (OSError, OverflowError, TypeError):
        return False
    return False


def _start_time(pid: int) -> int | None:
    """The start time of a process in ticks after boot; None for a dead process or a zombie, and
    without /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


LOG = "run.log"
JOB = ".job"  # The file with the id of the job that was last submitted or has last started.
SCRIPT = "job.sbatch"


@dataclass(frozen=True)
class RunStatus:
    """The status of one run: its folder, the content of its state file, its job and the job's state
    in Slurm.

    `writing`: a process renews the run's lock. `began`: a process has held the lock, or a job that
    was to do so is gone."""

    folder: Path
    state: RunState | None
    job: str | None
    job_state: str | None
    writing: bool
    began: bool = False

    @property
    def job_lives(self) -> bool:
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
        """The expected time of the run's end, from its last speed; None if the speed is unknown."""
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
        """The row of the table: run, job, state, step, t, %, steps/s, expected end, last
        checkpoint."""
        job = " ".join(filter(None, (self.job, self.job_state if self.job_lives else None))) or "-"
        head = (str(self.folder), job, self.word)
        state = self.state
        if state is None:
            return (*head, "-", "-", "-", "-", "-", "-")
        checkpoint = "-" if state.last_checkpoint is None else f"step {state.last_checkpoint}"
        if state.last_checkpoint_time is not None:
            checkpoint += f", t = {state.last_checkpoint_time:g}"
        speed = f"{state.steps_per_second:.3g}" if state.state == "running" else "-"
        end = f"{ends.astimezone(now.tzinfo):%Y-%m-%d %H:%M}" if (ends := self.ends) else "-"
        place = str(state.step), f"{state.time:g} / {state.stop:g}", f"{state.percent:.1f}"
        return (*head, *place, speed, end, checkpoint)


def look_at(folder: Path, now: datetime) -> RunStatus:
    state = read_state(folder)
    jobs = _jobs(folder, state)

    def rank(job: str) -> tuple[bool, bool, bool, bool, int]:
        """The job that computes the run or will continue it comes first, then the one that last
        did; a job that was refused beside it has only a high number."""
        last = state is not None and job == state.job_id
        submitted = job == submitted_job(folder)
        return jobs[job] in WORKING, jobs[job] in WAITING, last, submitted, _number(job)

    job = max(jobs, key=rank, default=None)
    began = (folder / LOCK).exists() or (folder / LOG).exists()
    if job is not None and jobs[job] is None:  # Slurm forgets a job some minutes after its end
        began = began or job_is_gone(job)
    writing = is_written(folder, now.timestamp())
    return RunStatus(folder, state, job, jobs[job] if job else None, writing, began)


def _jobs(folder: Path, state: RunState | None) -> dict[str, str | None]:
    """The jobs of a run with their states: those of its records, and those that the queue knows,
    because a user may have given the job script to sbatch again."""
    script = folder / SCRIPT
    jobs: dict[str, str | None] = {**jobs_of(script)} if script.exists() else {}
    for recorded in (submitted_job(folder), state.job_id if state else None):
        if recorded is not None and recorded not in jobs:
            jobs[recorded] = job_state(recorded)
    return jobs


def _number(job: str) -> int:
    return whole_number(job.partition("_")[0]) or 0


def waiting_job(folder: Path, environ: Mapping[str, str]) -> str | None:
    """Another job of the run in `folder` that waits in Slurm's queue and will continue the run."""
    ours = job_of(environ), environ.get("SLURM_JOB_ID")
    jobs = _jobs(folder, read_state(folder))
    return next((job for job in jobs if jobs[job] in WAITING and job not in ours), None)


def remember_job(folder: Path, job: str) -> None:
    replace_json(folder / JOB, {"job": job})


def job_of(environ: Mapping[str, str]) -> str | None:
    """The job of this process; the task of an array as ARRAY_TASK."""
    array = environ.get("SLURM_ARRAY_JOB_ID")
    task = environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else environ.get("SLURM_JOB_ID")


def submitted_job(folder: Path) -> str | None:
    """The job that was last submitted for the run in `folder`, or has last started it; the task of
    an array as ARRAY_TASK."""
    job = read_json(folder / JOB).get("job")
    return None if job is None else str(job)
