"""Composes the lines of `simulator sweep plan`, `status` and `table`, and shows the progress of
`sweep run`."""

import shlex
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from simulator.run.log import LastingConsole
from simulator.run.progress import LINE_EVERY, typed
from simulator.study.study_status import MemberState, MemberStatus, counted
from simulator.study.sweep import Sweep, SweepRun
from simulator.study.table import as_text
from simulator.words import duration, short, size


def plan_lines(sweep: Sweep) -> list[str]:
    """The table of the runs, and a line with the totals."""
    estimates = [run.estimate for run in sweep.runs]
    table = [
        {
            "index": run.index,
            **{key: run.values.get(key) for key in sweep.varied},
            "folder": run.hash,
        }
        | {"state": size(needs.state), "steps": needs.steps, "cost": needs.cost}
        for run, needs in zip(sweep.runs, estimates, strict=True)
    ]
    known = [estimate.cost for estimate in estimates if estimate.cost is not None]
    some = f" of the {len(known)} runs with fixed dt" if len(known) < len(estimates) else ""
    cost = (
        f"cost {sum(known):.3g} points x steps{some}"
        if known
        else "cost unknown (dt follows from the CFL number)"
    )
    largest = f"{size(max(estimate.state for estimate in estimates))} (a step takes 3 to 20 times as much)"
    total = (
        f"{len(sweep.runs)} runs in {short(sweep.folder)}, the largest state has {largest}, {cost}"
    )
    lines = [*as_text(table), *_common(sweep), "", total]
    if sweep.earlier:
        lines.append(
            f"{len(sweep.earlier)} earlier runs are no longer in the file; their folders stay"
        )
    return lines


def status_lines(sweep: Sweep) -> list[str]:
    """One line per run, and the number of runs in each state."""
    statuses = sweep.statuses()
    table = [
        {
            "index": run.index,
            "run": sweep.label(run),
            "folder": run.hash,
            "state": str(s.stage),
            "": s.detail,
        }
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
    wanted = [["run"]] if stages & {MemberState.WAITING, MemberState.INTERRUPTED} else []
    wanted += [["status"], ["retry", "--failed"]] if MemberState.FAILED in stages else []
    wanted += [["table"]] if MemberState.DONE in stages else []
    return [typed_sweep(command, sweep, *options) for command, *options in wanted]


def typed_sweep(command: str, sweep: Sweep, *options: str) -> str:
    """A command for this sweep, ready to be typed in the current folder."""
    return shlex.join([*typed(), "sweep", command, str(short(sweep.file)), *options])


class Display:
    """Shows the progress of runs, on a terminal by bars that end with their runs. `say` prints
    lasting lines."""

    def __init__(self, sweep: Sweep, number: int):
        self._sweep = sweep
        self._number = number
        self._ended = 0
        console = LastingConsole()
        self.say = console.print
        self._on_terminal = console.is_terminal
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[words]}", markup=False),
            console=console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._last_line: dict[str, float] = {}

    def __enter__(self) -> Self:
        if self._on_terminal:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._on_terminal:
            self._bars.stop()

    def begin(self, run: SweepRun) -> None:
        """Shows that a run has been started."""
        self._last_line[run.hash] = time.monotonic()
        self._tasks[run.hash] = self._bars.add_task(self._name(run), total=100, words="starting")

    def update(self, run: SweepRun, status: MemberStatus) -> None:
        """Shows the progress of a run; without a terminal, a line every half minute."""
        percent = status.state.percent if status.state else 0.0
        self._bars.update(self._tasks[run.hash], completed=percent, words=status.detail)
        if not self._on_terminal and time.monotonic() - self._last_line[run.hash] > LINE_EVERY:
            self._last_line[run.hash] = time.monotonic()
            self.say(f"        {self._name(run)}: {status.detail}")

    def end(self, run: SweepRun, text: str, seconds: float) -> None:
        """Prints that a run has ended, with the outcome `text`."""
        self._ended += 1
        width = len(str(self._number))
        if run.hash in self._tasks:
            self._bars.remove_task(self._tasks.pop(run.hash))
        self.say(
            f"[{self._ended:{width}}/{self._number}] {self._name(run)}: {text} ({duration(seconds)})"
        )

    def _name(self, run: SweepRun) -> str:
        return f"{run.index} {self._sweep.label(run)}".rstrip()
