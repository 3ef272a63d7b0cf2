"""Checks the shapes in the annotations of functions, at every call, in the rooms whose functions take arrays.

Only the arrays of an annotation are checked: other annotations are pyright's. Tracers are arrays with the shapes that
`vmap` leaves; shapes in place of arrays (`jax.ShapeDtypeStruct`) are not checked."""

import importlib.abc
import importlib.machinery
import inspect
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, wraps
from typing import Any, Union, get_args, get_origin

import jax
import jaxtyping

ROOMS = ("simulator.spectral", "simulator.physics", "simulator.simulation", "simulator.measure")


class WrongArray(AssertionError):
    """An array has another shape or type of number than the annotation says."""


def check_rooms() -> None:
    """Checks all functions of modules in `ROOMS` that are imported from now on."""
    sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if not any(fullname == room or fullname.startswith(f"{room}.") for room in ROOMS):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def exec_module(self, module: types.ModuleType) -> None:
        super().exec_module(module)
        for owner in (module, *vars(module).values()):
            if owner is module or (inspect.isclass(owner) and owner.__module__ == module.__name__):
                for name, member in list(vars(owner).items()):
                    # The constructor of a pytree is called with anything in place of arrays.
                    if name != "__init__" and (new := _watched(member, module.__name__)) is not member:
                        setattr(owner, name, new)


def _watched(member: Any, module: str) -> Any:
    """A function, method or property with its check."""
    if isinstance(member, classmethod | staticmethod):
        return type(member)(_watched(member.__func__, module))
    if isinstance(member, property):
        return property(_watched(member.fget, module), member.fset, member.fdel)
    if isinstance(member, cached_property):
        member.func = _watched(member.func, module)
        return member
    here = inspect.isfunction(member) and member.__module__ == module
    return checked(member) if here and any(map(_may_hold_arrays, member.__annotations__.values())) else member


def _may_hold_arrays(hint: Any) -> bool:
    return isinstance(hint, str) or _holds_arrays(hint)


def _holds_arrays(hint: Any) -> bool:
    return _is_array(hint) or any(map(_holds_arrays, get_args(hint)))


def _is_array(hint: Any) -> bool:
    return inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray)


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which raises WrongArray for an argument or a result that is not as annotated."""
    signature, known = inspect.signature(function), {}

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if not known:
            known["hints"] = _resolved(function)
        hints = known["hints"]
        try:
            bound = signature.bind(*arguments, **named).arguments if hints else {}
        except TypeError:
            bound = {}  # the call says what is missing
        with jaxtyping.jaxtyped("context"):
            for name in bound.keys() & hints.keys():
                _check(bound[name], hints[name], f"{function.__qualname__}: {name}")
            result = function(*arguments, **named)
            if "return" in hints:
                _check(result, hints["return"], f"{function.__qualname__}: its result")
            return result

    return call


class _Names(dict[str, Any]):
    """The names of a module; of a name that is imported lazily its object."""

    def __missing__(self, name: str) -> Any:
        raise KeyError(name)

    def __getitem__(self, name: str) -> Any:
        found = super().__getitem__(name)
        return found._object() if type(found).__name__ == "_Lazy" else found


def _resolved(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function that hold arrays."""
    names, parameters, hints = _Names(function.__globals__), inspect.signature(function).parameters, {}
    for name, hint in function.__annotations__.items():
        if isinstance(hint, str):
            try:
                hint = eval(hint, {}, names)
            except (NameError, AttributeError, TypeError):
                continue
        if _holds_arrays(hint):
            several = name != "return" and parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            hints[name] = tuple[hint, ...] if several else hint
    return hints


def _check(value: Any, hint: Any, what: str) -> None:
    if not _fits(value, hint):
        shapes = jax.tree.map(lambda a: f"{getattr(a, 'dtype', type(a).__name__)}{list(jax.numpy.shape(a))}", value)
        raise WrongArray(f"{what} is {shapes}, not {hint}")


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if not _holds_arrays(hint):
        return not inspect.isclass(hint) or isinstance(value, (float, int) if hint is float else hint)
    if _is_array(hint):
        number = isinstance(value, int | float) and not hint.dim_str  # Python's numbers are arrays without axes
        return number or isinstance(value, (hint, jax.ShapeDtypeStruct))
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in inner)
    if not isinstance(value, origin):
        return False
    if issubclass(origin, Mapping):
        return all(_fits(part, inner[1]) for part in value.values())
    if issubclass(origin, tuple) and inner[-1] is not Ellipsis:
        return len(value) == len(inner) and all(map(_fits, value, inner))
    return not issubclass(origin, Sequence) or all(_fits(part, inner[0]) for part in value)
