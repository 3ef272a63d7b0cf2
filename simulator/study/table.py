"""The table of a sweep: swept values and collected quantities, one row per run."""

import csv
import io
import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from simulator.archive.open_run import Run, open_run
from simulator.errors import UserError
from simulator.study.collect import Expression
from simulator.study.runs import SweepRun, shown
from simulator.study.study_status import MemberState, MemberStatus


def rows(
    runs: Sequence[SweepRun],
    statuses: Sequence[MemberStatus],
    swept: Sequence[str],
    expressions: Sequence[Expression],
) -> list[dict[str, Any]]:
    """`Sweep.rows`. A swept key that a run does not have is None; the quantities of an unfinished run are nan."""
    return [
        {
            "index": run.index,
            "run": run.hash,
            "state": str(status.stage),
            **{key: run.values.get(key) for key in swept},
            **collected(run, expressions, status),
        }
        for run, status in zip(runs, statuses, strict=True)
    ]


def collected(run: SweepRun, expressions: Sequence[Expression], status: MemberStatus) -> dict[str, float]:
    """The value of each expression for one run, by its text."""
    if status.stage is not MemberState.DONE or not expressions:
        return {expression.text: math.nan for expression in expressions}
    opened = open_run(run.folder)
    try:
        diagnostics = opened.diagnostics
    except UserError:
        diagnostics = {}
    return {e.text: _evaluate(e, opened, diagnostics, status) for e in expressions}


def _evaluate(
    expression: Expression, run: Run, diagnostics: Mapping[str, np.ndarray], status: MemberStatus
) -> float:
    match expression.reduction:
        case "wall_time":
            return status.state.seconds if status.state else math.nan
        case "steps":
            return float(status.state.step) if status.state else math.nan
    if not len(diagnostics.get("time", ())):
        return math.nan
    return expression.reduce(diagnostics)


def columns(table: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """The rows as arrays by column: integers or floats if all values are numbers, else objects."""
    return {name: _array([row[name] for row in table]) for name in table[0]}


def _array(values: Sequence[Any]) -> np.ndarray:
    kinds = {type(value) for value in values}
    if kinds <= {int}:
        return np.array(values, np.int64)
    if kinds <= {int, float}:
        return np.array(values, np.float64)
    objects = np.empty(len(values), object)
    objects[:] = [tuple(value) if isinstance(value, list) else value for value in values]
    return objects


def frame(table: Sequence[Mapping[str, Any]]) -> Any:
    """`Sweep.table`: the rows as a pandas frame if pandas is installed, else as arrays by column."""
    arrays = columns(table)
    try:
        import pandas  # pyright: ignore[reportMissingImports] - optional
    except ImportError:
        return arrays
    return pandas.DataFrame(arrays)


# ---- as text ---------------------------------------------------------------------------------------------


def as_csv(table: Sequence[Mapping[str, Any]]) -> str:
    """CSV with every number in full precision, lists as JSON, and empty cells for missing values."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table[0])
    writer.writerows([_cell(value) for value in row.values()] for row in table)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return (
        repr(value)
        if isinstance(value, float)
        else json.dumps(value)
        if isinstance(value, list | dict)
        else value
    )


def as_json(table: Sequence[Mapping[str, Any]]) -> str:
    """A list of objects, one per run; null for values that are missing or not finite."""
    plain = [{name: _json(value) for name, value in row.items()} for row in table]
    return json.dumps(plain, indent=1) + "\n"


def _json(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_text(table: Sequence[Mapping[str, Any]], leave_out: Collection[str] = ()) -> list[str]:
    """Aligned columns for reading: numbers to the right, with six digits."""
    header = [name for name in table[0] if name not in leave_out]
    cells = [[_short(row[name]) for name in header] for row in table]
    numeric = [all(_is_number(row[name]) for row in table) for name in header]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in (header, *cells)
    ]


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _short(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    return shown(value)
