"""Pictures of many runs together: a quantity against a parameter, and overlays of series and spectra.

All data are plain arrays. A run is a mark or a curve; its colour encodes one parameter and its line style another.
"""

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from simulator.show.style import (
    COLOURS,
    SYMBOLS,
    WIDTH,
    figure,
    note,
    quantity,
    sequence_colours,
    spectrum_of,
)

LINES = ("-", "--", ":", "-.")
MARKS = ("o", "s", "^", "D", "v", "P")
_MOST_NAMED = 8
"""The largest number of values in a legend; for more, a colour bar is drawn."""
_DECADES = 11
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


@dataclass(frozen=True)
class Curve:
    """One run's curve y(x)."""

    x: np.ndarray
    y: np.ndarray


def against(
    x: Parameter, y: Sequence[float], name: str, hue: Parameter | None = None, *, joined: bool = True
) -> Figure:
    """`y` of every run against the parameter `x`, with one colour for each value of `hue`. nan is left out.

    `joined`: points of one colour form a curve, because the runs differ in nothing else.
    """
    result = figure(WIDTH, 4.0)
    axes = result.subplots()
    result.subplots_adjust(left=0.15, right=0.97, top=0.965, bottom=0.135)
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
    axes.set_xlabel(x.label)
    axes.set_ylabel(reduced(name))
    finite = values[np.isfinite(values)]
    if not len(finite):
        note(axes, "no run has finished yet")
    _parameter_axis(axes, x, positions)
    _value_axis(axes, finite)
    if hue is not None:
        _named_or_bar(result, axes, hue, axes.get_legend_handles_labels())
    return result


@dataclass(frozen=True)
class Points:
    """A quantity of each run, with its standard error if it is a mean."""

    name: str
    values: Sequence[float]
    errors: Sequence[float] | None = None


def scatter(x: Points, y: Points, hue: Parameter) -> Figure:
    """A quantity of every run against another, with error bars and one colour for each value of `hue`. nan is left
    out."""
    result = figure(WIDTH, 4.0)
    axes = result.subplots()
    result.subplots_adjust(left=0.15, right=0.97, top=0.965, bottom=0.135)
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
    axes.set_xlabel(reduced(x.name))
    axes.set_ylabel(reduced(y.name))
    if not named:
        note(axes, "no run has finished yet")
        return result
    there = across[np.isfinite(across)]
    if there.min() > 0 and there.max() > 4 * there.min():
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _text(value)))
    _value_axis(axes, up[np.isfinite(up)])
    _named_or_bar(result, axes, hue, axes.get_legend_handles_labels())
    return result


def overlay(
    curves: Sequence[Curve | None],
    colour: Parameter,
    line: Parameter | None,
    *,
    x_label: str,
    y_label: str,
    logarithmic: bool = False,
) -> Figure:
    """The curves of all runs (None: no data yet): `colour` encodes one parameter, the line style another."""
    result = figure(WIDTH, 4.2)
    axes = result.subplots()
    result.subplots_adjust(left=0.14, right=0.76, top=0.965, bottom=0.125)
    shades = _shades(colour)
    drawn = [curve for curve in curves if curve is not None and len(curve.x)]
    floor = max((float(c.y.max()) for c in drawn), default=0.0) * 10.0**-_DECADES
    for i, curve in enumerate(curves):
        if curve is None:
            continue
        # A gap instead of a steep drop where a spectrum holds only round-off.
        y = np.where((curve.y > floor) & (curve.x > 0), curve.y, np.nan) if logarithmic else curve.y
        axes.plot(
            curve.x,
            y,
            color=shades(colour.values[i]),
            linestyle="-" if line is None else LINES[line.place(line.values[i]) % len(LINES)],
            # A wider line below a dashed one, so that both are visible if they coincide.
            linewidth=1.3 if line is None or line.place(line.values[i]) else 2.2,
            alpha=1.0 if line is None or line.place(line.values[i]) else 0.45,
        )
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    if not drawn:
        note(axes, "no run has written anything yet")
    elif logarithmic:
        axes.set_xscale("log")
        axes.set_yscale("log")
        first = min(float(c.x[c.x > 0][0]) for c in drawn)
        axes.set_xlim(0.9 * first, max(1.1 * max(float(c.x[-1]) for c in drawn), 10 * first))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(min(c.x[0] for c in drawn), max(c.x[-1] for c in drawn))
        _value_axis(axes, np.concatenate([c.y[np.isfinite(c.y)] for c in drawn]))
    _legends(result, axes, colour, line, shades)
    return result


