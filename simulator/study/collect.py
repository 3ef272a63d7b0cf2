"""Expressions that a table collects from each run: `final.energy`, `mean.enstrophy[time>0.5]`, `wall_time`, and
reductions of formulas: `mean.(dissipation * integral_scale / u_rms**3)[time>2]`."""

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simulator.errors import did_you_mean
from simulator.settings import evaluate_number

SCALARS = ("wall_time", "steps")
"""Quantities of a whole run: wall time in seconds, over all its starts, and number of steps."""
_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_FORM = "write e.g. final.energy, mean.enstrophy[time>0.5], p95.(energy/enstrophy) or wall_time"
_FEWEST_BLOCKS = 8
_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "sqrt": np.sqrt,
    "log": np.log,
    "exp": np.exp,
    "abs": np.abs,
}


def _integral(time: np.ndarray, values: np.ndarray) -> float:
    """Integral by the trapezoidal rule; rows need not be evenly spaced."""
    return float((np.diff(time) * (values[1:] + values[:-1]) / 2).sum())


def _mean(time: np.ndarray, values: np.ndarray) -> float:
    """Average over time; the mean of the rows if they all have the same time."""
    if time[-1] == time[0]:
        return float(values.mean())
    return _integral(time, values) / float(time[-1] - time[0])


def _std(time: np.ndarray, values: np.ndarray) -> float:
    """Root of the variance over time."""
    return float(np.sqrt(max(_mean(time, (values - _mean(time, values)) ** 2), 0.0)))


def _sem(time: np.ndarray, values: np.ndarray) -> float:
    """Standard error of the mean of rows that are correlated: the largest estimate from means of blocks of 1, 2,
    4, ... rows, of which there are at least eight (Flyvbjerg and Petersen 1989); nan for fewer rows."""
    errors = []
    while len(values) >= _FEWEST_BLOCKS:
        errors.append(float(values.std(ddof=1)) / len(values) ** 0.5)
        values = (values[: len(values) // 2 * 2 : 2] + values[1::2]) / 2
    return max(errors, default=float("nan"))


def _percentile(share: float) -> Callable[[np.ndarray, np.ndarray], float]:
    return lambda time, values: float(np.percentile(values, share))


def _reduction(name: str) -> Callable[[np.ndarray, np.ndarray], float] | None:
    """The reduction of a name; `p95` is the 95th percentile of the rows."""
    if (found := re.fullmatch(r"p(\d{1,2})", name)) is not None:
        return _percentile(float(found[1]))
    return _REDUCTIONS.get(name)


_REDUCTIONS: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "final": lambda time, values: float(values[-1]),
    "first": lambda time, values: float(values[0]),
    "min": lambda time, values: float(values.min()),
    "max": lambda time, values: float(values.max()),
    "mean": _mean,
    "integral": _integral,
    "std": _std,
    "sem": _sem,
}


@dataclass(frozen=True)
class Condition:
    """`time > 0.5`"""

    column: str
    comparison: str
    bound: float

    def __call__(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        return _COMPARISONS[self.comparison](columns[self.column], self.bound)


@dataclass(frozen=True)
class Expression:
    """A reduction of a column of diagnostics.csv, or of an expression of columns, over the rows for which all
    conditions hold; or one of SCALARS, with an empty `column`."""

    text: str
    reduction: str
    column: str = ""
    conditions: tuple[Condition, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column in the expression."""
        named = _names(self.column) if self.column else ()
        return (*named, *(condition.column for condition in self.conditions))

    @property
    def error(self) -> "Expression | None":
        """The standard error of a mean; None for any other reduction."""
        return (
            replace(self, text=f"sem of {self.text}", reduction="sem") if self.reduction == "mean" else None
        )

    def reduce(self, columns: Mapping[str, np.ndarray]) -> float:
        """The value for the columns of a finished run; nan if a column is missing or no row meets the conditions."""
        if any(name not in columns for name in self.columns):
            return float("nan")
        selected = np.ones(len(columns["time"]), bool)
        for condition in self.conditions:
            selected &= condition(columns)
        if not selected.any():
            return float("nan")
        reduction = _reduction(self.reduction)
        assert reduction is not None
        rows = {name: columns[name][selected] for name in _names(self.column)}
        with np.errstate(all="ignore"):
            values = np.broadcast_to(
                _evaluated(ast.parse(self.column, mode="eval").body, rows), selected.sum()
            )
        return reduction(columns["time"][selected], np.asarray(values, float))


def parse(text: str) -> Expression:
    """Parses an expression. Raises ValueError with the cure.

    mean is the average over time, integral the integral over time, both by the trapezoidal rule. Conditions are
    `column<number` with <, <=, >, >= or ==, separated by commas.
    """
    text = text.strip()
    if text in SCALARS:
        return Expression(text, text)
    match = re.fullmatch(r"(\w+)\.(\w+|\(.+\))\s*(?:\[([^\]]*)\])?", text)
    if not match:
        raise ValueError(f"{text!r} is not an expression; {_FORM}")
    reduction, column, conditions = match.groups()
    if _reduction(reduction) is None:
        meant = did_you_mean(reduction, _REDUCTIONS)
        raise ValueError(
            f"{text!r}: unknown reduction {reduction!r}{meant} known: {', '.join(_REDUCTIONS)}, p5, p95"
        )
    try:
        tree = ast.parse(column, mode="eval").body
        _evaluated(tree, {name: np.ones(1) for name in _names(column)})
    except (SyntaxError, TypeError) as error:
        raise ValueError(f"{text!r}: {column} cannot be computed ({error}); {_FORM}") from None
    parsed = () if conditions is None else tuple(map(_condition, conditions.split(",")))
    return Expression(text, reduction, column, parsed)


def _names(column: str) -> tuple[str, ...]:
    """The columns in an expression, each once."""
    tree = ast.parse(column, mode="eval")
    calls = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = (n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in calls)
    return tuple(dict.fromkeys(names))


def _evaluated(node: ast.expr, columns: Mapping[str, np.ndarray]) -> Any:
    """The value of an expression. TypeError for syntax that it may not contain."""
    match node:
        case ast.Name(id=name):
            return columns[name]
        case ast.Constant(value=value) if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_evaluated(left, columns), _evaluated(right, columns))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluated(operand, columns)
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](_evaluated(argument, columns))
    raise TypeError(
        f"{ast.unparse(node)}: only columns, numbers, + - * / **, {', '.join(_FUNCTIONS)} are known"
    )


def _condition(text: str) -> Condition:
    match = re.fullmatch(r"\s*(\w+)\s*(<=|>=|==|<|>)\s*(.+?)\s*", text)
    if not match:
        raise ValueError(f"[{text}] is not a condition; write e.g. [time>0.5] or [time>0.5,time<=2]")
    return Condition(match[1], match[2], evaluate_number(match[3]))


def unknown_column(expression: Expression, known: Iterable[str]) -> str | None:
    """The message about a column of the expression that the runs do not write; None if they write all of them."""
    known = list(known)
    for column in expression.columns:
        if column not in known:
            meant = did_you_mean(column, known)
            return f"{expression.text!r}: no diagnostic {column!r}{meant} the runs write {', '.join(known)}"
    return None
