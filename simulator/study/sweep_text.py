"""Composes the lines of `simulator sweep plan`, `status` and `table`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from simulator.study.planned import PlannedSweep
from simulator.study.study_status import MemberState, status_counts
from simulator.study.table import RESOLUTIONS, SCALARS, as_text, convergence
from simulator.words import brief, counted, short, size

if TYPE_CHECKING:
    from simulator.study.sweep import Sweep


def plan_lines(sweep: "Sweep") -> list[str]:
    """The table of the runs, and a line with the totals."""
    estimates = [run.estimate for run in sweep.runs]
    table = []
    for run, needs in zip(sweep.runs, estimates, strict=True):
        values = {key: run.values.get(key) for key in sweep.varied}
        cost = {
            "memory of a state": size(needs.state),
            "steps": needs.steps,
            "grid points x steps": needs.cost,
        }
        table.append({"index": run.index, **values, "folder": run.hash, **cost})
    known = [estimate.cost for estimate in estimates if estimate.cost is not None]
    some = f" of {counted(len(known), 'run')} with fixed dt" if len(known) < len(estimates) else ""
    cost = (
        f"cost {sum(known):.3g} points x steps{some}"
        if known
        else "cost unknown (dt follows from the CFL number)"
    )
    largest = f"{size(max(estimate.state for estimate in estimates))} (a step takes 3 to 20 times as much)"
    total = f"{counted(len(sweep.runs), 'run')} in {short(sweep.folder)}, the largest state has {largest}, {cost}"
    lines = [*as_text(table), *_common(sweep), "", total]
    if sweep.earlier:
        lines.append(
            f"{len(sweep.earlier)} earlier runs are no longer in the file; their folders stay"
        )
    return lines


def status_lines(sweep: PlannedSweep) -> list[str]:
    """One line per run, and the number of runs in each state."""
    statuses = sweep.statuses()
    table = []
    for run, status in zip(sweep.runs, statuses, strict=True):
        progress = {"state": str(status.stage), "": status.detail}
        name = {"index": run.index, "run": sweep.label(run), "folder": run.hash}
        table.append(name | progress)
    return [*as_text(table), *_common(sweep), "", f"{sweep.name}: {status_counts(statuses)}"]


def table_lines(sweep: PlannedSweep, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table of swept values and collected quantities; below it, if a single key refines the
    runs, their errors against the finest run."""
    same = [key for key in sweep.swept if key not in sweep.varied]
    return [*as_text(rows, leave_out=same), *_common(sweep), *_convergence(sweep, rows)]


def _convergence(sweep: PlannedSweep, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    done = [row for row in rows if row["state"] == MemberState.DONE]
    texts = [quantity.text for quantity in sweep.collected if quantity.text not in SCALARS]
    key = sweep.varied[0]
    unknown = any(row[key] is None for row in done)
    if len(sweep.varied) > 1 or key not in RESOLUTIONS or not texts or unknown or len(done) < 3:
        return []
    finest = min((row[key] for row in done), key=RESOLUTIONS[key])
    said = f"relative to the finest run, {key} = {brief(finest)}:"
    return ["", said, *as_text(convergence(done, key, texts))]


def _common(sweep: PlannedSweep) -> list[str]:
    return [f"all runs: {sweep.common}"] if sweep.common else []
