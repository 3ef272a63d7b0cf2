"""Whether a run is alive, judged from its lock, its process and its job. `status`, sweeps and the lock ask this."""

import json
import math
import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from simulator.cluster.queue import job_is_gone
from simulator.cluster.variables import whole

LOCK = "lock"
RENEW_EVERY = 10.0
"""Seconds between two renewals of a lock."""
STALE_AFTER = 60.0
"""Seconds without renewal after which a lock is stale."""
DOUBTFUL_AFTER = 2.5 * RENEW_EVERY
"""Seconds without renewal after which an answer of Slurm that the holder's job has ended is trusted: another cluster
may share the file system and know nothing of the job."""


@dataclass(frozen=True)
class Holder:
    """The holder of a lock. `machine` distinguishes boots and containers, `started` two processes with the same
    pid."""

    host: str
    pid: int
    machine: str
    started: int | None
    job_id: str | None
    restart_count: int
    token: str

    @classmethod
    def this_process(cls, environ: Mapping[str, str]) -> Self:
        """This process, as one start of one job."""
        return cls(
            host=socket.gethostname(),
            pid=os.getpid(),
            machine=_machine(),
            started=_start_time(os.getpid()),
            job_id=environ.get("SLURM_JOB_ID"),
            restart_count=whole(environ.get("SLURM_RESTART_COUNT")) or 0,
            token=uuid.uuid4().hex,
        )

    @property
    def cure(self) -> str:
        """The command that ends it."""
        return f"scancel {self.job_id}" if self.job_id else f"kill {self.pid} (on {self.host})"

    def __str__(self) -> str:
        job = f", job {self.job_id}" if self.job_id else ""
        return f"{self.host}, pid {self.pid}{job}"


def read_holder(folder: Path) -> Holder | None:
    """The holder of the lock of `folder`, alive or not; None if there is no lock or it cannot be read."""
    try:
        return Holder(**json.loads((folder / LOCK).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def why_dead(
    holder: Holder | None,
    age: float,
    observer: Holder,
    job_is_gone: Callable[[str], bool],
    *,
    stale_after: float = STALE_AFTER,
    doubtful_after: float = DOUBTFUL_AFTER,
) -> str | None:
    """Why a lock that was renewed `age` seconds ago no longer protects its run; None if its holder may be alive."""
    if age > stale_after:
        return f"not renewed for {age:.0f} s"
    if holder is None:
        return None
    same_machine = (holder.host, holder.machine) == (observer.host, observer.machine)
    if same_machine and _start_time(holder.pid) != holder.started:
        return "that process is dead"
    if holder.job_id and holder.job_id == observer.job_id and holder.restart_count < observer.restart_count:
        return "this is a later start of the same job"
    if holder.job_id and age > doubtful_after and job_is_gone(holder.job_id):
        return f"job {holder.job_id} has ended"
    return None


def is_written(folder: Path, now: float | None = None) -> bool:
    """Whether a process writes the run in `folder`. The lock is not touched, and because nothing is taken over,
    Slurm's answer is trusted at once. `now` is in seconds since the epoch."""
    try:
        age = (time.time() if now is None else now) - (folder / LOCK).stat().st_mtime
    except OSError:
        return False
    observer = Holder.this_process(os.environ)
    return why_dead(read_holder(folder), age, observer, job_is_gone, doubtful_after=-math.inf) is None


def process_lives(host: str, pid: int, job_id: str | None) -> bool:
    """Whether the process recorded as `host` and `pid` is alive; on another host, whether its job is."""
    if host == socket.gethostname():
        return _start_time(pid) is not None
    return job_id is not None and not job_is_gone(job_id)


def _machine() -> str:
    """An identifier of the boot and the pid namespace, within which pids can be compared."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _start_time(pid: int) -> int | None:
    """The start time of a process in ticks after boot; None if it is dead or a zombie, or if there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])
