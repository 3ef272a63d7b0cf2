"""The lines of `simulator sweep plan` and `status`."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator.errors import UserError
from simulator.files import replace_file
from simulator.run.progress import typed
from simulator.study.study_status import MemberState, MemberStatus, counted, statuses_of
from simulator.study.sweep import Sweep
from simulator.study.table import as_text
from simulator.words import short, size


def plan_lines(sweep: Sweep) -> list[str]:
    """The table of runs and their totals."""
    table = [
        {
            "index": run.index,
            **{key: run.values.get(key) for key in sweep.varied},
            "folder": run.hash,
            "memory": size(run.estimate.bytes),
            "steps": run.estimate.steps,
            "cost": run.estimate.cost,
        }
        for run in sweep.runs
    ]
    needs = [run.estimate for run in sweep.runs]
    known = [needed.cost for needed in needs if needed.cost is not None]
    if not known:
        cost = "cost unknown (dt follows from the CFL number)"
    else:
        cost = f"cost {sum(known):.3g} points x steps"
        cost += f" of the {len(known)} runs with fixed dt" if len(known) < len(needs) else ""
    total = (
        f"{len(sweep.runs)} runs in {short(sweep.folder)}, the largest needs about "
        f"{size(max(needed.bytes for needed in needs))} of memory, {cost}"
    )
    lines = [*as_text(table), *_common(sweep), "", total]
    if sweep.earlier:
        lines.append(f"{len(sweep.earlier)} earlier runs are no longer in the file; their folders stay")
    return lines


def status_lines(sweep: Sweep) -> list[str]:
    """One line per run, and the number of runs in each state."""
    statuses = statuses_of([run.folder for run in sweep.runs])
    table = [
        {"index": run.index, "run": sweep.label(run), "folder": run.hash, "state": str(s.stage), "": s.detail}
        for run, s in zip(sweep.runs, statuses, strict=True)
    ]
    return [*as_text(table), *_common(sweep), "", f"{sweep.name}: {counted(statuses)}"]


def table_lines(sweep: Sweep, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table of swept values and collected quantities."""
    same = [key for key in sweep.swept if key not in sweep.varied]
    return [*as_text(rows, leave_out=same), *_common(sweep)]


def _common(sweep: Sweep) -> list[str]:
    return [f"all runs: {sweep.common}"] if sweep.common else []


def next_commands(sweep: Sweep, statuses: Sequence[MemberStatus]) -> list[str]:
    """The next commands, ready to be typed in the current folder."""
    stages = {status.stage for status in statuses}
    wanted: list[str] = []
    if stages & {MemberState.WAITING, MemberState.INTERRUPTED}:
        wanted.append("run")
    if MemberState.FAILED in stages:
        wanted += ["status", "retry"]
    if MemberState.DONE in stages:
        wanted += ["table"]
    words = {"retry": ["--failed"]}
    return [typed_sweep(command, sweep, *words.get(command, [])) for command in wanted]


def typed_sweep(command: str, sweep: Sweep, *options: str) -> str:
    """A command for this sweep, ready to be typed in the current folder."""
    return shlex.join([*typed(), "sweep", command, str(short(sweep.file)), *options])


def write_text(path: str, text: str) -> None:
    """Replaces the file at `path`. Raises UserError if it cannot be written."""
    try:
        replace_file(Path(path), text)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
