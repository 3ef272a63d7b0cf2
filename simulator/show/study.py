"""`simulator sweep plot`: a quantity against a parameter, and series and spectra of all runs of a sweep.

A run is a mark or a curve; its colour encodes one parameter and its line style another.
"""

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from simulator.archive.open_run import Run, open_run
from simulator.errors import UserError, did_you_mean
from simulator.show.kinds import over, wavenumbers
from simulator.show.lines import PANELS, DrawnCurve, drawn, limits, panels
from simulator.show.runs import series_of
from simulator.show.style import COLOURS, SYMBOLS, draw, note, quantity, sequence_colours, spectrum_of
from simulator.study import table as collect
from simulator.study.study_status import MemberStatus, statuses_of
from simulator.study.sweep import Sweep
from simulator.study.table import collected

LINES = ("-", "--", ":", "-.")
MARKS = ("o", "s", "^", "D", "v", "P")
_MOST_NAMED = 8
"""The largest number of values in a legend; for more, a colour bar is drawn."""
_PARAMETERS = {
    "viscosity": r"viscosity $\nu$",
    "diffusivity": r"diffusivity $\kappa$",
    "resistivity": r"resistivity $\eta$",
    "rotation": r"rotation $\Omega$",
    "stratification": r"stratification $N^2$",
    "sound_speed": r"sound speed $c_s$",
    "cfl": "CFL number",
    "dt": r"time step $\Delta t$",
}
_REDUCTIONS = {
    "std": "deviation of",
    "sem": "error of",
    "final": "final",
    "first": "initial",
    "max": "maximum of",
    "min": "minimum of",
    "mean": "mean",
}


@dataclass(frozen=True)
class Parameter:
    """A swept key and its value in each run."""

    key: str
    values: Sequence[Any]

    @property
    def label(self) -> str:
        """The parameter's name in words, with the common symbol if there is one."""
        last = self.key.rpartition(".")[2]
        return _PARAMETERS.get(last, last.replace("_", " "))

    @property
    def numeric(self) -> bool:
        """Whether the values are numbers with an order."""
        return all(isinstance(v, int | float) and not isinstance(v, bool) for v in self.values)

    @property
    def logarithmic(self) -> bool:
        """Whether equal ratios are drawn as equal distances."""
        return self.numeric and min(self.values) > 0 and max(self.values) >= 4 * min(self.values)

    @property
    def distinct(self) -> list[Any]:
        """The different values: numbers in rising order, others in the order of their occurrence."""
        found = list({_hashable(value): value for value in self.values}.values())
        return sorted(found) if self.numeric else found

    def place(self, value: Any) -> int:
        """The index of a value among the distinct ones."""
        return [_hashable(v) for v in self.distinct].index(_hashable(value))


# ---- the pictures of a sweep ----------------------------------------------------------------------------


def plot_sweep(
    sweep: Sweep, *, x: str | None = None, y: Sequence[str] = (), hue: str | None = None
) -> list[Path]:
    """Draws `y` against `x`, and overlays of the series and the latest spectra of all runs; returns the files.

    `x` and `hue` are keys that the sweep sets (by default the first numeric key, and the next one), `y` are
    expressions as in `collect` (by default those of the file). UserError if nothing has been written yet.
    """
    if x is not None and x not in sweep.swept and "." in x and _is_expression(x):
        return _scattered(sweep, _expression(sweep, x, "--x"), [_expression(sweep, t) for t in y], hue)
    across = _parameter(sweep, x, "--x") if x else _first(sweep)
    # By default, line styles show a key only if it has few values.
    others = [key for key in sweep.varied if key != across.key]
    by = _parameter(sweep, hue, "--hue") if hue else None
    if by is None and others and len(_values(sweep, others[0]).distinct) <= len(LINES):
        by = _values(sweep, others[0])
    expressions = [_expression(sweep, text) for text in y] or list(sweep.collected)
    statuses = statuses_of([run.folder for run in sweep.runs])
    pictures = _against(sweep, across, by, expressions, statuses) | _overlays(sweep, across, by)
    if not pictures:
        raise UserError(
            f"{sweep.folder}: no run has written anything yet; simulator sweep run {sweep.file} runs them"
        )
    folder = sweep.folder / "plots"
    return [draw(picture, folder / f"{name}.png") for name, picture in pictures.items()]


