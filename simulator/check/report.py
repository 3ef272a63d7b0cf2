"""The table of a validation on the console, as Markdown and JSON, with plots of the curves."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from simulator.check.case import Case, Check, Curve, Result
from simulator.files import replace_file
from simulator.show.style import WIDTH, draw, figure

HEADER = ("case", "quantity", "expected", "measured", "error", "allowed", "")


@dataclass(frozen=True)
class CaseOutcome:
    case: Case
    result: Result
    seconds: float

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.result.checks)


def row(case: str, check: Check) -> tuple[str, ...]:
    kind = "" if check.absolute else " rel"
    numbers = (
        f"{check.expected:.10g}",
        f"{check.measured:.10g}",
        f"{check.error:.2g}{kind}",
        f"{check.allowed:.2g}",
    )
    return (case, check.quantity, *numbers, "pass" if check.passed else "MISS")


def lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows in aligned columns."""
    widths = [max(len(r[i]) for r in rows) for i in range(len(HEADER))]
    return ["  ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=True)).rstrip() for r in rows]


def write(folder: Path, outcomes: Sequence[CaseOutcome]) -> list[Path]:
    """`validation.md`, `validation.json` and a picture of each curve; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [
        draw(partial(_picture, curve), folder / f"{curve.name}.png")
        for outcome in outcomes
        for curve in outcome.result.curves
    ]
    markdown, table = folder / "validation.md", folder / "validation.json"
    replace_file(markdown, _markdown(outcomes))
    replace_file(table, json.dumps([_entry(outcome) for outcome in outcomes], indent=1) + "\n")
    return [markdown, table, *files]


def _markdown(outcomes: Sequence[CaseOutcome]) -> str:
    header = (*HEADER[:-1], "", "source")
    rows = [
        (*row(outcome.case.name, check), check.source)
        for outcome in outcomes
        for check in outcome.result.checks
    ]
    table = [f"| {' | '.join(r)} |" for r in (header, ("---",) * len(header), *rows)]
    cases = [f"- `{o.case.name}`: {o.case.what} ({o.seconds:.1f} s)" for o in outcomes]
    pictures = [f"![{c.name}]({c.name}.png)" for o in outcomes for c in o.result.curves]
    return "\n".join(["# Validation", "", *table, "", *cases, "", *pictures]) + "\n"


def _entry(outcome: CaseOutcome) -> dict[str, Any]:
    checks = [{**asdict(c), "error": c.error, "passed": c.passed} for c in outcome.result.checks]
    return {
        "case": outcome.case.name,
        "what": outcome.case.what,
        "seconds": outcome.seconds,
        "checks": checks,
    }


def _picture(curve: Curve) -> Figure:
    result = figure(WIDTH, 3.6)
    axes = result.subplots()
    result.subplots_adjust(left=0.15, right=0.97, top=0.9, bottom=0.15)
    axes.plot(curve.x, curve.y, label="this program")
    axes.plot(curve.reference_x, curve.reference_y, "o", markersize=4, color="black", label="reference")
    axes.set_xlabel(curve.labels[0])
    axes.set_ylabel(curve.labels[1])
    axes.set_title(curve.source, fontsize=9)
    axes.legend()
    return result
