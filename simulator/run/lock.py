"""One writer per run folder: `RUN/lock`.

The lock is a small file whose inode belongs to the lock's owner. A hard link creates the lock
(atomically, on NFS too), the owner renews it by touching the inode through an open descriptor, and
a takeover renames another inode over the name. An owner that was frozen and wakes up later
therefore touches its own inode, which has no name any more, and cannot disturb the new owner; it
notices the takeover by `still_mine`, which is called before every commit. Ages are differences of
two times stamped by the file system, so the clocks of the nodes do not matter. That clock may jump,
too: a lock that seems old is watched before it is taken over.

Locks of the operating system (`flock`, and packages such as filelock that wrap it) often do not
work between the nodes of a network file system, and packages with lock files do not detect a
takeover."""

import contextlib
import errno
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Self

from simulator.archive.run_state import NAME as STATE
from simulator.cluster.queue import job_is_gone
from simulator.errors import RunFailure, UserError
from simulator.files import dataclass_from, reason, with_path, write_all
from simulator.run.run_status import LOCK, RENEW_EVERY, STALE_AFTER, Holder, read_holder, why_dead

_BESIDE = ".lock-"
_PAUSES = (0.1, 0.4, 1.5, 4.0, 9.0)  # Seconds between two attempts to read the lock.
_WATCHED = 1.5  # Intervals of renewal for which a lock that seems old is watched.
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class RunLock:
    """A lock that this process holds: `acquire` takes the lock, `release` or the end of a `with`
    block removes it."""

    def __init__(
        self,
        path: Path,
        holder: Holder,
        descriptor: int,
        takeover: str | None,
        every: float,
        say: Callable[[str], None],
    ) -> None:
        self.path = path
        self.holder = holder
        self.takeover = takeover
        self._say = say
        self._descriptor = descriptor
        self._released = threading.Event()
        self._thread = threading.Thread(
            target=self._renew, args=(every,), name="run-lock", daemon=True
        )
        self._thread.start()

    @classmethod
    def acquire(
        cls,
        folder: Path,
        environ: Mapping[str, str],
        *,
        job_is_gone: Callable[[str], bool] = job_is_gone,
        renew_every: float = RENEW_EVERY,
        stale_after: float = STALE_AFTER,
        say: Callable[[str], None] = lambda line: None,
    ) -> Self:
        """Take the lock `folder/lock`.

        A lock whose holder is known to be dead, or that was not renewed for `stale_after` seconds,
        is taken over, and the attribute `takeover` is then a line about this. `job_is_gone(job_id)`
        asks the scheduler (default: `squeue`). Later warnings go to `say`.

        Raises UserError, naming the holder, if the lock is live; OSError if the folder is not
        writable."""
        path = folder / LOCK
        mine = Holder.this_process(environ)
        beside = path.with_name(f"{_BESIDE}{mine.token}")
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            try:
                write_all(descriptor, (json.dumps(asdict(mine)) + "\n").encode())
                os.fsync(descriptor)
            except OSError as error:
                raise with_path(error, path) from None
            takeover = _enter(path, beside, mine, job_is_gone, renew_every, stale_after)
            if not _same_file(path, descriptor):
                raise UserError(_in_use(path, read_holder(path.parent), path))
        except BaseException:
            os.close(descriptor)
            raise
        finally:
            beside.unlink(missing_ok=True)
        _remove_abandoned(folder, stale_after)
        return cls(path, mine, descriptor, takeover, renew_every, say)

    def still_mine(self) -> bool:
        """Whether this process still holds the lock. Raises OSError if the lock cannot be read."""
        return not self._released.is_set() and self._is_mine(self._holder())

    def check(self) -> None:
        """Every commit calls this first. Raises RunFailure if another process has taken the lock
        over, OSError if the lock cannot be read."""
        holder = self._holder()
        if self._released.is_set() or not self._is_mine(holder):
            raise RunFailure(
                f"{self.path}: the lock of this run now belongs to {holder or 'nobody'}; nothing more is written"
            )

    def _is_mine(self, holder: Holder | None) -> bool:
        return holder is not None and holder.token == self.holder.token

    def _holder(self) -> Holder | None:
        """The holder now. A failed read (ESTALE, EIO, EMFILE) says nothing about the holder, so the
        lock is read again, for a quarter of a minute at most."""
        for pause in _PAUSES:
            try:
                return _read(self.path)
            except OSError as error:
                self._say(f"warning: {reason(error)}; reading the lock again in {pause:g} s")
            time.sleep(pause)
        return _read(self.path)

    def release(self) -> None:
        """Stop renewing the lock, and remove it if this process still holds it."""
        if self._released.is_set():
            return
        mine = False  # A lock that cannot be read stays: the next start finds its holder dead.
        with contextlib.suppress(OSError):
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
            # If the file system fails for a longer time, the commits fail too and report it.
            with contextlib.suppress(OSError):
                os.utime(self._descriptor)