def _first(sweep: Sweep) -> Parameter:
    parameters = [_values(sweep, key) for key in sweep.varied]
    return next((parameter for parameter in parameters if parameter.numeric), parameters[0])


def _values(sweep: Sweep, key: str) -> Parameter:
    return Parameter(key, [run.values.get(key) for run in sweep.runs])


def _parameter(sweep: Sweep, key: str, option: str) -> Parameter:
    if key not in sweep.swept:
        meant = did_you_mean(key, sweep.swept, f"; it sets {', '.join(sweep.swept)}")
        raise UserError(f"{option}: the sweep does not set {key!r}{meant}")
    return _values(sweep, key)


def _expression(sweep: Sweep, text: str, option: str = "--y") -> collect.Expression:
    try:
        found = collect.parse(text)
    except ValueError as error:
        raise UserError(f"{option}: {error}") from None
    message = collect.unknown_column(found, {name for run in sweep.runs for name in run.estimate.columns})
    if message is not None:
        raise UserError(f"{option}: {message}")
    return found


def _is_expression(text: str) -> bool:
    """Whether it is a quantity that runs have, and not a key."""
    try:
        collect.parse(text)
    except ValueError:
        return False
    return True


def _scattered(
    sweep: Sweep, x: collect.Expression, ys: Sequence[collect.Expression], hue: str | None
) -> list[Path]:
    """One quantity of all runs against another, means with their standard errors."""
    by = _parameter(sweep, hue, "--hue") if hue else _first(sweep)
    statuses = statuses_of([run.folder for run in sweep.runs])
    wanted = [e for y in (x, *(ys or sweep.collected)) for e in (y, y.error) if e is not None]
    found = [collected(run, wanted, status) for run, status in zip(sweep.runs, statuses, strict=True)]

    def points(e: collect.Expression) -> RunQuantity:
        error = [values[e.error.text] for values in found] if e.error is not None else None
        return RunQuantity(e.text, [values[e.text] for values in found], error)

    return [
        draw(partial(scatter, points(x), points(y), by), sweep.folder / "plots" / f"{name}.png")
        for y in ys or sweep.collected
        if (name := _file_name(f"{y.text}_against_{x.text}")) and y.text != x.text
    ]


def _against(
    sweep: Sweep,
    x: Parameter,
    hue: Parameter | None,
    expressions: Sequence[collect.Expression],
    statuses: Sequence[MemberStatus],
) -> dict[str, Callable[[], Figure]]:
    rows = [collected(run, expressions, status) for run, status in zip(sweep.runs, statuses, strict=True)]
    joined = set(sweep.varied) <= {x.key, hue.key if hue else x.key}
    return {
        _file_name(f"{e.text}_against_{x.key}"): partial(
            against, x, [values[e.text] for values in rows], e.text, hue, joined=joined
        )
        for e in expressions
        if any(values[e.text] == values[e.text] for values in rows)
    }


def _overlays(sweep: Sweep, colour: Parameter, line: Parameter | None) -> dict[str, Callable[[], Figure]]:
    runs = [opened(run.folder) for run in sweep.runs]
    pictures: dict[str, Callable[[], Figure]] = {}
    for name in PANELS:
        curves = [_series(run, name) for run in runs]
        if any(curves):
            pictures[f"series_{name}"] = partial(series, curves, name, colour, line)
    latest = [_latest_spectra(run) for run in runs]
    for name in dict.fromkeys(name for spectra in latest for name in spectra):
        curves = [spectra.get(name) for spectra in latest]
        pictures[f"spectrum_{name}"] = partial(spectra, curves, name, colour, line)
    return pictures


