"""Files that a configuration names: the user's Python functions."""

import hashlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simulator.errors import UserError


class Inputs:
    """Opens input files. With a `folder` (RUN/inputs) a copy of each is kept there with its checksum, and the copy
    is what runs: a continued run does not change because the original did."""

    def __init__(self, folder: Path | None = None):
        self.folder = folder
        self.checksums: dict[str, str] = {}

    def function(self, path: str, name: str) -> Callable[..., Any]:
        """The function `name` of the Python file `path`. UserError where there is none."""
        source = self._source(Path(path))
        spec = importlib.util.spec_from_file_location(f"simulator_input_{source.stem}", source)
        if spec is None or spec.loader is None:
            raise UserError(f"{path}: is no Python file")
        module = importlib.util.module_from_spec(spec)
        sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise UserError(f"{path}: cannot be imported: {type(error).__name__}: {error}") from error
        finally:
            sys.dont_write_bytecode = before
        function = getattr(module, name, None)
        if not callable(function):
            known = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
            raise UserError(f"{path}: has no function {name!r}; it has {', '.join(known) or 'none'}")
        return function

    def keep(self, path: str) -> None:
        """Copies a file into the folder; process 0 does, before any process opens it."""
        if self.folder is None:
            return
        kept = self._kept(Path(path))
        if not kept.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(_read(Path(path)))

    def _source(self, path: Path) -> Path:
        kept = self._kept(path)
        source = kept if kept is not None and kept.exists() else path
        self.checksums[str(path)] = hashlib.sha256(_read(source)).hexdigest()
        return source

    def _kept(self, path: Path) -> Path:
        return self.folder / path.name if self.folder else path


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
