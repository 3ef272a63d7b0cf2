"""Refuses an equation whose class misspells a part of the contract, such as `product` for
`products`: the part would keep its default, and the term would be missing in silence."""

import difflib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

from simulator.errors import UserError, did_you_mean

_NEAR = 0.75  # The similarity of two names from which one may be the other, misspelt.


def refuse_misspelling(equation: type, contract: type, parameters: frozenset[str]) -> None:
    """Raises UserError, with file and line, if a public method or attribute of the class `equation`
    is near to a name of the class `contract`, is neither one of these names nor a parameter, and is
    mentioned in no method: nothing would ever use it."""
    known = [name for name in dir(contract) if not name.startswith("_")]
    written = [owner for owner in equation.__mro__ if owner not in contract.__mro__]
    mentioned = {
        name for owner in written for value in vars(owner).values() for name in _names(value)
    }
    for owner in written:
        for name, value in vars(owner).items():
            if name.startswith("_") or name in {*known, *parameters, *mentioned}:
                continue
            if similar := difflib.get_close_matches(name, known, n=1, cutoff=_NEAR):
                raise UserError(
                    f"{_place(owner, name, value)}: {owner.__name__}: {name} is no part of an equation, "
                    f"and nothing in the class uses it; did you mean {similar[0]}? A helper's name begins "
                    "with an underscore"
                )


def refuse_arguments(equation: type, method: str, known: tuple[str, ...]) -> None:
    """Raises UserError, with file and line, if a `method` of the class `equation` asks for an
    argument after its first that is not `known`, so that no call could give it."""
    defined = getattr(equation, method)
    for parameter in list(inspect.signature(defined).parameters.values())[2:]:
        required = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        )
        if required and parameter.name not in known:
            names = " and ".join(known)
            raise UserError(
                f"{_place(equation, method, defined)}: {equation.__name__}: {method} cannot ask for "
                f"{parameter.name!r}{did_you_mean(parameter.name, known)} known besides its first: {names}"
            )


def _code(value: object) -> CodeType | None:
    """The code of a function, also of one within a decorator of the standard library."""
    for inside in ("__wrapped__", "__func__", "fget", "func"):
        value = getattr(value, inside, None) or value
    return getattr(value, "__code__", None)


def _names(value: object) -> Iterator[str]:
    """The names of attributes that a function mentions, its inner functions included."""
    codes = [_code(value)]
    while codes:
        if (code := codes.pop()) is not None:
            yield from code.co_names
            codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _place(owner: type, name: str, value: object) -> str:
    """`FILE:LINE` of a definition in the class `owner`; without the line if it is unknown."""
    if (code := _code(value)) is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    file = getattr(sys.modules.get(owner.__module__), "__file__", None) or owner.__module__
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return file
    definition = re.compile(rf"\s+{name}\s*(:[^=]*)?=")
    numbers = (number for number, line in enumerate(lines, 1) if definition.match(line))
    return f"{file}:{next(numbers, 1)}"