def opened(folder: Path) -> Run | None:
    """The run in a folder; None if there is none yet."""
    try:
        return open_run(folder)
    except UserError:
        return None


def _series(run: Run | None, name: str) -> DrawnCurve | None:
    try:
        columns = run.diagnostics if run is not None else {}
    except UserError:
        return None
    return DrawnCurve(columns["time"], columns[name]) if name in columns and len(columns[name]) else None


def _latest_spectra(run: Run | None) -> dict[str, DrawnCurve]:
    spectra = series_of(run, "spectra")
    if spectra is None:
        return {}
    return {name: DrawnCurve(wavenumbers(spectra), spectra.one(name, -1)) for name in over(spectra, "k")}


def _file_name(text: str) -> str:
    return re.sub(r"[\W_]+", "_", text).strip("_")


# ---- figures --------------------------------------------------------------------------------------------


def against(
    x: Parameter, y: Sequence[float], name: str, hue: Parameter | None = None, *, joined: bool = True
) -> Figure:
    """`y` of every run against the parameter `x`, with one colour for each value of `hue`. nan is left out.

    `joined`: points of one colour form a curve, because the runs differ in nothing else.
    """
    result, (axes,) = panels(x.label, reduced(name), height=4.0, right=0.97)
    positions = np.array(x.values if x.numeric else [x.place(value) for value in x.values], float)
    values = np.asarray(y, float)
    groups = [(None, np.ones(len(values), bool))]
    if hue is not None:
        groups = [(v, np.array([_hashable(v) == _hashable(h) for h in hue.values])) for v in hue.distinct]
    shades = _shades(hue) if hue is not None else lambda value: COLOURS[0]
    for number, (value, mask) in enumerate(groups):
        mask = mask & np.isfinite(values)
        order = np.argsort(positions[mask], kind="stable")
        at, heights = positions[mask][order], values[mask][order]
        axes.plot(
            at,
            heights,
            color=shades(value),
            linestyle=LINES[number % len(LINES)] if x.numeric and joined else "",
            # Coinciding curves remain visible: a wide pale line below, hollow marks around.
            linewidth=2.6 if number == 0 < len(groups) - 1 else 1.5,
            marker=MARKS[number % len(MARKS)],
            markersize=5 if number % 2 == 0 else 8.5,
            markerfacecolor=shades(value) if number % 2 == 0 else "none",
            label=None if value is None else _text(value),
            zorder=3 + 0.1 * number,
        )
    finite = values[np.isfinite(values)]
    if not len(finite):
        note(axes, "no run has finished yet")
    _parameter_axis(axes, x, positions)
    limits(axes, finite, single=False)
    if hue is not None:
        _named_or_bar(result, axes, hue, axes.get_legend_handles_labels())
    return result


@dataclass(frozen=True)
class RunQuantity:
    """A quantity of each run, with its standard error if it is a mean."""

    name: str
    values: Sequence[float]
    errors: Sequence[float] | None = None


def scatter(x: RunQuantity, y: RunQuantity, hue: Parameter) -> Figure:
    """A quantity of every run against another, with error bars and one colour for each value of `hue`. nan is left
    out."""
    result, (axes,) = panels(reduced(x.name), reduced(y.name), height=4.0, right=0.97)
    shades = _shades(hue)
    named: set[Hashable] = set()
    across, up = np.asarray(x.values, float), np.asarray(y.values, float)
    for number, value in enumerate(hue.values):
        if not (np.isfinite(across[number]) and np.isfinite(up[number])):
            continue
        bars = [None if e is None or not np.isfinite(e[number]) else e[number] for e in (x.errors, y.errors)]
        label = None if _hashable(value) in named else _text(value)
        named.add(_hashable(value))
        axes.errorbar(
            across[number], up[number], xerr=bars[0], yerr=bars[1], color=shades(value), label=label,
            marker=MARKS[hue.place(value) % len(MARKS)], markersize=5, linestyle="", elinewidth=1.0, capsize=2.5,
        )  # fmt: skip
    if not named:
        note(axes, "no run has finished yet")
        return result
    there = across[np.isfinite(across)]
    if there.min() > 0 and there.max() > 4 * there.min():
        _ratios(axes)
    limits(axes, up, single=False)
    _named_or_bar(result, axes, hue, axes.get_legend_handles_labels())
    return result


