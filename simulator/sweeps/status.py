"""How far the runs of a sweep are, from their folders alone (and Slurm's queue, where runs were submitted)."""

import json
import os
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from simulator.run.lock import NAME as LOCK
from simulator.run.lock import STALE_AFTER, read_holder, slurm_job_is_gone
from simulator.run.state import RunState, read_state
from simulator.run.status import JOB
from simulator.sweeps.record import Record, last_line, read_record


class Stage(StrEnum):
    """Where a run stands."""

    WAITING = "waiting"
    QUEUED = "queued"
    """Submitted to Slurm and not begun."""
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    """Ended early and can continue."""
    FAILED = "failed"
    DONE = "done"


@dataclass(frozen=True)
class Status:
    stage: Stage
    state: RunState | None = None
    detail: str = ""
    """How far, or why not."""


def status_of(folder: Path, queued: str | None = None) -> Status:
    """Where the run in `folder` stands. `queued` is the id of its task in Slurm's queue, if it is there."""
    state, record = read_state(folder), read_record(folder)
    if _alive(folder):
        return Status(Stage.RUNNING, state, _progress(state) if state else "starting")
    if state is not None and state.state == "finished":
        return Status(Stage.DONE, state, f"t = {state.time:g}, step {state.step}")
    if record is not None and record.code is None and _process_alive(record):
        return Status(Stage.RUNNING, state, _progress(state) if state else "starting")
    if queued is not None:
        return Status(Stage.QUEUED, state, f"job {queued}")
    if state is None:
        return _not_begun(record)
    if state.state == "failed" or _failed_at_start(record):
        return Status(Stage.FAILED, state, _reason(state, record))
    why = state.reason or ("cut off" if state.state == "running" else "stopped")
    return Status(Stage.INTERRUPTED, state, f"{_progress(state)}: {why}")


def statuses_of(folders: Sequence[Path]) -> list[Status]:
    """Where the runs in `folders` stand; asks Slurm's queue once where any was submitted."""
    jobs = {folder: job for folder in folders if (job := _submitted(folder)) is not None}
    queued = _pending({job.partition("_")[0] for job in jobs.values()}) if jobs else set()
    return [status_of(folder, job if (job := jobs.get(folder)) in queued else None) for folder in folders]


def _submitted(folder: Path) -> str | None:
    """The task that was submitted for the run, as ARRAY_TASK."""
    try:
        return str(json.loads((folder / JOB).read_text())["job"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _pending(arrays: Collection[str]) -> set[str]:
    """The tasks of these arrays that wait in Slurm's queue, as ARRAY_TASK."""
    if shutil.which("squeue") is None:
        return set()
    command = ["squeue", "--noheader", "--array", f"--jobs={','.join(sorted(arrays))}", "--format=%i %T"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return set()
    tasks = (line.split() for line in answer.stdout.splitlines())
    return {words[0] for words in tasks if len(words) == 2 and words[1] in ("PENDING", "REQUEUED")}


def _failed_at_start(record: Record | None) -> bool:
    """The last start ended by itself, with a mistake or a failure."""
    return record is not None and record.code in (1, 2)


def _reason(state: RunState, record: Record | None) -> str:
    said = record.last if record is not None and record.code in (1, 2) else ""
    return said if state.state != "failed" else state.reason or said or "failed"


def _not_begun(record: Record | None) -> Status:
    if record is None:
        return Status(Stage.WAITING)
    if _failed_at_start(record):
        return Status(Stage.FAILED, None, record.last or "ended before its first step")
    if record.code is None or record.code not in (0, 3):
        said = record.last or last_line(Path(record.log))
        return Status(
            Stage.INTERRUPTED, None, "cut off before its first step" + (f": {said}" if said else "")
        )
    return Status(Stage.WAITING)


def _progress(state: RunState) -> str:
    return f"step {state.step}, {state.percent:.0f} %"


def _alive(folder: Path) -> bool:
    """Whether a process holds the run's lock, as far as can be told from here without touching it."""
    try:
        age = time.time() - (folder / LOCK).stat().st_mtime
    except OSError:
        return False
    holder = read_holder(folder)
    if holder is None or age > STALE_AFTER:
        return False
    return holder.host != socket.gethostname() or _pid_alive(holder.pid)


def _process_alive(record: Record) -> bool:
    if record.host == socket.gethostname():
        return _pid_alive(record.pid)
    return record.job_id is not None and not slurm_job_is_gone(record.job_id)


def _pid_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:  # a zombie is dead
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not Path("/proc").is_dir()


def counted(statuses: Iterable[Status]) -> str:
    """`3 done, 1 failed, 4 waiting`"""
    number: Mapping[Stage, int] = Counter(status.stage for status in statuses)
    return ", ".join(f"{number[stage]} {stage}" for stage in reversed(Stage) if number.get(stage))
