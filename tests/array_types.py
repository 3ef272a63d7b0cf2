"""Checks the arrays in annotations of functions at every call, while tests run; other annotations
are pyright's."""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, get_args

from beartype import BeartypeConf, FrozenDict, beartype
from jaxtyping import AbstractArray, install_import_hook

ROOMS = [
    f"simulator.{room}" for room in ("spectral", "physics", "simulation", "measure", "plugins")
]


def check_rooms() -> None:
    """Checks all functions of modules in `ROOMS` that are imported from now on. A call with an
    array of another shape or type of number raises jaxtyping.TypeCheckError, also while JAX traces
    the function."""
    install_import_hook(ROOMS, "array_types.checked")


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with a check of the arrays in its annotations."""
    hints = function.__annotations__
    function.__annotations__ = {name: hint for name, hint in hints.items() if _holds_arrays(hint)}
    # JAX calls the constructor of a pytree with anything in place of arrays.
    return (
        _checker()(function)
        if function.__annotations__ and function.__name__ != "__init__"
        else function
    )


@cache
def _checker() -> Any:
    """The type checker. It accepts Python's numbers, as JAX does, in place of arrays without
    axes."""
    from simulator.spectral.arrays import (
        Number,
        Whole,
    )  # in a checked room: imported after the hook is installed

    numbers = FrozenDict({Number: Number | int | float, Whole: Whole | int})
    return beartype(conf=BeartypeConf(hint_overrides=numbers))


def _holds_arrays(hint: Any) -> bool:
    return (inspect.isclass(hint) and issubclass(hint, AbstractArray)) or any(
        map(_holds_arrays, get_args(hint))
    )
