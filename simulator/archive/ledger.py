"""`RUN/ledger.json`: the files that the run wrote, with checksums, and the files that it removed.

The ledger is one table. The run replaces it whole before it replaces or removes a file; its last
line is the xxh3 of the other lines. Names are relative to the run folder, a record is the number of
bytes and their xxh3:

    "files": {NAME: RECORD}             files that should exist; for a growing file, the record of its first bytes
    "before": {NAME: RECORD or null}    the previous record of a file whose replacement was announced
    "removed": {NAME: WHY}              files and folders that the run removed
    "state": true                       state.json was written; it carries its own checksum
    "ended": TEXT or null               how the run ended, after which it wrote nothing more
    "saves": N                          how often the table was written

A run may be killed after it has written the table and before the replacement that the table
announces, so a file may match either record until the next table. `state.json` holds the newest
`saves`, so that an older copy of the ledger is noticed."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from simulator.archive.run_state import read_state
from simulator.archive.seal import ALTERED, sealed_json, unsealed_json
from simulator.files import AppendedFile, Journal, checksum, pieces_of, reason, replace_file

NAME = "ledger.json"
SAVES = ("snapshots", "checkpoints")
"""The folders of a run whose entries are committed folders."""
GROWING = ("diagnostics.csv", "run.log")
"""Files that only grow; a record covers the bytes that the file had at the time of the record."""
MARK_EVERY = 60.0  # Seconds between two records of growing files, unless one is requested earlier.
Record = tuple[int, str]  # Number of bytes, and xxh3.


def is_save(name: str) -> bool:
    return name.partition("/")[0] in SAVES


@dataclass
class Records:
    """The contents of a ledger. `problem`: the damage of an unusable ledger, whose other contents
    are empty."""

    files: dict[str, Record] = field(default_factory=dict)
    before: dict[str, Record | None] = field(default_factory=dict)
    removed: dict[str, str] = field(default_factory=dict)
    state: bool = False
    ended: str | None = None
    saves: int = 0
    problem: str | None = None

    def acceptable(self, name: str) -> list[Record | None]:
        """The records that the file `name` may match now; None among them means that the file may
        be absent."""
        records = [self.files.get(name)]
        if name in self.before:
            records.append(self.before[name])
            if is_save(name):  # a commit removes the previous version before the rename
                records.append(None)
        return records

    def keep(self, name: str, record: Iterable[Any]) -> None:
        size, digest = record
        self.files[name] = (int(size), str(digest))
        for gone in (name, name.rpartition("/")[0]):
            self.removed.pop(gone, None)

    def remove(self, name: str, why: str) -> None:
        """Record that the run removes `name` and everything below it."""
        for known in [n for n in self.files if n == name or n.startswith(f"{name}/")]:
            del self.files[known]
            self.before.pop(known, None)
        self.removed[name] = why


def read_ledger(folder: Path) -> Records | None:
    """The ledger of the run in `folder`; None if there is none."""
    path = folder / NAME
    try:
        if not os.path.lexists(path):
            return None
        content = unsealed_json(path.read_bytes())
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Records(problem=f"cannot be read ({reason(error)})")
    if content is None:
        return Records(problem=ALTERED)
    for records in (content["files"], content["before"]):
        records.update(
            {name: tuple(record) if record else None for name, record in records.items()}
        )
    return Records(**content)


def recorded_saves(parent: Path) -> frozenset[str]:
    """The names of the committed folders in `parent` that the run's ledger records."""
    try:
        now = (parent.parent / NAME).stat()
    except OSError:
        return frozenset()
    return _recorded_saves(parent, (now.st_ino, now.st_mtime_ns))


@lru_cache(maxsize=16)
def _recorded_saves(parent: Path, version: tuple[int, int]) -> frozenset[str]:
    """The names in this version of the ledger, which is read once."""
    records = read_ledger(parent.parent) or Records()
    files = (name.split("/") for name in records.files)
    return frozenset(
        name for kind, name, *_ in (f for f in files if len(f) > 1) if kind == parent.name
    )


