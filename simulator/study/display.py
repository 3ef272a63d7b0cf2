"""The output of `sweep run`: on a terminal a bar for each active run, else a line for each run that has ended."""

import time
from collections.abc import Callable
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from simulator.run.log import LastingConsole
from simulator.run.progress import LINE_EVERY
from simulator.study.study_status import MemberStatus
from simulator.study.sweep import Sweep, SweepRun
from simulator.words import duration


class Display:
    """Shows the progress of runs. `say` prints lasting lines; a bar disappears when its run ends."""

    def __init__(self, sweep: Sweep, number: int, say: Callable[[str], None], console: Console | None = None):
        self._sweep, self._number, self._say, self._ended = sweep, number, say, 0
        self._console = console or LastingConsole()
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._last_line: dict[str, float] = {}

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bars = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[words]}", markup=False),
                console=self._console,
                transient=True,
            )
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def begin(self, run: SweepRun) -> None:
        """A run has been started."""
        self._last_line[run.hash] = time.monotonic()
        if self._bars is not None:
            self._tasks[run.hash] = self._bars.add_task(f"{self._name(run)}", total=100, words="starting")

    def update(self, run: SweepRun, status: MemberStatus) -> None:
        """Shows the progress of a run; without a terminal, a line every half minute."""
        percent = status.state.percent if status.state else 0.0
        if self._bars is not None:
            self._bars.update(self._tasks[run.hash], completed=percent, words=status.detail)
        elif time.monotonic() - self._last_line[run.hash] > LINE_EVERY:
            self._last_line[run.hash] = time.monotonic()
            self._say(f"        {self._name(run)}: {status.detail}")

    def end(self, run: SweepRun, text: str, seconds: float) -> None:
        """A run has ended; `text` says how."""
        self._ended += 1
        width = len(str(self._number))
        line = f"[{self._ended:{width}}/{self._number}] {self._name(run)}: {text} ({duration(seconds)})"
        if self._bars is None:
            self._say(line)
            return
        if run.hash in self._tasks:
            self._bars.remove_task(self._tasks.pop(run.hash))
        self._bars.console.print(line)

    def _name(self, run: SweepRun) -> str:
        return f"{run.index} {self._sweep.label(run)}".rstrip()