def overlay(
    curves: Sequence[DrawnCurve | None],
    words: tuple[str, str],
    colour: Parameter,
    line: Parameter | None,
    log: str = "",
) -> Figure:
    """The curves of all runs (None: no data yet): `colour` encodes one parameter, the line style another."""
    result, (axes,) = panels(*words, right=0.76)
    shades = _shades(colour)
    each = []
    for i, curve in enumerate(curves):
        if curve is not None and len(curve.x):
            how = {"marker": None, **(_line(line.place(line.values[i])) if line is not None else {})}
            each.append(DrawnCurve(curve.x, curve.y, colour=shades(colour.values[i]), how=how))
    values = drawn(axes, each, log, "no run has written anything yet")
    if values and not log:
        axes.set_xlim(min(c.x[0] for c in each), max(c.x[-1] for c in each))
        limits(axes, np.concatenate(values), single=False)
    _legends(result, axes, colour, line, shades)
    return result


def _line(number: int) -> dict[str, Any]:
    """A wider line below a dashed one, so that both are visible if they coincide."""
    wide = {"linewidth": 1.3, "alpha": 1.0} if number else {"linewidth": 2.2, "alpha": 0.45}
    return {"linestyle": LINES[number % len(LINES)], **wide}


def spectra(
    curves: Sequence[DrawnCurve | None], name: str, colour: Parameter, line: Parameter | None
) -> Figure:
    """The latest shell spectrum of every run."""
    return overlay(curves, (r"wavenumber $k$", spectrum_of(name)), colour, line, "xy")


def series(
    curves: Sequence[DrawnCurve | None], name: str, colour: Parameter, line: Parameter | None
) -> Figure:
    """One diagnostic of every run against time."""
    return overlay(curves, (r"time $t$", quantity(name)), colour, line)


def reduced(expression: str) -> str:
    """`max.dissipation` as an axis label."""
    reduction, _, rest = expression.partition(".")
    if not rest:
        return {"wall_time": "wall time (s)", "steps": "steps"}.get(expression, expression)
    column, _, conditions = rest.partition("[")
    if column.startswith("("):
        words = _REDUCTIONS.get(reduction, reduction).removesuffix(" of")
        words = f"{words} of ${_formula(column[1:-1])}$"
    else:
        words = f"{_REDUCTIONS.get(reduction, reduction)} {quantity(column)}"
    if reduction == "integral":
        words = f"{quantity(column)} integrated over time"
    bounds = conditions.rstrip("]").replace("time", "t").replace("<=", r"\leq ").replace(">=", r"\geq ")
    return f"{words}, ${bounds.replace('==', '=')}$" if bounds else words


def _formula(expression: str) -> str:
    """An expression of columns in mathematical text, with their symbols where they have common ones."""

    def symbol(name: re.Match[str]) -> str:
        words = name[0].replace("_", r"\ ")
        return SYMBOLS.get(name[0], rf"\mathrm{{{words}}}")

    powers = re.sub(r"\*\*\s*(-?[\d.]+)", r"^{\1}", re.sub(r"[A-Za-z_]\w*", symbol, expression))
    return powers.replace("*", r"\,")


# ---- colours and legends ---------------------------------------------------------------------------------


