"""Files that a configuration names: a user's Python functions and tables."""

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from simulator.errors import UserError, in_a_line
from simulator.files import UNRECORDED, Journal, read_json, replace_file, replace_json

INDEX = "inputs.json"
_MOST_BYTES = 1 << 28


class Inputs:
    """Opens input files, and keeps copies of them in `RUN/inputs` with their checksums.

    A copy in the folder takes the place of its original, so that a continued run does not change
    with the original. `archive.stored_state.RunInputs` opens snapshots and checkpoints too."""

    def __init__(self, folder: Path | None = None):
        self._read: dict[str, bytes] = {}
        # Files that are too large for a copy; the run keeps their checksums.
        self.large: set[Path] = set()
        self._given: dict[tuple[str, str], Any] = {}
        self._folder = folder
        self._kept: dict[str, dict[str, str]] = {}
        self._lost = False  # Whether the index is damaged: then originals have to equal the copies.
        if folder is not None and (folder / INDEX).exists():
            self._kept = read_json(folder / INDEX)
            self._lost = not self._kept

    def read(self, path: str) -> bytes:
        """The contents of `path`, or of the run's copy. Raises UserError if it cannot be read."""
        if path not in self._read:
            source = copy = Path(path)
            if self._folder is not None and (path in self._kept or self._lost):
                copy = self._folder / self._kept.get(path, {}).get("file", source.name)
            sums = {self._kept[path]["sha256"]} if path in self._kept else set[str]()
            content = _content(source if self._lost else copy)
            if self._lost and copy.is_file():
                sums.add(_checksum(_content(copy)))
            elif sums and _checksum(content) not in sums and source.is_file():
                content = _content(source)  # a damaged copy is made again from the same original
                del self._kept[path]
            if sums and _checksum(content) not in sums:
                raise UserError(
                    f"{copy}: the run's copy of {path} was altered; put it back or use --overwrite"
                )
            self._read[path] = content
        return self._read[path]

    def function(
        self, path: str, name: str, what: Literal["function", "class"] = "function"
    ) -> Callable[..., Any]:
        """The function or class `name` of the Python file `path`. Raises UserError if there is
        none."""
        if (path, name) in self._given:
            return self._given[path, name]
        code = self.read(path)
        spec = importlib.util.spec_from_loader(
            f"simulator_input_{Path(path).stem}", loader=None, origin=path
        )
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        module.__file__ = path
        sys.modules[spec.name] = module  # dataclasses and annotations look up their module
        beside = str(Path(path).parent)
        sys.path.insert(0, beside)  # the file may import modules beside it
        try:
            exec(compile(code, path, "exec"), module.__dict__)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise UserError(
                f"{path}{_line(error, path)}: cannot be run: {in_a_line(error)}"
            ) from error
        finally:
            sys.path.remove(beside)
        function = getattr(module, name, None)
        if not callable(function):
            defined = [
                n
                for n, v in vars(module).items()
                if getattr(v, "__module__", None) == module.__name__
            ]
            raise UserError(
                f"{path}: has no {what} {name!r}; it has {', '.join(defined) or 'none'}"
            )
        return function

    def give(self, path: str, name: str, definition: Callable[..., Any]) -> None:
        """Registers a function or class of a script or notebook under the file `path` and its name.
        If the file exists, the run keeps a copy of it."""
        self._given[path, name] = definition
        if Path(path).is_file():
            self.read(path)

    def keep(self, folder: Path, journal: Journal = UNRECORDED) -> None:
        """Writes copies of all files that were read so far, with an index of paths and
        checksums."""
        for path, content in self._read.items():
            if path in self._kept:
                continue
            taken = {entry.get("file") for entry in self._kept.values()}
            checksum = _checksum(content)
            name = (
                Path(path).name
                if Path(path).name not in taken
                else f"{checksum[:8]}_{Path(path).name}"
            )
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(folder / name, content, journal)
            self._kept[path] = {"file": name, "sha256": checksum}
        for path in sorted(self.large):
            with path.open("rb") as file:
                checksum = hashlib.file_digest(file, "sha256").hexdigest()
            if self._kept.get(str(path), {"sha256": checksum})["sha256"] != checksum:
                raise UserError(
                    f"{path}: has changed since this run began; put it back or use --overwrite"
                )
            self._kept[str(path)] = {"sha256": checksum}
        if self._kept and (self._read or self.large):
            folder.mkdir(parents=True, exist_ok=True)
            replace_json(folder / INDEX, self._kept, journal)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > _MOST_BYTES:
        raise UserError(
            f"{path}: too large for a table or a Python file, of which the run keeps a copy"
        )
    return content


def _line(error: BaseException, path: str) -> str:
    if isinstance(error, SyntaxError):
        return f":{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)[::-1]
    return next((f":{frame.lineno}" for frame in frames if frame.filename == path), "")


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