def _enter(
    path: Path,
    beside: Path,
    mine: Holder,
    job_is_gone: Callable[[str], bool],
    renew_every: float,
    stale_after: float,
) -> str | None:
    """Gives the file `beside` the name `path`. Returns a line if it takes the place of another
    lock. Raises UserError if that lock is live."""
    while not _appear(beside, path):
        holder = read_holder(path.parent)
        age = _age(path, beside)
        if age is None:
            continue  # released in the meantime
        why = why_dead(holder, abs(age), mine, job_is_gone)
        if why is None and abs(age) > stale_after:
            if _changes(path, _WATCHED * renew_every):
                continue  # it is alive, and the clock has jumped
            why = f"not renewed for {max(age, _WATCHED * renew_every):.0f} s"
        if why is None:
            raise UserError(_in_use(path, holder, beside))
        if _replace(path, holder, beside, stale_after):
            return f"took over {path} from {holder or 'an unknown holder'}: {why}"
    return None


def _read(path: Path) -> Holder | None:
    """The holder in the lock `path`; None if the lock is missing or holds something else."""
    try:
        # Opening the file makes an NFS client refresh its attributes.
        content = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return dataclass_from(Holder, content) if isinstance(content, dict) else None


def _changes(path: Path, seconds: float) -> bool:
    """Whether the lock `path` is renewed, replaced or removed within `seconds`."""

    def version() -> tuple[int, int] | None:
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            return status.st_ino, status.st_mtime_ns
        return None

    before = version()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(min(seconds / 20, 0.5))
        if version() != before:
            return True
    return False


def _remove_abandoned(folder: Path, stale_after: float) -> None:
    """Removes the files of starts that were killed while they tried to take the lock."""
    now = (folder / LOCK).stat().st_mtime
    for left in folder.glob(f"{_BESIDE}*"):
        with contextlib.suppress(FileNotFoundError):
            if now - left.stat().st_mtime > stale_after:
                left.unlink()


def _appear(beside: Path, path: Path) -> bool:
    """Atomically gives the file `beside` the additional name `path`; False if `path` exists."""
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
    """Rename `beside` over the stale lock; False if another start has replaced that lock
    already."""
    # Two starts may see the same stale lock; the second must not replace the lock that the first
    # has just written.
    guard = path.with_name(LOCK + ".takeover")
    while not _appear(beside, guard):
        age = _age(guard, beside)
        if age is not None and age > stale_after:
            guard.unlink(missing_ok=True)
        time.sleep(0.02)
    try:
        if read_holder(path.parent) != stale:
            return False
        os.utime(beside)
        os.replace(beside, path)
    finally:
        guard.unlink(missing_ok=True)
    return True


def _age(path: Path, beside: Path) -> float | None:
    """Seconds since `path` was touched, by the clock of the file system; None if `path` does not
    exist."""
    os.utime(beside)
    try:
        return beside.stat().st_mtime - path.stat().st_mtime
    except FileNotFoundError:
        return None


def _same_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _in_use(path: Path, holder: Holder | None, beside: Path) -> str:
    """The message that another process holds the lock, with the cure. A stuck loop does not see the
    file `stop`."""
    renewed = _age(path, beside) or 0.0
    moved = _age(path.parent / STATE, beside)
    loop = "has not reported yet" if moved is None else f"last reported {max(moved, 0):.0f} s ago"
    cure = f"touch {path.parent / 'stop'}"
    if moved is None or moved > STALE_AFTER:
        cure = holder.cure if holder else "a signal to its process"
    return (
        f"{path}: {holder or 'another process'} is writing this run (lock renewed {max(renewed, 0):.0f} s ago, "
        f"its loop {loop}); wait for it, or end it with: {cure}"
    )
