"""The files that a run reads: one record of them with their checksums, and copies of small ones."""

import hashlib
import os
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from simulator.errors import UserError, did_you_mean, in_a_line
from simulator.files import UNRECORDED, Journal, checksum, read_json, replace_file, replace_json
from simulator.physics.user_function import Generators
from simulator.simulation.user_modules import neighbours, user_module
from simulator.words import counted

INDEX = "inputs.json"
_MOST_BYTES = 1 << 28
_SAMPLE = 1 << 16
_SAMPLES = 64


class Inputs:
    """Opens input files, and keeps a record of them in `RUN/inputs`.

    Python files, the modules beside them and tables are copied. A copy in the folder takes the
    place of its original, so that a continued run does not change with the original. Of all other
    files the run keeps the checksums, and refuses to continue with changed ones.
    `archive.stored_state.RunInputs` opens snapshots and arrays too."""

    def __init__(self, folder: Path | None = None):
        self._read: dict[str, bytes] = {}
        self._digested: set[Path] = set()
        self._series: dict[str, list[str]] = {}
        self._given: dict[tuple[str, str], Any] = {}
        self._modules: dict[str, tuple[ModuleType, Generators | None]] = {}
        self._folder = folder
        index = folder / INDEX if folder is not None else None
        self._kept: dict[str, dict[str, Any]] = read_json(index) if index else {}
        # Whether the index is damaged: then originals have to equal the copies.
        self._lost = index is not None and index.exists() and not self._kept
        self._lines: list[str] = []
        self.traces: dict[str, str] = {}
        """Checksums of what users' functions compute, if `compares` is set."""
        self.compares = False

    def exists(self, path: Path) -> bool:
        return "file" in self._kept.get(str(path), {}) or path.is_file()

    def read(self, path: str) -> bytes:
        """The contents of `path`, or of the run's copy. Raises UserError if it cannot be read."""
        if path not in self._read:
            source = copy = Path(path)
            kept = self._kept.get(path, {})
            if self._folder is not None and ("file" in kept or self._lost):
                copy = self._folder / kept.get("file", source.name)
            sums = {kept["sha256"]} if "sha256" in kept else set[str]()
            content = _content(source if self._lost else copy)
            if self._lost and copy.is_file():
                sums.add(_sum(_content(copy)))
            elif sums and _sum(content) not in sums and source.is_file():
                content = _content(source)  # a damaged copy is made again from the same original
                del self._kept[path]
            if sums and _sum(content) not in sums:
                raise UserError(
                    f"{copy}: the run's copy of {path} was altered; put it back or use --overwrite"
                )
            self._read[path] = content
        return self._read[path]

    def digest(self, path: Path) -> None:
        """Record a file that is too large for a copy by its checksum."""
        self._digested.add(path)

    def record_series(self, path: str, snapshots: Sequence[str]) -> None:
        """Record which snapshots a series consists of."""
        self._series[path] = list(snapshots)

    def function(
        self, path: str, name: str, what: Literal["function", "class"] = "function"
    ) -> Callable[..., Any]:
        """The function or class `name` of the Python file `path`. Raises UserError if there is
        none."""
        if (path, name) in self._given:
            return self._given[path, name]
        module, _ = self._module(path)
        function = getattr(module, name, None)
        if not callable(function):
            defined = [
                n
                for n, v in vars(module).items()
                if getattr(v, "__module__", None) == module.__name__
                and isinstance(v, type) == (what == "class")
            ]
            meant = did_you_mean(name, defined)
            raise UserError(
                f"{path}: has no {what} {name!r}{meant} it has {', '.join(defined) or 'none'}"
            )
        return function

    def generators(self, path: str) -> Generators | None:
        """The states that a Python file has given to the global generators of random numbers; None
        if it has left them alone."""
        return self._modules[path][1] if path in self._modules else None

    def _module(self, path: str) -> tuple[ModuleType, Generators | None]:
        if path not in self._modules:
            for file in neighbours(Path(path), self.exists, self.read):
                self.read(str(file))
            try:
                with Generators.seeded(Path(path).name).in_use() as before:
                    module = user_module(Path(path), self)
                    after = Generators.now()
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                raise UserError(
                    f"{path}{_line(error, path)}: cannot be run: {in_a_line(error)}"
                ) from error
            self._modules[path] = module, None if after == before else after
        return self._modules[path]

    def take_changed(self, path: str) -> None:
        """Use the original of a Python file of which the run keeps a copy, if it has changed and
        nothing has read the copy yet."""
        if self._folder is None or not Path(path).is_file():  # of a notebook, perhaps
            return
        for file in (path, *map(str, neighbours(Path(path), self.exists, self._current))):
            kept = self._kept.get(file, {})
            if file in self._read or "file" not in kept or not Path(file).is_file():
                continue
            if _sum(self._current(file)) != kept["sha256"]:
                del self._kept[file]
                self._lines.append(f"{file}: has changed and is used from here on (output.python)")

    def _current(self, path: str) -> bytes:
        """The original if it is there, else the run's copy."""
        return _content(Path(path)) if Path(path).is_file() else self.read(path)

    def give(self, path: str, name: str, definition: Callable[..., Any]) -> None:
        """Registers a function or class of a script or notebook under the file `path` and its name.
        If the file exists, the run keeps a copy of it."""
        self._given[path, name] = definition
        if Path(path).is_file():
            self.read(path)

    def digests(self) -> dict[str, str]:
        """A checksum of everything that was read, and of what users' functions compute, by name;
        of large files a sample."""
        files = {path: f"checksum {_sum(content)[:8]}" for path, content in self._read.items()}
        files |= {str(path): _sampled(path, *_version(path)) for path in self._digested}
        files |= {path: counted(len(names), "snapshot") for path, names in self._series.items()}
        seed = "random numbers need a seed, as in numpy.random.default_rng(1)"
        computed = {f"{name} ({seed})": f"checksum {s[:8]}" for name, s in self.traces.items()}
        return files | computed

    def compare(self, folder: Path) -> list[str]:
        """Compares what was read with the record in `folder`, which the run keeps from then on;
        returns lines about originals that differ from the copies in use.

        Raises UserError for a change of anything else."""
        if self._folder is None:
            self._kept = read_json(folder / INDEX)
        lines = list(self._lines)
        changed = []
        for path, kept in self._kept.items():
            if "file" not in kept:
                continue
            if path in self._read and _sum(self._read[path]) != kept["sha256"]:
                changed.append(f"{path}: has changed since this run began; {_CURES}")
            elif Path(path).is_file() and _sum(_content(Path(path))) != kept["sha256"]:
                copy = folder / kept["file"]
                lines.append(f"{path}: differs from the run's copy {copy}, which is used; {_NEW}")
        for path in sorted(self._digested):
            if self._kept.get(str(path), {"sha256": (now := _file_sum(path))})["sha256"] != now:
                changed.append(f"{path}: has changed since this run began; {_CURES}")
        for path, names in self._series.items():
            before = self._kept.get(path, {}).get("snapshots", names)
            if names[: len(before)] != before:
                changed.append(f"{path}: has other snapshots than when this run began; {_CURES}")
            elif len(names) > len(before):
                lines.append(
                    f"{path}: has {counted(len(names), 'snapshot')} now, and had {len(before)}"
                )
        if changed:
            raise UserError(*changed)
        return lines

    def keep(self, folder: Path, journal: Journal = UNRECORDED) -> None:
        """Writes copies of all files that were read so far, with an index of paths and
        checksums."""
        for path, content in self._read.items():
            if path in self._kept:
                continue
            taken = {entry.get("file") for entry in self._kept.values()}
            digest = _sum(content)
            name = Path(path).name
            name = name if name not in taken else f"{digest[:8]}_{name}"
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(folder / name, content, journal)
            self._kept[path] = {"file": name, "sha256": digest}
        self._kept |= {str(path): {"sha256": _file_sum(path)} for path in self._digested}
        self._kept |= {path: {"snapshots": names} for path, names in self._series.items()}
        if self._read or self._digested or self._series:
            folder.mkdir(parents=True, exist_ok=True)
            replace_json(folder / INDEX, self._kept, journal)


