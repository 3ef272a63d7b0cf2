"""Shows the progress of a run by a bar on a terminal or in a notebook, else by a line every half
minute; composes the summary at the end."""

import math
import os
import shlex
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any, Self

from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Column

from simulator.archive.manifest import SAVES, committed
from simulator.archive.series_file import read_columns, series_names
from simulator.cluster import energy
from simulator.physics.models.expansion import Expansion
from simulator.physics.models.split_equation import background_of
from simulator.physics.resolution_columns import RESOLVED, UNDER_RESOLVED, judged
from simulator.registry import PLUGIN_COMMANDS
from simulator.run.events import Moment
from simulator.run.log import RunLog
from simulator.run.state_file import Outcome
from simulator.simulation.simulation import Simulation
from simulator.words import counted, duration, short, size

LINE_EVERY = 30.0  # Seconds between two lines of progress if stdout is no terminal.
_WINDOW = 30.0


class Progress:
    """Shows step, t, in an expanding box the redshift, dt, steps/s and the time to the end.

    The speed is the mean over the last half minute, so that compilation and slow starts soon no
    longer count. The time to the end follows from the speed in simulation time, because dt
    changes."""

    def __init__(
        self,
        log: RunLog,
        start: float,
        stop: float,
        max_steps: int | None = None,
        background: Expansion | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._start = start
        self._stop = stop
        self._max_steps = max_steps
        self._clock = clock
        self._background = background
        self._seen: deque[tuple[float, int, float]] = deque()
        self._last_line = clock()
        self._first_step: int | None = None
        self._bar: Bar | None = None
        self._shown = None if log.quiet else notebook_line()
        if self._shown is None and log.console.is_terminal and not log.quiet:
            words = TextColumn(
                "{task.fields[words]}", markup=False, table_column=Column(no_wrap=True)
            )
            columns = TextColumn("{task.percentage:3.0f} %"), BarColumn(bar_width=None), words
            self._bar = Bar(
                *columns, console=log.console, refresh_per_second=4, expand=True, transient=True
            )
            self._task = self._bar.add_task("", total=1.0, words="starting")
            self._bar.start()

    def update(self, moment: Moment) -> None:
        """Show the position after the latest step. Cheap enough for every pause of the device
        loop."""
        now = self._clock()
        if self._first_step is None:
            self._first_step = moment.step
        self._seen.append((now, moment.step, moment.time))
        while len(self._seen) > 2 and now - self._seen[1][0] >= _WINDOW:
            self._seen.popleft()
        fraction = self.fraction(moment)
        words = self._words(moment)
        if self._shown is not None:
            self._shown(fraction, words)
        elif self._bar is not None:
            self._bar.update(self._task, completed=fraction, words=words)
        elif now - self._last_line >= LINE_EVERY:
            self._last_line = now
            self._log.say(f"{100 * fraction:3.0f} %  {words}")

    def fraction(self, moment: Moment) -> float:
        """The completed fraction of the run by simulation time or by steps, whichever is larger."""
        parts = [0.0]
        if math.isfinite(self._stop):
            length = self._stop - self._start
            parts.append((moment.time - self._start) / length if length > 0 else 1.0)
        if self._max_steps and self._first_step is not None:
            parts.append((moment.step - self._first_step) / self._max_steps)
        return min(max(parts), 1.0)

    @property
    def steps_per_second(self) -> float:
        """Mean speed over the last half minute; 0 before the second state."""
        (before, first_step, _), (now, last_step, _) = self._ends()
        return (last_step - first_step) / (now - before) if now > before else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Wall time to `stop` at the present speed; None while the speed is unknown."""
        (before, _, first_time), (now, _, last_time) = self._ends()
        if not (last_time > first_time and now > before and math.isfinite(self._stop)):
            return None
        return max(self._stop - last_time, 0.0) * (now - before) / (last_time - first_time)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ends(self) -> tuple[tuple[float, int, float], tuple[float, int, float]]:
        nothing = (0.0, 0, 0.0)
        return (self._seen[0], self._seen[-1]) if self._seen else (nothing, nothing)

    def _words(self, moment: Moment) -> str:
        left = self.seconds_left
        end = f"  {duration(left)} left" if left is not None else ""
        speed = f"{self.steps_per_second:.3g} steps/s"
        time = (
            f"t = {moment.time:.4g} of {self._stop:.4g}{redshift_of(self._background, moment.time)}"
        )
        return f"step {moment.step}  {time}  dt = {moment.dt:.2e}  {speed}{end}"


def redshift_of(background: Expansion | None, time: float) -> str:
    """` (z = 9)`; nothing without an expanding background."""
    if background is None:
        return ""
    return f" (z = {round(1 / background.scale_factor_at(time) - 1, 6) + 0:.4g})"


def notebook_line() -> Callable[[float, str], None] | None:
    """A function (fraction, words) that shows its arguments in the output of the running notebook
    cell and replaces the earlier ones; None outside of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is None:
        return None
    display: Any = sys.modules["IPython"].display
    name: list[str] = []

    def show(fraction: float, words: str) -> None:
        line = f"{100 * fraction:3.0f} %  {words}"
        shown = {
            "text/plain": line,
            "text/html": f'<progress value="{fraction:.4f}" max="1"></progress> <code>{escape(line)}</code>',
        }
        if name:
            display.update_display(shown, display_id=name[0], raw=True)
        else:
            name.append(display.display(shown, display_id=True, raw=True).display_id)

    return show


def program() -> list[str]:
    """The words that start this program: its console script if it lies beside the interpreter, else
    `python -m`."""
    beside = Path(sys.executable).with_name("simulator")
    return [str(beside)] if os.access(beside, os.X_OK) else [sys.executable, "-m", "simulator"]


def typed() -> tuple[str, ...]:
    """The words with which a user starts this program: its name if the shell finds it on PATH, else
    its path."""
    path, *module = program()
    on_path = shutil.which("simulator")
    if not module and on_path is not None and os.path.samefile(on_path, path):
        return ("simulator",)
    with suppress(ValueError):
        path = str(Path(path).relative_to(Path.cwd()))
    return (path, *module)


def ending_lines(
    simulation: Simulation,
    outcome: Outcome,
    spent: Mapping[str, float],
    joules: Mapping[str, float],
) -> list[str]:
    """The lines at the end of a run. `joules`: its energy, by source."""
    folder = short(simulation.config.output.directory)
    moment = outcome.moment
    z = redshift_of(background_of(simulation.model), moment.time)
    words = f"t = {moment.time:g}{z}, step {moment.step}"
    devices = len(simulation.cluster.devices)
    drawing = [name for name in ("plot", "report") if name in PLUGIN_COMMANDS]
    if outcome.ended == "finished":
        lines = [f"finished at {words}"]
        commands = (*drawing, "verify")
    else:
        lines = [f"stopped at {words}: {outcome.reason}"]
        commands = ("resume", *drawing)
    if outcome.steps and outcome.seconds > 0:
        lines.append(step_cost(outcome.steps, outcome.seconds, simulation.grid.points, devices))
    if joules:
        lines.append(f"energy of this start: {energy.in_words(joules)}")
    return lines + summary(folder, spent, [[*typed(), name, str(folder)] for name in commands])


def step_cost(steps: int, seconds: float, points: int, devices: int) -> str:
    """The cost of a step, on a grid whose `points` are shared by the devices."""
    step = seconds / steps
    return (
        f"{counted(steps, 'step')}: {1e3 * step:.3g} ms per step, {step * devices / points * 1e9:.3g} ns "
        f"per point and step on {'each of ' if devices > 1 else ''}{counted(devices, 'device')}"
    )


def summary(
    folder: Path, spent: Mapping[str, float], next_commands: Iterable[Sequence[str]]
) -> list[str]:
    """The time, the resolution and the files of a run, and commands as a user types them.

    `spent` maps each activity of this start to its seconds, which add up to the whole
    (`Stopwatch.parts`); `next_commands` are lists of words."""
    rows = sizes_of_results(folder)
    width = max((len(name) for name, _ in rows), default=0)
    return [
        _wall_time(spent),
        *_resolution(folder / "diagnostics.csv"),
        f"written to {folder}:",
        *(f"  {name:<{max(width, 18)}} {text}" for name, text in rows),
        "next:",
        *(f"  {shlex.join(command)}" for command in next_commands),
    ]


def _wall_time(spent: Mapping[str, float]) -> str:
    """`12.3 s in all: steps 8.1 s, compilation 3.0 s, ...`, the largest first, without activities
    that round to 0."""
    tenths = {name: int(10 * seconds + 0.5) for name, seconds in spent.items()}
    parts = sorted(((n, t) for n, t in tenths.items() if t), key=lambda part: -part[1])
    # The total is the sum of the rounded parts, so that the numbers in the line add up.
    return f"{sum(tenths.values()) / 10:.1f} s in all: " + ", ".join(
        f"{n} {t / 10:.1f} s" for n, t in parts
    )


def _resolution(table: Path) -> list[str]:
    """How well the grid resolved each field: the worst and the last value of its measure."""
    rows = read_columns(table) if table.exists() else {}
    lines = []
    for field in judged(rows):
        measure = field.measure
        wanted = f"a resolved cascade has {RESOLVED:g}"
        if not measure.scale:
            wanted = f"a resolved field has at most {UNDER_RESOLVED:.1%}"
        worst = f"{field.least} (t = {field.time[field.worst]:g})"
        line = f"{measure.words}: {worst}, last row {field.number(-1)}"
        lines.append(f"{line}; {wanted}" if field.verdict in ("warn", "bad") else line)
    return lines


def sizes_of_results(folder: Path) -> list[tuple[str, str]]:
    """The results in the folder of a run, each with its size."""
    results: list[tuple[str, str]] = []
    for name in ("diagnostics.csv", *(f"{name}.h5" for name in series_names(folder))):
        path = folder / name
        if path.exists():
            total = size(_bytes(path) + _bytes(path.with_suffix(".parts")))
            if path.suffix == ".csv":
                # Read line by line, because the table of a long run may be large.
                with path.open("rb") as file:
                    rows = sum(1 for _ in file) - 1
                total = f"{counted(rows, 'row')}, {total}"
            results.append((name, total))
    for name in SAVES:
        if saved := committed(folder / name):
            largest = max(map(_bytes, saved))
            total = _bytes(folder / name)
            results.append((f"{name}/", f"{len(saved)} x {size(largest)}, {size(total)} in all"))
    return results


def _bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
