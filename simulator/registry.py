"""Registries of named parts (equations, outputs, commands, ...): those of the core, and those that
plugins add. The core's own plugins and other installed packages enter alike, by entry points:

    [project.entry-points."simulator.outputs"]
    helicity_spectra = "my_package.helicity:HelicitySpectra"

| group | a part is | its name is |
| --- | --- | --- |
| `simulator.models`, `.initials`, `.forcings`, `.terms` | a class with `Settings` | its `kind` |
| `simulator.components` | a `Component` with `Settings` | its `kind` in a composite |
| `simulator.integrators` | an integrator | the value of `time.integrator` |
| `simulator.outputs` | a `simulator.measure.Kind` or `.SnapshotFile` | the key `output.NAME` |
| `simulator.settings` | a class of `Settings` | `study.NAME` or `run.NAME`, a block of the file |
| the same | a `simulator.config.load.FileSettings` | `file.NAME`, a kind of file |
| `simulator.commands` | a `simulator.cli.parser.Command` | `simulator NAME` |
| `simulator.curves` | a function that draws further curves | the name of a picture |
| `simulator.names` | any object | `from simulator import NAME` |
| the same | any object | `spectral.NAME`, `from simulator.spectral import NAME` |
| `simulator.pictures` | a function that yields pictures | what a run stores: a series, or another name |
| the same | a function that makes a table | `table.NAME`, of the series NAME |
| the same | a function that names columns of diagnostics | `columns.NAME`, drawn of several runs |
| `simulator.reports` | a function of a `Run` that yields the fields of `HealthCheck`s | `health.NAME` |
| the same | a function that adds defaults to a configuration | `settings.NAME` |

Entry points are loaded when a part is first used, because a package that adds a part imports this
one. A part that cannot be loaded is a warning of one line, and the others go on working."""

import warnings
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from pkgutil import resolve_name
from typing import Any, TypeVar

from simulator.errors import UserError, in_a_line

Part = TypeVar("Part")


class UnusablePart(UserWarning):
    """A part of an installed package cannot be used; the message is one line that names both."""


class _Unloadable(UserError):
    """`value` of an entry point cannot be imported. `plugin` says so of the package in which it
    is, in the same words for all its parts."""

    def __init__(self, place: str, value: str, reason: str):
        super().__init__(
            f"{place}: {value} cannot be loaded ({reason}); repair the package or uninstall it"
        )
        module = value.partition(":")[0]
        self.plugin = f"{module.rpartition('.')[0] or module} cannot be loaded ({reason})"


_SAID: dict[Any, Any] = {}


def _warn(line: str) -> None:
    """Warn, unless the same line has been a warning of any registry before."""
    warnings.warn_explicit(line, UnusablePart, __name__, 0, registry=_SAID)


