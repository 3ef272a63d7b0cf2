"""`RUN/ledger.jsonl`: a record of the files that the run wrote, with checksums, and of those that it removed.

One line per event, appended by the process that holds the run's lock:

    {"writing": NAME, "is": [BYTES, XXH3]}      a file is about to be replaced whole
    {"kept": {NAME: [BYTES, XXH3], ...}}        files that are complete
    {"removing": NAME, "why": TEXT}             a file or folder is about to be removed
    {"upto": {NAME: [BYTES, XXH3]}, ...}        tables and logs, which only grow: their first BYTES bytes
    {"state": "written"}                        state.json exists; it carries its own checksum

Names are relative to the run folder. Each line ends with the xxh3 of the previous line's chain and its own text
(`chain`), and `state.json` stores the newest chain, so that a line that is edited, removed or cut off is noticed.

A run may be killed between a line and the action that it announces. `writing` therefore precedes the rename: until a
later line of the same thread shows that the rename has happened, the previous version of the file is acceptable too.
One background thread writes snapshots and checkpoints, the main thread all other files.
"""

import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import xxhash

from simulator.files import AppendedFile, Journal, checksum, pieces_of, reason, replace_file

NAME = "ledger.jsonl"
GROWING = ("diagnostics.csv", "run.log")
"""Files that only grow; a record holds for the bytes that the file had then."""
MARK_EVERY = 60.0
"""Seconds between two records of growing files, unless one is requested earlier."""
Record = tuple[int, str]
"""Number of bytes, and xxh3."""
_SAVES = ("snapshots/", "checkpoints/")
_BY_WRITER = (*_SAVES, "snapshots.vtkhdf")
"""Beginnings of the names that the background thread writes."""
_TAIL = re.compile(rb', "chain": "([0-9a-f]{16})"\}\n\Z')
_STEM = re.compile(r"\w+/\d+")
_START = b"0" * 16
_TOGETHER = 256
"""The largest number of files in one line."""


def is_save(name: str) -> bool:
    """Whether a recorded file belongs to a snapshot or checkpoint."""
    return name.startswith(_SAVES)


class Book:
    """The contents of a run's ledger. `read` may be called again while the run goes on.

    `records`: the newest record of each file that should exist. `before`: the previous record of the last announced
    file of each thread, as long as nothing shows that the file has been replaced. `since`: all records (None:
    removed) of a file in later calls of `read`. `has_state`: state.json was written. `ended`: the run wrote nothing
    more. `problems`: damage of the ledger itself.
    """

    def __init__(self, folder: Path, head: tuple[int, str] | None = None) -> None:
        """Reads the ledger. `head`: the number of lines and the last chain that `state.json` records."""
        self.path = folder / NAME
        self.records: dict[str, Record] = {}
        self.before: dict[str, Record | None] = {}
        self.since: dict[str, list[Record | None]] = {}
        self.problems: list[str] = []
        self.lines, self.size, self.ended, self.has_state = 0, 0, False, False
        self.chain = _START
        self._suffixes: set[str] = {""}  # of all files of snapshots and checkpoints: /manifest.json, .h5
        self._head, self._again = head, False
        self.exists = self.path.exists()
        if self.exists:
            self.read()
        self._again = True
        if self.exists and head is not None and self.lines < head[0]:
            self.problems.append(f"short: {self.lines} lines, not {head[0]}")

    def read(self) -> bool:
        """Read the new lines; returns whether there were any. An incomplete last line is left."""
        before = self.lines
        try:
            with open(self.path, "rb") as file:
                file.seek(self.size)
                for line in file:
                    if line.endswith(b"\n"):
                        self.size += len(line)
                        self.lines += 1
                        self._line(line)
        except OSError as error:  # a folder, perhaps
            self.problems.append(f"cannot be read ({reason(error)})")
        return self.lines > before

    def acceptable(self, name: str) -> list[Record | None]:
        """The records that the file may match now; None means that it may be absent."""
        records: list[Record | None] = [self.records.get(name), *self.since.get(name, ())]
        if name in self.before:
            records.append(self.before[name])
            if is_save(name):  # a commit removes the previous version before the rename
                records.append(None)
        return records

    def _line(self, line: bytes) -> None:
        tail = _TAIL.search(line)
        body = line[: tail.start()] if tail else b""
        whole = tail is not None and _chained(self.chain, body) == tail[1]
        if not whole:
            self.problems.append(f"line {self.lines}: altered, or lines before it are missing")
        self.chain = tail[1] if tail else self.chain
        if self._head is not None and self.lines == self._head[0] and self.chain.decode() != self._head[1]:
            self.problems.append(f"line {self.lines}: not the one that state.json records")
        if whole:
            self._note(json.loads(body + b"}"))

    def _note(self, entry: Mapping[str, Any]) -> None:
        self.ended = bool(entry.get("ended"))
        self.has_state |= "state" in entry
        if "writing" in entry:
            name = entry["writing"]
            self._settle(name.startswith(_BY_WRITER))
            self.before[name] = self.records.get(name)
            self._keep(name, entry["is"])
        for name, record in entry.get("kept", {}).items():
            self.before.pop(name, None)
            self._keep(name, record)
        if "upto" in entry:
            self._settle(False, entry.get("pending", ()))
            for name, record in entry["upto"].items():
                self._keep(name, record)
        if "removing" in entry:
            gone = entry["removing"]
            # a folder is removed with its contents and its index files
            for name in [n for n in self._below(gone) if n in self.records]:
                del self.records[name]
                self.before.pop(name, None)
                if self._again:
                    self.since.setdefault(name, []).append(None)

    def _below(self, gone: str) -> Iterable[str]:
        return [gone + suffix for suffix in self._suffixes] if is_save(gone) else [gone]

    def _settle(self, by_writer: bool, pending: Iterable[str] = ()) -> None:
        for name in [n for n in self.before if n.startswith(_BY_WRITER) == by_writer and n not in pending]:
            del self.before[name]

    def _keep(self, name: str, record: Iterable[Any]) -> None:
        size, digest = record
        if is_save(name) and (stem := _STEM.match(name)):
            self._suffixes.add(name[stem.end() :])
        self.records[name] = (int(size), str(digest))
        if self._again:
            self.since.setdefault(name, []).append(self.records[name])


