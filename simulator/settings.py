"""What the settings classes of all parts share.

A part's settings stand beside the part (`simulator/models/navier_stokes.py` has `NavierStokesSettings`);
`simulator/config` assembles them into the description of a run.
"""

import ast
import math
import operator
import os
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationInfo
from pydantic_core import PydanticCustomError


class Settings(BaseModel):
    """Base of every settings class: immutable, unknown keys refused, defaults checked.

    The string under a field is its description in the exported JSON schema.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


def wrong(key: str, message: str) -> PydanticCustomError:
    """The error a validator of several keys raises to blame one: `raise wrong("dt", "...")`.

    `key` is relative to the class that the validator stands in, with dots for nested ones.
    """
    return PydanticCustomError("wrong_key", "{message}", {"key": key, "message": message})


class CommandLineText(str):
    """Text that was given on the command line: a relative input path in it starts at the current folder."""

    __slots__ = ()


_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_NAMES = {"pi": math.pi, "e": math.e}
_FUNCTIONS = {"sqrt": math.sqrt, "exp": math.exp, "log": math.log}
_UNITS = {"s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def evaluate_number(text: str) -> float:
    """Value of an arithmetic expression such as `2*pi` or `1/1600`.

    Raises ValueError for anything but numbers, + - * / **, parentheses, pi, e, sqrt, exp and log.
    """

    def value(node: ast.AST) -> float:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return number
            case ast.Name(id=name) if name in _NAMES:
                return _NAMES[name]
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(operand))
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                base, exponent = float(value(left)), float(value(right))
                result = base**exponent
                if isinstance(result, complex):
                    raise ValueError(text)
                return result
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(left), value(right))
            case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _FUNCTIONS:
                return _FUNCTIONS[name](value(argument))
        raise ValueError(text)

    try:
        return float(value(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, ArithmeticError, ValueError, TypeError, RecursionError, MemoryError):
        raise ValueError(f"{text!r} is no number; write e.g. 0.5, 1e-3, 2*pi or 1/1600") from None


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is needed, not true or false")
    return evaluate_number(value) if isinstance(value, str) else value


def _whole(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a whole number is needed, not true or false")
    if isinstance(value, str):
        raise ValueError(f"a whole number is needed, not {value!r}")
    return value


def _seconds(value: Any) -> Any:
    if isinstance(value, str) and (found := re.fullmatch(r"\s*([0-9.]+)\s*([a-z]+)\s*", value)):
        if found[2] not in _UNITS:
            raise ValueError(f"{found[2]!r} is no unit of time; use s, min, h or d")
        return evaluate_number(found[1]) * _UNITS[found[2]]
    return _number(value)


Real = Annotated[float, BeforeValidator(_number, json_schema_input_type=float | str)]
"""A number, or an expression such as `2*pi`."""
Positive = Annotated[
    float,
    Field(gt=0),
    BeforeValidator(_number, json_schema_input_type=Annotated[float, Field(gt=0)] | str),
]
NonNegative = Annotated[
    float,
    Field(ge=0),
    BeforeValidator(_number, json_schema_input_type=Annotated[float, Field(ge=0)] | str),
]
Seconds = Annotated[
    float,
    Field(gt=0),
    BeforeValidator(_seconds, json_schema_input_type=Annotated[float, Field(gt=0)] | str),
]
"""A wall-clock time: seconds, or `10min`, `2h`."""
Integer = Annotated[int, BeforeValidator(_whole)]
"""A whole number; `1e6` is one, `true` and `'3'` are none."""
Count = Annotated[int, Field(ge=1), BeforeValidator(_whole)]
"""A whole number of at least 1."""
Flag = Annotated[bool, Strict()]
"""`true` or `false`, and not the texts and numbers that pydantic would take for them."""


def _expand(text: Any) -> str:
    if not isinstance(text, str | os.PathLike):
        raise ValueError(f"a path is needed, not {text!r}")
    path = os.fspath(text)
    if not path or "\0" in path:
        raise ValueError(
            "a path is needed, not an empty one" if not path else "a path holds no null character"
        )
    for name in re.findall(r"\$(?:(\w+)|\{(\w+)\})", path):
        if (variable := name[0] or name[1]) not in os.environ:
            raise ValueError(f"the environment variable {variable} is not set")
    return os.path.expanduser(os.path.expandvars(path))


def _input_path(value: Any, info: ValidationInfo) -> Path:
    context = info.context or {}
    folder = "" if isinstance(value, CommandLineText) else context.get("folder", "")
    path = Path(os.path.abspath(os.path.join(folder, _expand(value))))
    if context.get("check_files") and not path.exists():
        raise ValueError(f"{path} does not exist")
    return path


def _output_path(value: Any) -> Path:
    return Path(os.path.abspath(_expand(value)))


InputPath = Annotated[Path, BeforeValidator(_input_path, json_schema_input_type=str)]
"""An existing file or folder, absolute once read: relative to the file that names it, or, from the command
line and from Python, to the current folder. `~` and environment variables are expanded."""
OutputPath = Annotated[Path, BeforeValidator(_output_path, json_schema_input_type=str)]
"""A folder to write to, absolute once read, relative to the current folder; `~` and `$VARIABLE` as above."""