class Ledger(Journal):
    """The ledger of a live run. Several threads may call its methods."""

    def __init__(
        self,
        folder: Path,
        own: Iterable[Path] = (),
        check: Callable[[], None] = lambda: None,
        sync: bool = True,
    ) -> None:
        """Continue the ledger in `folder`, or begin a new one.

        `own`: files of the run that may exist already; files without a record are recorded as they
        are. `check` is called before each change and raises if another process has taken over the
        folder. Without `sync` only the last table of a start is durable."""
        self.folder = folder
        self._check = check
        self.sync = sync
        self._lock = threading.RLock()
        self._growing: dict[str, AppendedFile] = {}
        self._next_mark = 0.0
        known = read_ledger(folder) or Records()
        self._records = Records() if known.problem else known
        self._settle()
        for path in own:
            if (name := self._name(path)) not in known.files and name not in GROWING:
                self._records.keep(name, checksum(pieces_of(path)))
        self.save()

    @property
    def saves(self) -> int:
        """How often the ledger was written, for `state.json`."""
        return self._records.saves

    def writing(self, path: Path, size: int, digest: str) -> None:
        name = self._name(path)
        with self._lock:
            self._records.before[name] = self._records.files.get(name)
            self._records.keep(name, (size, digest))
            self.save()

    def written(self, path: Path) -> None:
        with self._lock:
            self._records.before.pop(self._name(path), None)

    def kept(self, paths: Iterable[Path]) -> None:
        if records := {
            self._name(path): checksum(pieces_of(path)) for path in paths if path.is_file()
        }:
            with self._lock:
                for name, record in records.items():
                    self._records.before.pop(name, None)
                    self._records.keep(name, record)
                self.save()

    def removing(self, path: Path, why: str) -> None:
        with self._lock:
            self._records.remove(self._name(path), why)
            self.save()

    def appending(self, path: Path) -> AppendedFile:
        file = AppendedFile(path)
        with self._lock:
            self._growing[self._name(path)] = file
        return file

    def mark(self, *, now: bool = False, ended: str | None = None) -> None:
        """Record the growing files, at most once a minute unless `now` is set or the run has
        `ended`."""
        if not (now or ended) and time.monotonic() < self._next_mark:
            return
        with self._lock:
            self._next_mark = time.monotonic() + MARK_EVERY
            marks = {name: file.mark for name, file in self._growing.items()}
            changed = [
                name for name, mark in marks.items() if self._records.files.get(name) != mark
            ]
            for name in changed:
                if self.sync or ended:
                    self._growing[name].sync()
                self._records.keep(name, marks[name])
                self._records.before.pop(name, None)
            if changed or ended:
                self.save(ended)

    def state_written(self) -> None:
        if not self._records.state:
            with self._lock:
                self._records.state = True
                self.save()

    def _settle(self) -> None:
        """Record the present state of the files whose replacement a killed run had announced."""
        records = self._records
        for name, old in list(records.before.items()):
            path = self.folder / name
            if not path.is_file():
                if None in records.acceptable(name):
                    records.remove(name, "never written")
            elif name not in GROWING and (now := checksum(pieces_of(path))) in (
                old,
                records.files[name],
            ):
                records.keep(name, now)
                del records.before[name]

    def save(self, ended: str | None = None) -> None:
        """Replace the table on disk by the present one. `ended`: the state in which the run has
        ended."""
        with self._lock:
            self._check()
            self._records.ended = ended
            self._records.saves = self._records.saves + 1
            content = asdict(self._records)
            del content["problem"]
            replace_file(
                self.folder / NAME, sealed_json(content), sync=self.sync or ended is not None
            )

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()


class Audit:
    """Checks the files of the run in `folder` against the run's ledger. Threads may share an audit.

    The run may go on meanwhile: a file that differs from the ledger may have been replaced after
    the ledger was read, but then a newer ledger has announced the replacement."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Before the ledger, which is never older than a state that was read earlier.
        state = read_state(folder)
        self._saves = state.ledger if state else 0
        records = read_ledger(folder)
        self._records = records or Records()
        self._exists = records is not None
        self.expected = self._exists or self._saves > 0  # Whether the run has, or had, a ledger.

    def ledger_problem(self) -> str | None:
        """A description of the ledger's own damage; None if it is intact."""
        if not self._exists:
            return "missing"
        older = self._records.saves < self._saves
        return self._records.problem or ("older than state.json" if older else None)

    @property
    def has_state(self) -> bool:
        """Whether state.json should exist."""
        return not self._exists or self._records.state

    def names(self, saves: bool) -> Iterator[str]:
        """The recorded files that should exist: of snapshots and checkpoints if `saves`, else all
        other files."""
        return (name for name in list(self._records.files) if is_save(name) == saves)

    def knows(self, name: str) -> bool:
        return name in self._records.files

    def is_recorded(self, path: Path) -> bool:
        """Whether `path` matches its record; true if it has none, or if the run has removed or
        replaced the file."""
        name = path.relative_to(self.folder).as_posix()
        try:
            return not self.knows(name) or self.problem(name) is None
        except OSError:
            return False

    def removed(self, name: str) -> bool:
        """Reads the ledger again; returns whether the run itself removed the missing file
        `name`."""
        self._read()
        return None in self._records.acceptable(name)

    def problem(self, name: str) -> str | None:
        """A recorded file's damage; None if the file is intact. Raises OSError if it is
        unreadable."""
        while True:
            known = self._records
            if (damage := self._damage(name, known)) is None:
                return None
            now = self._read()
            if now.acceptable(name) == known.acceptable(name) and now.ended == known.ended:
                return damage

    def _read(self) -> Records:
        self._records = read_ledger(self.folder) or self._records
        return self._records

    def _damage(self, name: str, known: Records) -> str | None:
        path = self.folder / name
        acceptable = known.acceptable(name)
        recorded = [record for record in acceptable if record is not None]
        if not recorded:
            return None
        if not path.exists():
            return None if None in acceptable else "missing"
        if name not in GROWING:
            now = checksum(pieces_of(path))
            wanted = recorded[-1][0]
            altered = ALTERED if now[0] == wanted else f"altered: {now[0]} bytes, not {wanted}"
            return None if now in recorded else altered
        size = path.stat().st_size
        for length, digest in recorded:
            if size >= length and checksum(pieces_of(path, length)) == (length, digest):
                return (
                    f"too long: {size} bytes, not {length}"
                    if known.ended and size > length
                    else None
                )
        length = recorded[-1][0]
        return f"short: {size} bytes, not {length}" if size < length else ALTERED


def lost_or_altered(audit: Audit) -> Iterator[tuple[str, str]]:
    """The name and the problem of each file outside of snapshots and checkpoints that differs from
    its record."""
    for name in audit.names(saves=False):
        try:
            problem = audit.problem(name)
        except OSError as error:
            problem = reason(error)
        if problem:
            yield name, problem
