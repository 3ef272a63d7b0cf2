"""Registries of the parts of a run (models, forcings, ...) by name, in this package and in other
installed packages.

A package adds a part by an entry point; this package does not change:

    [project.entry-points."simulator.outputs"]
    helicity_spectra = "my_package.helicity:HelicitySpectra"

The groups are `simulator.models`, `simulator.initials`, `simulator.forcings`,
`simulator.integrators` and `simulator.outputs`. Entry points are loaded when a registry is first
used, not when it is created, because a package that adds a part imports this one."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import entry_points
from typing import Any, TypeVar

from simulator.errors import UserError

Part = TypeVar("Part")


class Registry(Mapping[str, Part]):
    """Parts by name: `own`, then the parts that installed packages declare in `group`.

    `admit(name, declared)` returns the part that an object of `own` or of an entry point stands
    for, or raises TypeError with the reason why the object is no part of this registry. Raises
    UserError, naming the package, on the first use of an entry point that cannot be loaded, or has
    the name of another part."""

    def __init__(self, group: str, own: Mapping[str, Part], admit: Callable[[str, Any], Part]):
        self.group = group
        self._admit = admit
        self._own = {name: admit(name, part) for name, part in own.items()}

    @cached_property
    def _parts(self) -> Mapping[str, Part]:
        parts = dict(self._own)
        for point in entry_points(group=self.group):
            whose = f" of the package {point.dist.name}" if point.dist is not None else ""
            where = f"entry point {point.name} in {self.group}{whose}"
            if point.name in parts:
                other = (
                    "simulator itself" if point.name in self._own else "another installed package"
                )
                raise UserError(
                    f"{where}: {other} has a part of that name; rename it, or uninstall it"
                )
            try:
                parts[point.name] = self._admit(point.name, point.load())
            except TypeError as error:
                raise UserError(f"{where}: {error}") from None
            except (Exception, SystemExit) as error:
                problem = f"{point.value} cannot be loaded ({type(error).__name__}: {error})"
                raise UserError(
                    f"{where}: {problem}; repair the package or uninstall it"
                ) from error
        return parts

    def __getitem__(self, name: str) -> Part:
        return self._own[name] if name in self._own else self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


def subclass_of(base: type[Part]) -> Callable[[str, Any], type[Part]]:
    """The `admit` function of a registry of classes."""

    def admit(name: str, part: object) -> type[Part]:
        if not (isinstance(part, type) and issubclass(part, base)):
            raise TypeError(
                f"a subclass of {base.__module__}.{base.__qualname__} is needed, not {part!r}"
            )
        return part

    return admit
