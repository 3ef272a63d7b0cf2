"""Compares the files of a run with its ledger, one by one; the run may go on meanwhile."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import xxhash

from simulator.archive.ledger import GROWING, Book, Record, is_save
from simulator.archive.state import read_state
from simulator.archive.verify_snapshot import ALTERED
from simulator.files import checksum, pieces_of, reason


class Audit:
    """The ledger of the run in `folder`, for checks of its files. Threads may share it.

    A file that differs from the ledger as it was first read may have been replaced since. The ledger announced that
    replacement before, so its new lines decide.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Read before the ledger, so that it never records lines that we have not read.
        state = read_state(folder)
        head = (state.ledger_lines, state.ledger_chain) if state and state.ledger_lines else None
        self._book = Book(folder, head)
        self._lock = threading.Lock()
        self.expected = self._book.exists or head is not None
        """Whether the run has, or had, a ledger."""

    def ledger_problem(self) -> str | None:
        """A description of the ledger's own damage; None if it is intact."""
        if not self._book.exists:
            return "missing"
        return "; ".join(self._book.problems[:3]) or None

    @property
    def has_state(self) -> bool:
        """Whether state.json should be there."""
        return not self._book.exists or self._book.has_state

    def names(self, saves: bool) -> Iterator[str]:
        """The recorded files that should exist: those of snapshots and checkpoints, or all others."""
        return (name for name in list(self._book.records) if is_save(name) == saves)

    def knows(self, name: str) -> bool:
        return name in self._book.records

    def knows_by_now(self, path: Path) -> bool:
        """Whether `path` is recorded; the ledger is read again."""
        name = path.relative_to(self.folder).as_posix()
        self._acceptable(name, again=True)
        return self.knows(name)

    def removed(self, name: str) -> bool:
        """Whether the run removed a missing file itself; the ledger is read again."""
        return None in self._acceptable(name, again=True)

    def as_written(self, path: Path) -> bool | None:
        """Whether `path` is as recorded; None if it is not recorded, or was removed or replaced on purpose."""
        name = path.relative_to(self.folder).as_posix()
        if not self.knows(name):
            return None
        try:
            return self.problem(name) is None
        except OSError:
            return False

    def problem(self, name: str) -> str | None:
        """A description of a recorded file's damage; None if it is intact. Raises OSError if it cannot be read."""
        return (self._growing if name in GROWING else self._whole)(name)

    def unrecorded_tail(self, name: str) -> bool:
        """Whether a growing file has bytes that no line of the ledger records yet."""
        record = self._book.records.get(name)
        path = self.folder / name
        return record is None or (path.is_file() and path.stat().st_size > record[0])

    def _whole(self, name: str) -> str | None:
        path = self.folder / name
        now = checksum(pieces_of(path)) if path.exists() else None
        if now in self._acceptable(name) or now in (known := self._acceptable(name, again=True)):
            return None
        recorded = [record for record in known if record is not None]
        return _words(now, recorded[-1]) if recorded else None

    def _growing(self, name: str) -> str | None:
        path = self.folder / name
        if not path.exists():
            return None if self.removed(name) else "missing"
        with open(path, "rb", buffering=0) as file:
            for again in (False, True):
                known = [r for r in self._acceptable(name, again=again) if r is not None]
                size = os.fstat(file.fileno()).st_size
                for record in known:
                    if size >= record[0] and _prefix(file.fileno(), record[0]) == record[1]:
                        more = size - record[0] if self._book.ended else 0
                        return f"too long: {size} bytes, not {record[0]}" if more else None
        if not known:
            return None
        last = known[-1]
        return f"short: {size} bytes, not {last[0]}" if size < last[0] else ALTERED

    def _acceptable(self, name: str, again: bool = False) -> list[Record | None]:
        with self._lock:
            if again:
                self._book.read()
            return self._book.acceptable(name)


def lost_or_altered(audit: Audit) -> Iterator[str]:
    """A line for each file outside of snapshots and checkpoints that differs from its record."""
    for name in audit.names(saves=False):
        try:
            problem = audit.problem(name)
        except OSError as error:
            problem = reason(error)
        if problem:
            yield f"{audit.folder / name}: {problem}"


def _prefix(descriptor: int, size: int) -> str:
    digest, place = xxhash.xxh3_64(), 0
    while place < size and (piece := os.pread(descriptor, min(1 << 20, size - place), place)):
        digest.update(piece)
        place += len(piece)
    return digest.hexdigest()


def _words(now: Record | None, recorded: Record) -> str:
    if now is None:
        return "missing"
    return ALTERED if now[0] == recorded[0] else f"altered: {now[0]} bytes, not {recorded[0]}"
