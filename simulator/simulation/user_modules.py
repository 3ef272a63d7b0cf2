"""Users' Python files as modules, and the modules in the same folder that they import.

A file is a package of its own, whose modules are those of its folder. Two files may therefore have
neighbours of one name, and each neighbour is read through the run's inputs, like the file itself."""

import ast
import builtins
import itertools
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

_NUMBERS = itertools.count()
_ELSEWHERE = sys.stdlib_module_names | {"jax", "jaxlib", "numpy", "simulator"}
"""Modules that a file of the same name does not hide."""


class Sources(Protocol):
    """Opens the sources of modules."""

    def exists(self, path: Path) -> bool: ...

    def read(self, path: str) -> bytes: ...

    def digest(self, path: Path) -> None:
        """Take the checksum of a module that is no Python source, and is not copied."""
        ...


def user_module(path: Path, sources: Sources) -> ModuleType:
    """The Python file `path` as a module. Its errors are not caught."""
    return _Package(path, sources).module


class _Package:
    """A user's file and the modules of its folder, under a name that no other module has."""

    def __init__(self, path: Path, sources: Sources) -> None:
        self.name = f"simulator_input_{next(_NUMBERS)}_{path.stem}"
        self.folder = path.parent
        self.sources = weakref.proxy(sources)  # modules are never forgotten
        self._builtins = {**vars(builtins), "__import__": self._import}
        spec = spec_from_loader(self.name, _Source(path, self), origin=str(path), is_package=True)
        assert spec is not None
        spec.submodule_search_locations = [str(self.folder)]
        self.module = module_from_spec(spec)
        sys.modules[self.name] = self.module  # dataclasses and annotations look up their module
        _FINDER.packages[self.name] = self
        self.execute(path, self.module)

    def execute(self, path: Path, module: ModuleType) -> None:
        module.__file__ = str(path)
        module.__dict__["__builtins__"] = self._builtins
        code = compile(self.sources.read(str(path)), str(path), "exec")
        exec(code, module.__dict__)

    def spec(self, fullname: str) -> ModuleSpec | None:
        place = self.folder.joinpath(*fullname.split(".")[1:])
        for file in _files(place):
            if self.sources.exists(file):
                inside = [str(place)] if file.parent == place else None
                spec = spec_from_loader(fullname, _Source(file, self), is_package=bool(inside))
                if spec is not None and inside:
                    spec.submodule_search_locations = inside
                return spec
        spec = PathFinder.find_spec(fullname, [str(place.parent)])
        if spec is not None and spec.origin is not None:  # compiled
            self.sources.digest(Path(spec.origin))
        return spec

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """The function behind the statement `import` in the modules of this package."""
        first = name.partition(".")[0]
        if level or not self._has(first):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        module = builtins.__import__(f"{self.name}.{name}", globals, locals, fromlist or ("",), 0)
        return module if fromlist else sys.modules[f"{self.name}.{first}"]

    def _has(self, name: str) -> bool:
        if name in _ELSEWHERE:
            return False
        if any(map(self.sources.exists, _files(self.folder / name))):
            return True
        # A folder without __init__.py, and a compiled module, hide no installed module.
        return self.spec(f"{self.name}.{name}") is not None and find_spec(name) is None


class _Finder(MetaPathFinder):
    def __init__(self) -> None:
        self.packages: dict[str, _Package] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = self.packages.get(fullname.partition(".")[0])
        return package.spec(fullname) if package is not None and path is not None else None


_FINDER = _Finder()
sys.meta_path.insert(0, _FINDER)  # stays: a function may import when it is called


class _Source(Loader):
    def __init__(self, path: Path, package: _Package) -> None:
        self._path = path
        self._package = package

    def exec_module(self, module: ModuleType) -> None:
        self._package.execute(self._path, module)


def _files(place: Path) -> tuple[Path, Path]:
    return place / "__init__.py", place.with_name(f"{place.name}.py")


def neighbours(
    path: Path, exists: Callable[[Path], bool], read: Callable[[str], bytes]
) -> list[Path]:
    """The sources in the folder of a Python file that the file imports, directly or through
    others, also where a function imports when it is called."""
    found = {path: None}
    waiting = [path]
    while waiting:
        current = waiting.pop()
        try:
            tree = ast.parse(read(str(current)))
        except (SyntaxError, ValueError):  # the file is refused when it is executed
            continue
        for parts in _imported(tree, current.parent.relative_to(path.parent).parts):
            for n in range(1, len(parts) + 1):
                for file in _files(path.parent.joinpath(*parts[:n])):
                    if file not in found and exists(file):
                        found[file] = None
                        waiting.append(file)
    return [file for file in found if file != path]


def _imported(tree: ast.AST, package: Sequence[str]) -> Iterator[list[str]]:
    """The names of the modules that a source may import, of a module in `package`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            base += node.module.split(".") if node.module else []
            names = [[*base, alias.name] for alias in node.names]
        else:
            continue
        relative = isinstance(node, ast.ImportFrom) and node.level > 0
        yield from (parts for parts in names if relative or parts[0] not in _ELSEWHERE)
