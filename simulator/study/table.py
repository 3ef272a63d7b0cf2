"""The table of a sweep: swept values and collected quantities, one row per run.

Expressions name the quantities that a table collects from each run: `final.energy`,
`mean.enstrophy[time>0.5]`, `wall_time`, `final.NAME.VARIABLE` of a series NAME.h5, and reductions
of formulas such as `mean.(dissipation * integral_scale / u_rms**3)[time>2]`."""

import ast
import csv
import io
import json
import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from simulator.archive.series_file import SeriesReader, read_columns
from simulator.errors import UserError, did_you_mean
from simulator.settings import ARITHMETIC, evaluated
from simulator.study.study_status import MemberState, MemberStatus
from simulator.words import aligned_lines, brief

SCALARS = ("wall_time", "steps")
"""Quantities of a whole run: the seconds of all its starts, and its number of steps."""
_FORM = "write e.g. final.energy, mean.enstrophy[time>0.5], p95.(energy/enstrophy) or wall_time"
_FEWEST_BLOCKS = 8
_OPERATORS = {
    **ARITHMETIC,
    ast.LtE: operator.le,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.Lt: operator.lt,
    ast.Gt: operator.gt,
}
_FUNCTIONS = {"sqrt": np.sqrt, "log": np.log, "exp": np.exp, "abs": np.abs}
Columns = Mapping[str, np.ndarray]
Reduction = Callable[[np.ndarray, np.ndarray], Any]  # of times and values, to a number


def _mean(time: np.ndarray, values: np.ndarray) -> float:
    if time[-1] == time[0]:
        return values.mean()
    return np.trapezoid(values, time) / (time[-1] - time[0])


def _std(time: np.ndarray, values: np.ndarray) -> float:
    return max(_mean(time, (values - _mean(time, values)) ** 2), 0.0) ** 0.5


