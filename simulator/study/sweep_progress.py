"""Shows the progress of `simulator sweep run`, and what to type next."""

import shlex
import time
from collections.abc import Sequence
from typing import Self

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from simulator.registry import PLUGIN_COMMANDS
from simulator.run.log import LastingConsole
from simulator.run.progress import LINE_EVERY, typed
from simulator.study.runs import SweepRun
from simulator.study.study_status import MemberState, MemberStatus
from simulator.study.sweep import Sweep
from simulator.words import duration, short


def next_commands(sweep: Sweep, statuses: Sequence[MemberStatus]) -> list[str]:
    """The next commands, ready to be typed in the current folder."""
    stages = {status.stage for status in statuses}
    wanted = [["run"]] if stages & {MemberState.WAITING, MemberState.INTERRUPTED} else []
    wanted += [["status"], ["retry", "--failed"]] if MemberState.FAILED in stages else []
    wanted += [["table"]] if MemberState.DONE in stages else []
    commands = [typed_sweep(command, sweep, *options) for command, *options in wanted]
    if stages == {MemberState.DONE}:
        others = ["report"] if "report" in PLUGIN_COMMANDS else []
        for key, block in sweep.blocks.items():
            if getattr(sweep.settings, key) is not None:
                others += block.following(sweep)
        commands += [shlex.join([*typed(), name, str(short(sweep.file))]) for name in others]
    return commands


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
