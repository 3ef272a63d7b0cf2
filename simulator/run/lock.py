"""One writer per run folder: `RUN/lock`, without `flock`, which network file systems do not keep between
nodes.

The lock is a small file whose inode is its owner's: it appears by hard link (atomic on NFS too), its owner
renews it by touching the inode through an open descriptor, and a takeover renames another inode over the
name. A frozen owner that wakes up later therefore touches its own, nameless inode and cannot disturb the new
owner; it finds out by `still_mine`, which has to be asked before every commit. Ages are differences of two
times stamped by the file system, so that clocks of different nodes do not matter.
"""

import contextlib
import errno
import json
import os
import shutil
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from simulator.errors import RunFailure, UserError
from simulator.files import write_all

NAME = "lock"
_BESIDE = ".lock-"
RENEW_EVERY = 10.0
"""Seconds between two renewals."""
STALE_AFTER = 60.0
"""Seconds without renewal after which a lock is nobody's."""
_DOUBTFUL_AFTER = 2.5 * RENEW_EVERY
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


@dataclass(frozen=True)
class Holder:
    """Who holds a lock. `machine` tells boots and containers apart, `started` two processes of one pid."""

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
        count = environ.get("SLURM_RESTART_COUNT", "0")
        return cls(
            host=socket.gethostname(),
            pid=os.getpid(),
            machine=_machine(),
            started=_start_time(os.getpid()),
            job_id=environ.get("SLURM_JOB_ID"),
            restart_count=int(count) if count.isdigit() else 0,
            token=uuid.uuid4().hex,
        )

    def __str__(self) -> str:
        job = f", job {self.job_id}" if self.job_id else ""
        return f"{self.host}, pid {self.pid}{job}"


class RunLock:
    """A held lock; made by `acquire`, given back by `release` or at the end of a `with` block."""

    def __init__(
        self, path: Path, holder: Holder, descriptor: int, takeover: str | None, every: float
    ) -> None:
        self.path, self.holder, self.takeover = path, holder, takeover
        self._descriptor = descriptor
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._renew, args=(every,), name="run-lock", daemon=True)
        self._thread.start()

    @classmethod
    def acquire(
        cls,
        folder: Path,
        environ: Mapping[str, str],
        *,
        job_is_gone: Callable[[str], bool] | None = None,
        renew_every: float = RENEW_EVERY,
        stale_after: float = STALE_AFTER,
    ) -> Self:
        """Hold `folder/lock`.

        A lock whose holder is known dead, or that was not renewed for `stale_after` seconds, is taken over;
        the line that says so is in `takeover`. `job_is_gone(job_id)` asks the scheduler (default: `squeue`).

        Raises UserError, naming the holder, where the lock is live; OSError where the folder is not writable.
        """
        path, mine = folder / NAME, Holder.this_process(environ)
        beside = path.with_name(f"{_BESIDE}{mine.token}")
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            write_all(descriptor, (json.dumps(asdict(mine)) + "\n").encode())
            os.fsync(descriptor)
            takeover = None
            while not _appear(beside, path):
                holder, age = _read(path), _age(path, beside)
                if age is None:
                    continue  # released in between
                reason = _why_stale(holder, age, mine, job_is_gone or slurm_job_is_gone, stale_after)
                if reason is None:
                    raise UserError(_in_use(path, holder, age))
                if _replace(path, holder, beside, stale_after):
                    takeover = f"took over {path} from {holder or 'an unknown holder'}: {reason}"
                    break
            if not _same_file(path, descriptor):
                raise UserError(_in_use(path, _read(path), 0.0))
        except BaseException:
            os.close(descriptor)
            raise
        finally:
            beside.unlink(missing_ok=True)
        _remove_abandoned(folder, stale_after)
        return cls(path, mine, descriptor, takeover, renew_every)

    def still_mine(self) -> bool:
        """Whether nobody took the lock over; ask before each commit."""
        if self._released.is_set():
            return False
        holder = _read(self.path)  # opening it makes an NFS client look again
        return holder is not None and holder.token == self.holder.token

    def check(self) -> None:
        """Raise RunFailure where the lock is no longer this process's."""
        if not self.still_mine():
            now = _read(self.path)
            raise RunFailure(
                f"{self.path}: the lock of this run now belongs to {now or 'nobody'}; nothing more is written"
            )

    def release(self) -> None:
        """Stop renewing and remove the lock if it is still this process's."""
        if self._released.is_set():
            return
        mine = self.still_mine()
        self._released.set()
        self._thread.join()
        if mine:
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _renew(self, every: float) -> None:
        while not self._released.wait(every):
            # A file system that fails now and then is the commits' business, not the lock's.
            with contextlib.suppress(OSError):
                os.utime(self._descriptor)


