"""The table of a validation: on the console, as Markdown and as JSON, with plots of the curves."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from simulator.files import replace_file
from simulator.plugins.validation.case import Case, Check, Curve, Result

HEADER = ("case", "quantity", "expected", "measured", "error", "allowed", "", "source")


@dataclass(frozen=True)
class CaseOutcome:
    case: Case
    result: Result
    seconds: float

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.result.checks)


def rows(outcomes: Sequence[CaseOutcome]) -> list[tuple[str, ...]]:
    """The header, and a row for each check."""
    return [HEADER, *(_row(o.case.name, check) for o in outcomes for check in o.result.checks)]


def _row(case: str, check: Check) -> tuple[str, ...]:
    kind = "" if check.absolute else " rel"
    values = f"{check.expected:.10g}", f"{check.measured:.10g}"
    numbers = *values, f"{check.error:.2g}{kind}", f"{check.allowed:.2g}"
    return (case, check.quantity, *numbers, "pass" if check.passed else "MISS", check.source)


def write(folder: Path, where: Mapping[str, Any], outcomes: Sequence[CaseOutcome]) -> list[Path]:
    """`validation.md`, `validation.json`, and where the plugin for pictures is installed one of each
    curve; returns their paths. `where`: the machine, the program and the command."""
    folder.mkdir(parents=True, exist_ok=True)
    curves = [curve for outcome in outcomes for curve in outcome.result.curves]
    files: list[Path] = []
    if find_spec("simulator.plugins.pictures"):
        from simulator.plugins.pictures.style import draw

        files = [draw(partial(_picture, curve), folder / f"{curve.name}.png") for curve in curves]
    markdown = folder / "validation.md"
    table = folder / "validation.json"
    entries = {**where, "cases": [_entry(outcome) for outcome in outcomes]}
    replace_file(markdown, _markdown(where, outcomes, files))
    replace_file(table, json.dumps(entries, indent=1) + "\n")
    return [markdown, table, *files]


def _markdown(
    where: Mapping[str, Any], outcomes: Sequence[CaseOutcome], pictures: Sequence[Path]
) -> str:
    header, *checks = rows(outcomes)
    table = [f"| {' | '.join(r)} |" for r in (header, ("---",) * len(header), *checks)]
    measured = where["measured"]
    circumstances = (
        f"{measured['date']}, simulator {measured['version']}, commit {measured['commit']}, on "
        f"{where['devices']}; {measured['processor']}: `{measured['command']}`"
    )
    cases = [f"- `{o.case.name}`: {o.case.what} ({o.seconds:.1f} s)" for o in outcomes]
    shown = [f"![{path.stem}]({path.name})" for path in pictures]
    return "\n".join(["# Validation", "", circumstances, "", *table, "", *cases, "", *shown]) + "\n"


def _entry(outcome: CaseOutcome) -> dict[str, Any]:
    checks = [{**asdict(c), "error": c.error, "passed": c.passed} for c in outcome.result.checks]
    case = outcome.case
    return {"case": case.name, "what": case.what, "seconds": outcome.seconds, "checks": checks}


def _picture(curve: Curve) -> Any:
    from simulator.plugins.pictures.style import WIDTH, figure

    result = figure(WIDTH, 3.6)
    axes = result.subplots()
    result.subplots_adjust(left=0.15, right=0.97, top=0.9, bottom=0.15)
    axes.plot(curve.x, curve.y, label="this program")
    axes.plot(
        curve.reference_x, curve.reference_y, "o", markersize=4, color="black", label="reference"
    )
    axes.set(xlabel=curve.labels[0], ylabel=curve.labels[1])
    axes.set_title(curve.source, fontsize=9)
    axes.legend()
    return result
