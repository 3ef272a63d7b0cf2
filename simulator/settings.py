"""What the settings classes of all parts share.

A part's settings stand beside the part (`simulator/models/navier_stokes.py` has `NavierStokesSettings`);
`simulator/config` assembles them into the description of a run.
"""

import ast
import math
import operator
import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Settings(BaseModel):
    """Base of every settings class: immutable, unknown keys refused, defaults checked."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


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
    except (SyntaxError, ArithmeticError, ValueError, TypeError, RecursionError):
        raise ValueError(f"{text!r} is no number; write e.g. 0.5, 1e-3, 2*pi or 1/1600") from None


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is needed, not true or false")
    return evaluate_number(value) if isinstance(value, str) else value


def _seconds(value: Any) -> Any:
    if isinstance(value, str) and (found := re.fullmatch(r"\s*([0-9.]+)\s*([a-z]+)\s*", value)):
        if found[2] not in _UNITS:
            raise ValueError(f"{found[2]!r} is no unit of time; use s, min, h or d")
        return evaluate_number(found[1]) * _UNITS[found[2]]
    return _number(value)


Real = Annotated[float, BeforeValidator(_number, json_schema_input_type=float | str)]
"""A number, or an expression such as `2*pi`."""
Positive = Annotated[Real, Field(gt=0)]
NonNegative = Annotated[Real, Field(ge=0)]
Seconds = Annotated[float, BeforeValidator(_seconds, json_schema_input_type=float | str), Field(gt=0)]
"""A wall-clock time: seconds, or `10min`, `2h`."""