def _shades(parameter: Parameter) -> Callable[[Any], Any]:
    """The colour of a value: from a colour map for numbers, else one of a few that are easily distinguished."""
    distinct = parameter.distinct
    if not parameter.numeric or len(distinct) <= 2:
        return lambda value: COLOURS[parameter.place(value) % len(COLOURS)]
    if len(distinct) <= _MOST_NAMED:
        colours = sequence_colours(len(distinct))
        return lambda value: colours[parameter.place(value)]
    scale = _mappable(parameter)
    return lambda value: scale.to_rgba(value)


def _mappable(parameter: Parameter) -> ScalarMappable:
    low, high = min(parameter.values), max(parameter.values)
    norm = LogNorm(low, high) if parameter.logarithmic else Normalize(low, high)
    return ScalarMappable(norm, colormaps["viridis"].resampled(256))


def _named_or_bar(
    result: Figure, axes: Axes, parameter: Parameter, handles: tuple[list[Any], list[Any]]
) -> None:
    if len(parameter.distinct) <= _MOST_NAMED:
        axes.legend(*handles, title=parameter.label, loc="best")
    else:
        result.colorbar(_mappable(parameter), ax=axes, label=parameter.label)


def _legends(
    result: Figure, axes: Axes, colour: Parameter, line: Parameter | None, shades: Callable[[Any], Any]
) -> None:
    """Beside the axes, because curves may pass through any corner."""
    beside: Any = {"loc": "upper left", "labelspacing": 0.35, "alignment": "left", "handlelength": 1.8}
    top = 0.3
    if len(colour.distinct) <= _MOST_NAMED:
        handles = [Line2D([], [], color=shades(value), label=_text(value)) for value in colour.distinct]
        axes.add_artist(
            axes.legend(handles=handles, title=colour.label, bbox_to_anchor=(1.01, 1.0), **beside)
        )
        top = 1.0 - (len(handles) + 1.6) * 0.068
    else:
        place = result.add_axes((0.79, 0.45, 0.02, 0.5))
        result.colorbar(_mappable(colour), cax=place, label=colour.label)
        place.grid(False)
    if line is not None:
        handles = [
            Line2D([], [], color="#444444", label=_text(value), **_line(i))
            for i, value in enumerate(line.distinct)
        ]
        axes.legend(handles=handles, title=line.label, bbox_to_anchor=(1.01, top), **beside)


# ---- axes ------------------------------------------------------------------------------------------------


def _parameter_axis(axes: Axes, x: Parameter, positions: np.ndarray) -> None:
    """Ticks at the values themselves, if they are few."""
    distinct = x.distinct
    if not x.numeric:
        axes.set_xticks(range(len(distinct)), [_text(value) for value in distinct])
        axes.set_xlim(-0.5, len(distinct) - 0.5)
        return
    if x.logarithmic:
        _ratios(axes)
    if len(distinct) <= _MOST_NAMED:
        axes.xaxis.set_major_locator(FixedLocator([float(value) for value in distinct]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _text(value)))
        axes.xaxis.set_minor_locator(NullLocator())
    if len(distinct) == 1:
        axes.set_xlim(*_around(float(positions[0])))


def _ratios(axes: Axes) -> None:
    """A logarithmic horizontal axis with plain numbers."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _text(value)))


def _around(value: float) -> tuple[float, float]:
    return (value / 2, value * 2) if value > 0 else (value - 1, value + 1)


def _text(value: Any) -> str:
    """A value as text for a tick or a legend."""
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case int() | float():
            return _number(float(value))
        case list() | tuple():
            return " x ".join(_text(part) for part in value)
    return str(value).replace("_", " ")


def _number(value: float) -> str:
    if value and not 1e-3 <= abs(value) < 1e4:
        power = math.floor(math.log10(abs(value)))
        digits = f"{value / 10.0**power:.4g}"
        return rf"$10^{{{power}}}$" if digits == "1" else rf"${digits}\times 10^{{{power}}}$"
    return f"{value:.4g}"


def _hashable(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        return tuple(sorted((key, _hashable(item)) for key, item in value.items()))
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value