class Registry(Mapping[str, Part]):
    """Parts by name: `own`, then the parts that installed packages declare in `group`. A text in
    `own`, as in an entry point, says where the part is defined, `package.module:name`; it is
    imported at its first use.

    `admit(name, declared)` returns the part that an object of `own` or of an entry point stands
    for, or raises TypeError with the reason why the object is no part of this registry.

    An entry point that cannot be loaded, or has the name of another part, is left out of the
    iteration with an `UnusablePart` warning; asking for it by name raises UserError, which names
    the package."""

    def __init__(
        self,
        group: str,
        own: Mapping[str, Any],
        admit: Callable[[str, Any], Part] = lambda name, declared: declared,
    ):
        self.group = group
        self.own = own
        self._admit = admit
        self._admitted: dict[str, Part] = {}

    @cached_property
    def _declared(self) -> Mapping[str, EntryPoint]:
        """The entry points of installed packages."""
        points: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.group):
            if point.name in self.own or point.name in points:
                other = "simulator itself" if point.name in self.own else "another package"
                problem = f"{other} has a part of that name; rename it, or uninstall it"
                _warn(f"{self._place(point)}: {problem}")
            else:
                points[point.name] = point
        return points

    def _place(self, point: EntryPoint) -> str:
        package = f" of the package {point.dist.name}" if point.dist is not None else ""
        return f"entry point {point.name} in {self.group}{package}"

    def _loaded(self, point: EntryPoint) -> Part:
        try:
            return self._admit(point.name, point.load())
        except TypeError as error:
            raise UserError(f"{self._place(point)}: {error}") from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise _Unloadable(self._place(point), point.value, in_a_line(error)) from error

    def __getitem__(self, name: str) -> Part:
        if name not in self._admitted:
            if name in self.own:
                declared = self.own[name]
                part = resolve_name(declared) if isinstance(declared, str) else declared
                self._admitted[name] = self._admit(name, part)
            else:
                self._admitted[name] = self._loaded(self._declared[name])
        return self._admitted[name]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all parts, of which none is loaded."""
        return (*self.own, *self._declared)

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self._declared

    @cached_property
    def _usable(self) -> tuple[str, ...]:
        return (*self.own, *filter(self._is_usable, self._declared))

    def _is_usable(self, name: str) -> bool:
        try:
            self[name]
        except _Unloadable as error:
            _warn(f"{error.plugin}; its parts are left out, repair it or uninstall it")
        except UserError as error:
            _warn(str(error))
        return name in self._admitted

    def among(self, words: Container[str]) -> dict[str, Part]:
        """The program's own parts, and those of packages whose names are among `words`; no other is
        loaded."""
        named = (name for name in self._declared if name in words)
        return {name: self[name] for name in (*self.own, *filter(self._is_usable, named))}

    def __iter__(self) -> Iterator[str]:
        return iter(self._usable)

    def __len__(self) -> int:
        return len(self._usable)

    def beginning_with(self, start: str, words: Container[str] | None = None) -> dict[str, Part]:
        """The parts whose names begin with `start`, by the rest of the name, only those whose rest
        is among `words` if these are given; no other is loaded."""
        rests = (n.removeprefix(start) for n in self.names if n.startswith(start))
        wanted = [rest for rest in rests if words is None or rest in words]
        return {rest: self[start + rest] for rest in wanted if self._is_usable(start + rest)}


@cache
def declared_names() -> frozenset[str]:
    """The names of all parts that installed packages declare, without the kind of a setting."""
    groups = (group for group in entry_points().groups if group.startswith("simulator."))
    points = (point for group in groups for point in entry_points(group=group))
    return frozenset(point.name.rpartition(".")[2] for point in points)


@dataclass(frozen=True, eq=False)
class PartsOf:
    """Marks a key whose blocks describe parts in a registry: `Any` in its type stands for the
    settings of one of them. A run's file loads only the parts that it names."""

    registry: Registry[Any]
    without: str = ""
    """The name of a part that the key does not take."""

    def among(self, words: Container[str] | None) -> list[Any]:
        """The parts whose names are among `words`, and the program's own that are imported anyway;
        all if `words` is None; if there is none, the program's own."""
        own = self.registry.own
        imported = [name for name, part in own.items() if not isinstance(part, str)]
        named = [n for n in self.registry.names if words is None or n in words or n in imported]
        for names in (named, own):
            usable = self.registry.beginning_with("", names)
            if parts := [part for name, part in usable.items() if name != self.without]:
                return parts
        return []


def subclass_of(base: type[Part]) -> Callable[[str, Any], type[Part]]:
    """The `admit` function of a registry of classes."""

    def admit(name: str, part: object) -> type[Part]:
        if not (isinstance(part, type) and issubclass(part, base)):
            raise TypeError(
                f"a subclass of {base.__module__}.{base.__qualname__} is needed, not {part!r}"
            )
        return part

    return admit


PLUGIN_COMMANDS = Registry[object]("simulator.commands", {})
"""The commands that plugins and other packages add. Their names tell what a user can type, and the
folders of a run that may hold their results; none is loaded for that."""
