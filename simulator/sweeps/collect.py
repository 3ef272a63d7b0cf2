"""What a table collects from each run: `final.energy`, `mean.enstrophy[time>0.5]`, `wall_time`."""

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.config.messages import nearest
from simulator.settings import evaluate_number

SCALARS = ("wall_time", "steps")
"""Collected from a run as a whole: seconds of wall time, over all its starts; and steps taken."""
_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_FORM = "write e.g. final.energy, max.dissipation, mean.enstrophy[time>0.5] or wall_time"


def _integral(time: np.ndarray, values: np.ndarray) -> float:
    """By the trapezoidal rule: rows need not be evenly spaced."""
    return float((np.diff(time) * (values[1:] + values[:-1]) / 2).sum())


def _mean(time: np.ndarray, values: np.ndarray) -> float:
    """Average over time; of rows at one time, their mean."""
    if time[-1] == time[0]:
        return float(values.mean())
    return _integral(time, values) / float(time[-1] - time[0])


_REDUCTIONS: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "final": lambda time, values: float(values[-1]),
    "first": lambda time, values: float(values[0]),
    "min": lambda time, values: float(values.min()),
    "max": lambda time, values: float(values.max()),
    "mean": _mean,
    "integral": _integral,
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
    """A reduction of one column of diagnostics.csv, over the rows for which all conditions hold; or one of
    SCALARS, with an empty `column`."""

    text: str
    reduction: str
    column: str = ""
    conditions: tuple[Condition, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that it looks at."""
        return (*([self.column] if self.column else ()), *(condition.column for condition in self.conditions))

    def reduce(self, columns: Mapping[str, np.ndarray]) -> float:
        """Its value for the columns of a finished run; nan where the run has no such column or no such row."""
        if any(name not in columns for name in self.columns):
            return float("nan")
        chosen = np.ones(len(columns["time"]), bool)
        for condition in self.conditions:
            chosen &= condition(columns)
        if not chosen.any():
            return float("nan")
        return _REDUCTIONS[self.reduction](columns["time"][chosen], columns[self.column][chosen])


def parse(text: str) -> Expression:
    """The expression that `text` is. Raises ValueError with the cure.

    mean is the average over time, integral the integral over time, both by the trapezoidal rule. Conditions are
    `column<number` with <, <=, >, >= or ==, separated by commas.
    """
    text = text.strip()
    if text in SCALARS:
        return Expression(text, text)
    found = re.fullmatch(r"(\w+)\.(\w+)\s*(?:\[(.*)\])?", text)
    if not found:
        raise ValueError(f"{text!r} is no expression; {_FORM}")
    reduction, column, conditions = found.groups()
    if reduction not in _REDUCTIONS:
        close = nearest(reduction, _REDUCTIONS)
        meant = f", did you mean {close}?" if close else ";"
        raise ValueError(f"{text!r}: unknown reduction {reduction!r}{meant} known: {', '.join(_REDUCTIONS)}")
    parsed = () if conditions is None else tuple(map(_condition, conditions.split(",")))
    return Expression(text, reduction, column, parsed)


def _condition(text: str) -> Condition:
    found = re.fullmatch(r"\s*(\w+)\s*(<=|>=|==|<|>)\s*(.+?)\s*", text)
    if not found:
        raise ValueError(f"[{text}] is no condition; write e.g. [time>0.5] or [time>0.5,time<=2]")
    return Condition(found[1], found[2], evaluate_number(found[3]))


def unknown_column(expression: Expression, known: Iterable[str]) -> str | None:
    """What is wrong with the columns that the expression names; None where the runs write them all."""
    known = list(known)
    for column in expression.columns:
        if column not in known:
            close = nearest(column, known)
            meant = f", did you mean {close}?" if close else ";"
            return f"{expression.text!r}: no diagnostic {column!r}{meant} the runs write {', '.join(known)}"
    return None