_NEW = "to use the new one, begin again with --overwrite or --output DIR"
_CURES = f"put it back, or {_NEW.removeprefix('to use the new one, ')}"


def _content(source: Path) -> bytes:
    try:
        with source.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UserError(f"{source}: cannot be read: {error.strerror}") from None
    if len(content) > _MOST_BYTES:
        raise UserError(
            f"{source}: too large for a table or a Python file, of which the run keeps a copy"
        )
    return content


def _line(error: BaseException, path: str) -> str:
    if isinstance(error, SyntaxError) and error.filename == path:
        return f":{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)[::-1]
    return next((f":{frame.lineno}" for frame in frames if frame.filename == path), "")


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _file_sum(path: Path) -> str:
    return _sum_of(path, *_version(path))


def _version(path: Path) -> tuple[int, int]:
    """Size and time of a file, with which a checksum is computed once for each command."""
    try:
        status = path.stat()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    return status.st_size, status.st_mtime_ns


@lru_cache
def _sum_of(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@lru_cache
def _sampled(path: Path, size: int, changed: int) -> str:
    """A checksum that every process of a run can afford: of a large file, pieces all over it."""

    def pieces() -> Iterable[bytes]:
        step = max(size // _SAMPLES, _SAMPLE)
        with path.open("rb", buffering=0) as file:
            for start in range(0, size, step):
                file.seek(start)
                yield file.read(_SAMPLE if size > _MOST_BYTES else step)
            file.seek(max(size - _SAMPLE, 0), os.SEEK_SET)
            yield file.read(_SAMPLE)

    return f"checksum {checksum(pieces())[1][:8]} of {size} bytes"