def spectra(curves: Sequence[Curve | None], name: str, colour: Parameter, line: Parameter | None) -> Figure:
    """The latest shell spectrum of every run."""
    return overlay(
        curves, colour, line, x_label=r"wavenumber $k$", y_label=spectrum_of(name), logarithmic=True
    )


def series(curves: Sequence[Curve | None], name: str, colour: Parameter, line: Parameter | None) -> Figure:
    """One diagnostic of every run against time."""
    return overlay(curves, colour, line, x_label=r"time $t$", y_label=quantity(name))


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
    top = 1.0
    if len(colour.distinct) <= _MOST_NAMED:
        handles = [Line2D([], [], color=shades(value), label=_text(value)) for value in colour.distinct]
        legend = axes.legend(
            handles=handles,
            title=colour.label,
            loc="upper left",
            bbox_to_anchor=(1.01, top),
            handlelength=1.4,
            labelspacing=0.35,
            alignment="left",
        )
        axes.add_artist(legend)
        top -= (len(handles) + 1.6) * 0.068
    else:
        place = result.add_axes((0.79, 0.45, 0.02, 0.5))
        result.colorbar(_mappable(colour), cax=place, label=colour.label)
        place.grid(False)
        top = 0.3
    if line is not None:
        handles = [
            Line2D([], [], color="#444444", linestyle=LINES[i % len(LINES)], label=_text(value),
                   linewidth=1.3 if i else 2.2, alpha=1.0 if i else 0.45)
            for i, value in enumerate(line.distinct)
        ]  # fmt: skip
        axes.legend(
            handles=handles,
            title=line.label,
            loc="upper left",
            bbox_to_anchor=(1.01, top),
            handlelength=1.8,
            labelspacing=0.35,
            alignment="left",
        )


# ---- axes ------------------------------------------------------------------------------------------------


def _parameter_axis(axes: Axes, x: Parameter, positions: np.ndarray) -> None:
    """Ticks at the values themselves, if they are few."""
    distinct = x.distinct
    if not x.numeric:
        axes.set_xticks(range(len(distinct)), [_text(value) for value in distinct])
        axes.set_xlim(-0.5, len(distinct) - 0.5)
        return
    if x.logarithmic:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _text(value)))
    if len(distinct) <= _MOST_NAMED:
        axes.xaxis.set_major_locator(FixedLocator([float(value) for value in distinct]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _text(value)))
        axes.xaxis.set_minor_locator(NullLocator())
    if len(distinct) == 1:
        axes.set_xlim(*_around(float(positions[0])))


def _around(value: float) -> tuple[float, float]:
    return (value / 2, value * 2) if value > 0 else (value - 1, value + 1)


def _value_axis(axes: Axes, values: np.ndarray) -> None:
    """Starts at zero, which shows the relative change, unless the change is a small part of the whole."""
    if not len(values):
        return
    low, high = float(values.min()), float(values.max())
    if low >= 0 and high > 0 and high - low > 0.15 * high:
        axes.set_ylim(0, 1.08 * high)
    elif high > 0 and high - low < 1e-3 * high:
        axes.set_ylim(low - 0.02 * high, high + 0.02 * high)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=bool((values == np.round(values)).all())))


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