class Ledger(Journal):
    """The ledger of a run that is being written. Its methods may be called from several threads."""

    def __init__(
        self, folder: Path, own: Iterable[Path] = (), check: Callable[[], None] = lambda: None
    ) -> None:
        """Continue the ledger in `folder`, or begin it.

        `own`: the run's files that may exist already; those without a record are recorded as they are. `check` is
        called before each line and raises if the folder is no longer this process's.
        """
        self.folder, self._check = folder, check
        self._lock = threading.RLock()
        self._growing: dict[str, AppendedFile] = {}
        self._marked: dict[str, Record] = {}
        self._pending: set[str] = set()
        self._next_mark = 0.0
        path = folder / NAME
        if not path.exists():
            first, _ = _encoded(_START, {"program": "simulator", "ledger": 1})
            replace_file(path, first)
        book = Book(folder)
        with open(path, "rb+") as file:
            file.truncate(book.size)  # drops the incomplete last line of a killed run
        self._file = AppendedFile(path)
        self.lines, self._chain = book.lines, book.chain
        self._has_state = book.has_state
        self._settle(book)
        new = (p for p in own if self._name(p) not in book.records and self._name(p) not in GROWING)
        while some := list(itertools.islice(new, _TOGETHER)):
            self.kept(some)

    @property
    def head(self) -> tuple[int, str]:
        """Number of lines and the last line's chain, for `state.json`."""
        with self._lock:
            return self.lines, self._chain.decode()

    def writing(self, path: Path, size: int, digest: str) -> None:
        with self._lock:
            self._pending.add(self._name(path))
            self._append({"writing": self._name(path), "is": [size, digest]})

    def written(self, path: Path) -> None:
        with self._lock:
            self._pending.discard(self._name(path))

    def kept(self, paths: Iterable[Path]) -> None:
        if records := {self._name(path): checksum(pieces_of(path)) for path in paths if path.is_file()}:
            with self._lock:
                self._append({"kept": records})
                self._pending.difference_update(records)

    def removing(self, path: Path, why: str) -> None:
        self._append({"removing": self._name(path), "why": why})

    def appending(self, path: Path) -> AppendedFile:
        file = AppendedFile(path)
        with self._lock:
            self._growing[self._name(path)] = file
        return file

    def mark(self, *, now: bool = False, ended: str | None = None) -> None:
        """Record the growing files, at most once a minute unless `now` is set or the run has `ended`."""
        if not (now or ended) and time.monotonic() < self._next_mark:
            return
        with self._lock:
            self._next_mark = time.monotonic() + MARK_EVERY
            marks = {name: file.mark for name, file in self._growing.items()}
            changed = {name: mark for name, mark in marks.items() if self._marked.get(name) != mark}
            if not changed and not ended:
                return
            for name in changed:
                self._growing[name].sync()
            entry: dict[str, Any] = {"upto": changed}
            if pending := sorted(name for name in self._pending if not name.startswith(_BY_WRITER)):
                entry["pending"] = pending
            self._append(entry | ({"ended": ended} if ended else {}))
            self._marked |= changed

    def state_written(self) -> None:
        """state.json was written."""
        if not self._has_state:
            self._append({"state": "written"})
            self._has_state = True

    def close(self) -> None:
        self._file.close()

    def _settle(self, book: Book) -> None:
        """Record the present state of the files that a killed run had announced."""
        for name, old in list(book.before.items()):
            path = self.folder / name
            if not path.is_file():
                if None in book.acceptable(name):
                    self._append({"removing": name, "why": "never written"})
                    book.records.pop(name)
            elif name not in GROWING and (now := checksum(pieces_of(path))) in (old, book.records[name]):
                self._append({"kept": {name: now}})

    def _append(self, entry: Mapping[str, Any]) -> None:
        with self._lock:
            self._check()
            line, chain = _encoded(self._chain, entry)
            self._file.append(line)
            self.lines, self._chain = self.lines + 1, chain
            self._file.sync()

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()


def _encoded(before: bytes, entry: Mapping[str, Any]) -> tuple[bytes, bytes]:
    body = json.dumps(entry).encode().removesuffix(b"}")
    chain = _chained(before, body)
    return body + b', "chain": "' + chain + b'"}\n', chain


def _chained(before: bytes, body: bytes) -> bytes:
    return xxhash.xxh3_64_hexdigest(before + body).encode()