def read_holder(folder: Path) -> Holder | None:
    """Who holds `folder/lock`, live or not; None where there is no lock or it cannot be read."""
    return _read(folder / NAME)


def slurm_job_is_gone(job_id: str) -> bool:
    """Whether Slurm says that the job has ended or does not exist; False where it cannot be asked."""
    if shutil.which("squeue") is None:
        return False
    try:
        answer = subprocess.run(
            ["squeue", "-h", "-j", job_id, "-o", "%T"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    if answer.returncode != 0:
        return "invalid job id" in answer.stderr.lower()
    running = {
        "RUNNING",
        "COMPLETING",
        "SUSPENDED",
        "STOPPED",
        "SIGNALING",
        "STAGE_OUT",
        "CONFIGURING",
        "RESIZING",
    }
    return not running & set(answer.stdout.split())


def _why_stale(
    holder: Holder | None, age: float, mine: Holder, job_is_gone: Callable[[str], bool], stale_after: float
) -> str | None:
    """Why the lock is nobody's any more; None where it has to be respected."""
    if age > stale_after:
        return f"not renewed for {age:.0f} s"
    if holder is None:
        return None
    if (holder.host, holder.machine) == (mine.host, mine.machine) and _start_time(
        holder.pid
    ) != holder.started:
        return "that process is dead"
    if holder.job_id and holder.job_id == mine.job_id and holder.restart_count < mine.restart_count:
        return "this is a later start of the same job"
    # Another cluster may share the file system and know nothing of the job: only a lock that has missed
    # renewals.
    if holder.job_id and age > _DOUBTFUL_AFTER and job_is_gone(holder.job_id):
        return f"job {holder.job_id} has ended"
    return None


def _appear(beside: Path, path: Path) -> bool:
    """Give the file `beside` the name `path` too; False where `path` exists. Atomic."""
    try:
        os.link(beside, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        raise UserError(
            f"{path}: this file system has no hard links, which the run's lock needs; "
            "put output.directory on another one"
        ) from None
    return True


def _replace(path: Path, stale: Holder | None, beside: Path, stale_after: float) -> bool:
    """Rename `beside` over the stale lock; False where somebody else did so first."""
    # Two starts may find the same stale lock: the second must not replace what the first has just put there.
    guard = path.with_name(NAME + ".takeover")
    while not _appear(beside, guard):
        age = _age(guard, beside)
        if age is not None and age > stale_after:
            guard.unlink(missing_ok=True)
        time.sleep(0.02)
    try:
        if _read(path) != stale:
            return False
        os.utime(beside)
        os.replace(beside, path)
    finally:
        guard.unlink(missing_ok=True)
    return True


def _remove_abandoned(folder: Path, stale_after: float) -> None:
    """Remove what starts left that were killed while they asked for the lock."""
    now = (folder / NAME).stat().st_mtime
    for path in folder.glob(f"{_BESIDE}*"):
        with contextlib.suppress(FileNotFoundError):
            if now - path.stat().st_mtime > stale_after:
                path.unlink()


def _age(path: Path, beside: Path) -> float | None:
    """Seconds since `path` was touched, by the file system's own clock; None where it is gone."""
    os.utime(beside)
    try:
        return beside.stat().st_mtime - path.stat().st_mtime
    except FileNotFoundError:
        return None


def _read(path: Path) -> Holder | None:
    try:
        return Holder(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _same_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _in_use(path: Path, holder: Holder | None, age: float) -> str:
    return (
        f"{path}: {holder or 'another process'} is writing this run (lock renewed {max(age, 0):.0f} s ago); "
        f"wait for it, or end it with: touch {path.parent / 'stop'}"
    )


def _machine() -> str:
    """One boot and one pid namespace: where pids can be compared."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _start_time(pid: int) -> int | None:
    """When a process started, in ticks after boot; None where it is dead, a zombie, or there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])