def _sem(time: np.ndarray, values: np.ndarray) -> float:
    """The standard error of the mean of correlated rows: the largest estimate from the means of at
    least eight blocks of 1, 2, 4, ... rows (Flyvbjerg and Petersen 1989); nan for fewer than eight
    rows."""
    errors = []
    while len(values) >= _FEWEST_BLOCKS:
        errors.append(values.std(ddof=1) / len(values) ** 0.5)
        values = (values[: len(values) // 2 * 2 : 2] + values[1::2]) / 2
    return max(errors, default=math.nan)


_REDUCTIONS: Mapping[str, Reduction] = {
    "final": lambda time, values: values[-1],
    "first": lambda time, values: values[0],
    "min": lambda time, values: values.min(),
    "max": lambda time, values: values.max(),
    "mean": _mean,
    "integral": lambda time, values: np.trapezoid(values, time),
    "std": _std,
    "sem": _sem,
}


def reduction_of(name: str) -> Reduction | None:
    """The reduction with this name; `p95` is the 95th percentile of the rows."""
    if re.fullmatch(r"p\d{1,2}", name):
        return lambda time, values: np.percentile(values, float(name[1:]))
    return _REDUCTIONS.get(name)


@dataclass(frozen=True)
class Expression:
    """A reduction of a formula of columns over the rows for which all conditions hold; or one of
    SCALARS."""

    text: str
    reduction: str
    formula: ast.expr | None = field(default=None, compare=False)
    conditions: Sequence[ast.expr] = field(default=(), compare=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column in the expression."""
        trees = [*([self.formula] if self.formula else ()), *self.conditions]
        return tuple(dict.fromkeys(name for tree in trees for name in _names(tree)))

    @property
    def series(self) -> str:
        """The series whose variables the expression names; empty: diagnostics."""
        return max((name.rpartition(".")[0] for name in self.columns), default="")

    @property
    def error(self) -> "Expression | None":
        """The standard error of a mean; None for any other reduction."""
        if self.reduction != "mean":
            return None
        return replace(self, text=f"sem of {self.text}", reduction="sem")

    def reduce(self, columns: Columns) -> float:
        """The value for the columns of a finished run; nan if a column is missing or no row meets
        the conditions."""
        reduction = reduction_of(self.reduction)
        if not reduction or not self.formula or any(name not in columns for name in self.columns):
            return math.nan
        time = columns["time"]
        rows = np.ones(len(time), bool)
        for condition in self.conditions:
            rows &= _value(condition, columns)
        if not rows.any():
            return math.nan
        with np.errstate(all="ignore"):
            values = np.broadcast_to(_value(self.formula, columns), len(rows))
        return float(reduction(time[rows], np.asarray(values, float)[rows]))


def parse(text: str, known: Iterable[str] | None = None) -> Expression:
    """Parses an expression. Raises ValueError, with the cure in the message, also for a column that
    is not `known`: the columns of diagnostics, and `NAME.` for every variable of a series.

    mean is the average over time, integral the integral over time, both by the trapezoidal rule.
    Conditions are comparisons with <, <=, >, >= or ==, separated by commas."""
    text = text.strip()
    if text in SCALARS:
        return Expression(text, text)
    match = re.fullmatch(r"(\w+)\.(\w+(?:\.\w+)?|\(.+\))\s*(?:\[([^\]]*)\])?", text)
    if not match:
        raise ValueError(f"{text!r} is not an expression; {_FORM}")
    reduction, formula, conditions = match.groups()
    if reduction_of(reduction) is None:
        meant = did_you_mean(reduction, _REDUCTIONS)
        raise ValueError(
            f"{text!r}: unknown reduction {reduction!r}{meant} known: {', '.join(_REDUCTIONS)}, p5, p95"
        )
    compared = _parsed(conditions or "", text)
    if conditions is not None and not (
        compared and all(isinstance(condition, ast.Compare) for condition in compared)
    ):
        raise ValueError(
            f"[{conditions}] is not a condition; write e.g. [time>0.5] or [time>0.5,time<=2]"
        )
    first, *others = _parsed(formula, text)
    if others:
        raise ValueError(f"{text!r} is not an expression; {_FORM}")
    expression = Expression(text, reduction, first, compared)
    files = {column.rpartition(".")[0] for column in expression.columns if column != "time"}
    if len(files) > 1:
        raise ValueError(f"{text!r}: takes columns of several files; those of one are needed")
    names = expression.columns if known is None else list(known)
    for column in expression.columns:
        series = column.rpartition(".")[0]
        if column not in names and f"{series}." not in names:
            meant = did_you_mean(column, names)
            raise ValueError(
                f"{text!r}: no diagnostic {column!r}{meant} the runs write {', '.join(names)}"
            )
    return expression


def _parsed(part: str, text: str) -> list[ast.expr]:
    """The formulas in a part of an expression, separated by commas."""
    try:
        tree = _Dotted().visit(ast.parse(f"[{part}]", mode="eval").body)
        if not isinstance(tree, ast.List):
            raise SyntaxError("the brackets do not match")
        for formula in tree.elts:
            _value(formula, dict.fromkeys(_names(formula), np.ones(1)))
    except (SyntaxError, TypeError) as error:
        raise ValueError(f"{text!r}: {part} cannot be computed ({error}); {_FORM}") from None
    return tree.elts


class _Dotted(ast.NodeTransformer):
    """Makes the variable `NAME.VARIABLE` of a series a name."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return ast.Name(ast.unparse(node)) if isinstance(node.value, ast.Name) else node


def _names(tree: ast.expr) -> list[str]:
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return [name for name in names if name not in (*_FUNCTIONS, "pi")]


def _value(formula: ast.expr, columns: Columns) -> Any:
    return evaluated(formula, {"pi": np.pi, **columns}, _FUNCTIONS, _OPERATORS)


def collected(
    folder: Path, expressions: Sequence[Expression], status: MemberStatus
) -> dict[str, float]:
    """The value of each expression for the run in `folder`, by its text."""
    state = status.state if status.stage is MemberState.DONE else None
    files: dict[str, Columns] = {}
    for expression in expressions if state is not None else ():
        series = expression.series
        if expression.columns and series not in files:
            wanted = {"time", *(n for e in expressions for n in e.columns if e.series == series)}
            files[series] = _columns(folder, series, wanted)
    scalars = (state.seconds, float(state.step)) if state else (math.nan, math.nan)
    known = dict(zip(SCALARS, scalars, strict=True))

    def value(expression: Expression) -> float:
        if expression.reduction in known:
            return known[expression.reduction]
        columns = files.get(expression.series, {})
        return expression.reduce(columns) if len(columns.get("time", ())) else math.nan

    return {expression.text: value(expression) for expression in expressions}


def _columns(folder: Path, series: str, wanted: Collection[str]) -> Columns:
    """Columns of diagnostics, or the numbers of a series; none if the run has no such file. Raises
    UserError for a variable that is not there, or not one number a row."""
    with suppress(FileNotFoundError):
        if not series:
            return read_columns(folder / "diagnostics.csv", wanted)
        reader = SeriesReader(folder / f"{series}.h5")
        numbers = [name for name, dimensions in reader.variables.items() if not dimensions]
        for name in wanted:
            variable = name.rpartition(".")[2]
            if name != "time" and variable not in numbers:
                meant = did_you_mean(variable, numbers, f"; its numbers are {', '.join(numbers)}")
                raise UserError(f"{name}: {reader.path} has no number {variable!r}{meant}")
        names = [name for name in wanted if name != "time"]
        return {"time": reader.time, **{n: reader[n.rpartition(".")[2]] for n in names}}
    return {}


def _array(values: Sequence[Any]) -> np.ndarray:
    """Integers or floats if all values are numbers, else objects."""
    kinds = {type(value) for value in values}
    if kinds <= {int}:
        return np.array(values, np.int64)
    if kinds <= {int, float}:
        return np.array(values, np.float64)
    objects = np.empty(len(values), object)
    objects[:] = [tuple(value) if isinstance(value, list) else value for value in values]
    return objects


def frame(table: Sequence[Mapping[str, Any]]) -> Any:
    """The table of `Sweep.table`: the rows as a pandas frame if pandas is installed, else as arrays
    by column."""
    arrays = {name: _array([row[name] for row in table]) for name in table[0]}
    try:
        import pandas  # pyright: ignore[reportMissingImports] - optional
    except ImportError:
        return arrays
    return pandas.DataFrame(arrays)


def as_csv(table: Sequence[Mapping[str, Any]]) -> str:
    """CSV with every number in full precision, lists as JSON, and empty cells for missing
    values."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table[0])
    writer.writerows([_cell(value) for value in row.values()] for row in table)
    return text.getvalue()


def _cell(value: object) -> Any:
    if _is_missing(value):
        return ""
    return json.dumps(value) if isinstance(value, list | dict) else value


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def table_as_json(table: Sequence[Mapping[str, Any]]) -> str:
    """A list of objects, one per run; null for values that are missing or not finite."""
    plain = [{name: _finite_or_none(value) for name, value in row.items()} for row in table]
    return json.dumps(plain, indent=1) + "\n"


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_text(table: Sequence[Mapping[str, Any]], leave_out: Collection[str] = ()) -> list[str]:
    """Aligned columns for reading: numbers to the right, with six digits, or as many as tell
    different numbers of a column apart, at most twelve."""
    columns = {name: [row[name] for row in table] for name in table[0] if name not in leave_out}
    numeric = {
        i
        for i, values in enumerate(columns.values())
        if {type(value) for value in values} <= {int, float, type(None)}
    }
    texts = [_texts(values) for values in columns.values()]
    return aligned_lines([list(columns), *map(list, zip(*texts, strict=True))], numeric)


_DIGITS = range(6, 13)


def _texts(values: Sequence[object]) -> list[str]:
    numbers = {value for value in values if isinstance(value, float) and math.isfinite(value)}
    digits = next(
        (n for n in _DIGITS if len({f"{value:.{n}g}" for value in numbers}) == len(numbers)),
        _DIGITS[-1],
    )
    return [_text(value, digits) for value in values]


def _text(value: object, digits: int) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.{digits}g}"
    return "-" if _is_missing(value) else brief(value)


RESOLUTIONS: Mapping[str, Callable[[Any], float]] = {
    "grid.shape": lambda shape: 1 / max(shape),
    "time.dt": float,
    "time.cfl": float,
    "time.steps": lambda steps: 1 / steps,
}
"""The keys that refine a run, each with the spacing of its values."""


def convergence(
    table: Sequence[Mapping[str, Any]], key: str, texts: Sequence[str]
) -> list[dict[str, Any]]:
    """For runs that differ in `key`, one of RESOLUTIONS, the error of each quantity relative to the
    finest run, from coarse to fine, and the observed `order` p: with spacings h, the values q of a
    run, the next coarser and the next finer one are those of q + C h^p. nan where a quantity is
    missing or does not converge."""
    runs = sorted(table, key=lambda row: RESOLUTIONS[key](row[key]), reverse=True)
    spacings = [RESOLUTIONS[key](row[key]) for row in runs]
    rows: list[dict[str, Any]] = [{key: row[key]} for row in runs[:-1]]
    for text in texts:
        values = np.array([row[text] for row in runs], float)
        errors = abs(values[:-1] - values[-1]) / (abs(values[-1]) or np.nan)
        three = range(len(runs) - 2)
        orders = [_order(spacings[i : i + 3], values[i : i + 3]) for i in three]
        for row, error, order in zip(rows, errors, [math.nan, *orders], strict=True):
            row[f"error of {text}"] = float(f"{error:.3g}")
            row[f"order of {text}"] = float(f"{order:.3g}")
    return rows


def _order(spacings: Sequence[float], values: np.ndarray) -> float:
    """The order p with which three values converge (Roache 1998), up to 20: the ratio of their
    differences is (h1^p - h2^p) / (h2^p - h3^p), which grows with p; nan without one."""
    h1, h2, h3 = np.array(spacings) / spacings[0]
    p = np.arange(0.001, 20, 0.001)
    first, second = abs(np.diff(values))
    with np.errstate(all="ignore"):
        ratio = (h1**p - h2**p) / (h2**p - h3**p)
        return float(np.interp(first / second, ratio, p, left=np.nan, right=np.nan))
