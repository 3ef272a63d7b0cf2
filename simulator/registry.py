"""Registries of the parts of a run (models, forcings, ...) by name, in this package and in other
installed packages.

A package adds a part by an entry point; this package does not change:

    [project.entry-points."simulator.outputs"]
    helicity_spectra = "my_package.helicity:HelicitySpectra"

The groups are `simulator.models`, `simulator.initials`, `simulator.forcings`, `simulator.terms`,
`simulator.integrators` and `simulator.outputs`. Entry points are loaded when a registry is first
used, not when it is created, because a package that adds a part imports this one."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Any, TypeVar

from simulator.errors import UserError, in_a_line

Part = TypeVar("Part")


class Registry(Mapping[str, Part]):
    """Parts by name: `own`, then the parts that installed packages declare in `group`. A text in
    `own`, as in an entry point, says where the part is defined, `package.module:name`; it is
    imported at its first use.

    `admit(name, declared)` returns the part that an object of `own` or of an entry point stands
    for, or raises TypeError with the reason why the object is no part of this registry. Raises
    UserError, naming the package, on the first use of an entry point that cannot be loaded, or has
    the name of another part."""

    def __init__(self, group: str, own: Mapping[str, Any], admit: Callable[[str, Any], Part]):
        self.group = group
        self._own = own
        self._admit = admit
        self._admitted: dict[str, Part] = {}

    @cached_property
    def _installed(self) -> Mapping[str, Part]:
        """The parts of installed packages."""
        parts: dict[str, Part] = {}
        for point in entry_points(group=self.group):
            whose = f" of the package {point.dist.name}" if point.dist is not None else ""
            where = f"entry point {point.name} in {self.group}{whose}"
            if point.name in self._own or point.name in parts:
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
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                problem = f"{point.value} cannot be loaded ({in_a_line(error)})"
                raise UserError(
                    f"{where}: {problem}; repair the package or uninstall it"
                ) from error
        return parts

    def __getitem__(self, name: str) -> Part:
        if name not in self._own:
            return self._installed[name]
        if name not in self._admitted:
            declared = self._own[name]
            part = resolve_name(declared) if isinstance(declared, str) else declared
            self._admitted[name] = self._admit(name, part)
        return self._admitted[name]

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._installed

    def __iter__(self) -> Iterator[str]:
        return iter([*self._own, *self._installed])

    def __len__(self) -> int:
        return len(self._own) + len(self._installed)


def subclass_of(base: type[Part]) -> Callable[[str, Any], type[Part]]:
    """The `admit` function of a registry of classes."""

    def admit(name: str, part: object) -> type[Part]:
        if not (isinstance(part, type) and issubclass(part, base)):
            raise TypeError(
                f"a subclass of {base.__module__}.{base.__qualname__} is needed, not {part!r}"
            )
        return part

    return admit
