"""Files that a configuration names: the user's Python functions and tables."""

import hashlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.errors import UserError
from simulator.files import replace_file, replace_json

if TYPE_CHECKING:
    from simulator.run.stored import StoredFields

INDEX = "inputs.json"


class Inputs:
    """Opens input files, and keeps copies of them in `RUN/inputs` with their checksums.

    Where the folder holds a copy, the copy is what runs: a continued run does not change because the original did.
    """

    def __init__(self, folder: Path | None = None):
        self._read: dict[str, bytes] = {}
        self._folder = folder
        self._kept: dict[str, dict[str, str]] = {}
        if folder is not None and (folder / INDEX).exists():
            self._kept = json.loads((folder / INDEX).read_text())

    def read(self, path: str) -> bytes:
        """The contents of `path`, or of the run's copy. UserError where it cannot be read."""
        if path not in self._read:
            source = Path(path)
            if self._folder is not None and path in self._kept:
                source = self._folder / self._kept[path]["file"]
            try:
                self._read[path] = source.read_bytes()
            except OSError as error:
                raise UserError(f"{source}: cannot be read: {error.strerror}") from None
            if path in self._kept and _checksum(self._read[path]) != self._kept[path]["sha256"]:
                raise UserError(
                    f"{source}: the run's copy of {path} was altered; put it back or use --overwrite"
                )
        return self._read[path]

    def function(self, path: str, name: str) -> Callable[..., Any]:
        """The function `name` of the Python file `path`. UserError where there is none."""
        code = self.read(path)
        spec = importlib.util.spec_from_loader(f"simulator_input_{Path(path).stem}", loader=None, origin=path)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        module.__file__ = path
        beside = str(Path(path).parent)
        sys.path.insert(0, beside)  # its own imports lie beside it
        try:
            exec(compile(code, path, "exec"), module.__dict__)
        except Exception as error:
            line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
            raise UserError(f"{path}{line}: cannot be run: {type(error).__name__}: {error}") from error
        finally:
            sys.path.remove(beside)
        function = getattr(module, name, None)
        if not callable(function):
            own = [n for n, v in vars(module).items() if getattr(v, "__module__", None) == module.__name__]
            raise UserError(f"{path}: has no function {name!r}; it has {', '.join(own) or 'none'}")
        return function

    def snapshot(self, path: str) -> "StoredFields":
        """A snapshot or checkpoint of a run. It is read in place: the run's own checkpoints make it dispensable."""
        from simulator.run.stored import StoredFields

        return StoredFields(path)

    def keep(self, folder: Path) -> None:
        """Writes the copies of everything that was read so far, with an index of paths and checksums."""
        for path, content in self._read.items():
            if path in self._kept:
                continue
            taken = {entry["file"] for entry in self._kept.values()}
            checksum = _checksum(content)
            name = Path(path).name if Path(path).name not in taken else f"{checksum[:8]}_{Path(path).name}"
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(folder / name, content)
            self._kept[path] = {"file": name, "sha256": checksum}
        if self._kept and self._read:
            replace_json(folder / INDEX, self._kept)


def altered(folder: Path) -> Iterator[tuple[Path, str | None]]:
    """Each copy in `RUN/inputs`, with what is wrong with it (None: nothing)."""
    if not (folder / INDEX).exists():
        return
    for entry in json.loads((folder / INDEX).read_text()).values():
        path = folder / entry["file"]
        if not path.is_file():
            yield path, "missing"
        else:
            good = _checksum(path.read_bytes()) == entry["sha256"]
            yield path, None if good else "altered (its checksum does not match)"


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
