"""Draws curves in panels from any series: against a coordinate at several times, or against time;
and images."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from simulator.archive.series_file import SeriesReader
from simulator.measure import Curves
from simulator.plugins.pictures import style

Pictures = Iterator[tuple[str, Callable[[], Figure]]]
"""Names of files without their endings, and functions that build the figures."""
MOST_CURVES = 6
MOST_PLANES = 4
MOST_PANELS = 5
PANELS = ("energy", "dissipation", "enstrophy", "virial_ratio", "max_density", "vortex_faces")
"""The columns of the diagnostics that are drawn by default."""
_CLOCK = ("step", "time", "dt", "cfl")
PROBABILITY = "probability density"
_FEW = 48  # A curve of at most so many points has a mark at each point.
# A logarithmic axis does not show values below this fraction of the largest value.
_ROUND_OFF = 1e-11
_STEADY = 2e-3  # The smallest extent of an axis of time series, relative to the largest value.
_LOST = 0.01  # A part of the energy below this fraction of the total would lie on the axis of a linear panel.
_WIDE = 30.0  # The axis of a density or virial ratio that varies by more than this factor is logarithmic.


@dataclass(frozen=True)
class DrawnCurve:
    """y(x), with its standard error if it is a mean. `how` holds further arguments of matplotlib's
    `plot`. Beyond `reach`, k_max of a spectrum, only modes in corners are left."""

    x: np.ndarray
    y: np.ndarray
    label: str | None = None
    colour: Any = None
    error: np.ndarray | None = None
    how: Mapping[str, Any] = field(default_factory=dict)
    reach: float = math.inf


def panels(
    x: str, *ys: str, title: str = "", height: float = 4.2, right: float = 0.78
) -> tuple[Figure, list[Axes]]:
    """Panels above one another with a common horizontal axis, and room for legends beside the
    panels."""
    result = style.figure(style.WIDTH, height)
    grid = list(
        result.subplots(len(ys), 1, sharex=True, squeeze=False, gridspec_kw={"hspace": 0.08}).flat
    )
    top = 0.36 if title else 0.29  # inches; a power of ten may stand above
    result.subplots_adjust(left=0.15, right=right, top=1 - top / height, bottom=0.54 / height)
    for axes, words in zip(grid, ys, strict=True):
        style.name_vertical(axes, words)
    grid[0].set_title(title)
    grid[-1].set_xlabel(x)
    result.align_ylabels()
    return result, grid


def legend_beside(axes: Axes, **more: Any) -> None:
    """A legend beside the axes, because curves may pass through any corner."""
    close = {"handlelength": 1.4, "labelspacing": 0.35, **more}
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), **close)


def logarithmic(axes: Axes, log: str) -> None:
    for name, axis, scale in (
        ("x", axes.xaxis, axes.set_xscale),
        ("y", axes.yaxis, axes.set_yscale),
    ):
        if name in log:
            scale("log")
            style.powers_of_ten(axis)


def drawn(
    axes: Axes, curves: Sequence[DrawnCurve], log: str = "", empty: str = "nothing above zero yet"
) -> list[np.ndarray]:
    """Draw curves, with gaps at values that are not finite or that a logarithmic axis does not
    show. Returns the shown values, nan in gaps; if there are no values, writes the note `empty` on
    the axes and returns an empty list."""
    top = max((float(np.nanmax(c.y[np.isfinite(c.y)], initial=0)) for c in curves), default=0.0)
    shown = []
    for c in curves:
        there = np.isfinite(c.y)
        if "x" in log:
            there = there & (c.x > 0)
        if "y" in log:
            there = there & (c.y > _ROUND_OFF * top)
        y = np.where(there, c.y, np.nan)
        shown.append(y)
        gaps = np.pad(there, 1)
        alone = np.flatnonzero(there & ~gaps[:-2] & ~gaps[2:])  # points that a line would not show
        size = 6.0 if there.sum() == 1 else 3.0
        how: dict[str, Any] = {"linewidth": 1.3, "marker": "o", "markersize": size, **c.how}
        if len(y) > _FEW:
            how.setdefault("markevery", list(alone))
        inside = np.where(c.x > c.reach * (1 + 1e-9), np.nan, y)
        label = c.label if there.any() else None
        (line,) = axes.plot(c.x, inside, color=c.colour, label=label, **how)
        if c.error is not None:
            low = np.maximum(y - c.error, y * 1e-3) if "y" in log else y - c.error
            axes.fill_between(
                c.x, low, y + c.error, color=line.get_color(), alpha=0.25, linewidth=0
            )
    if not any(np.isfinite(y).any() for y in shown):
        style.note(axes, empty)
        return []
    _draw_corners(axes, curves, shown)
    logarithmic(axes, log)
    if axes.get_legend_handles_labels()[1]:
        legend_beside(axes)
    return shown


def _draw_corners(axes: Axes, curves: Sequence[DrawnCurve], shown: Sequence[np.ndarray]) -> None:
    """Draw a line at k_max, and the curves beyond it pale and dotted."""
    lines = list(axes.lines[-len(curves) :])
    corners = False
    for c, y, line in zip(curves, shown, lines, strict=True):
        last = np.count_nonzero(c.x <= c.reach * (1 + 1e-9)) - 1
        if last < 0 or not np.isfinite(y[last + 1 :]).any():
            continue
        label = None if corners else "corner modes"
        look: Any = {"color": line.get_color(), "linestyle": ":", "linewidth": 1.0, "alpha": 0.6}
        axes.plot(c.x[last:], y[last:], label=label, **look)
        corners = True
    ends = {c.reach for c, y in zip(curves, shown, strict=True) if np.isfinite(y).any()} - {
        math.inf
    }
    for number, reach in enumerate(sorted(ends)):
        label = None if number else r"$k_{\max}$"
        axes.axvline(reach, color="#888888", linewidth=0.8, linestyle="-.", label=label)


def plotted(
    curves: Sequence[DrawnCurve],
    x: str,
    y: str,
    log: str = "",
    empty: str = "nothing above zero yet",
    levels: Sequence[tuple[float, str | None]] = (),
    **layout: Any,
) -> tuple[Figure, Axes, list[np.ndarray]]:
    """One panel with lines at `levels` and curves; also returns the shown values. `layout` as for
    `panels`."""
    result, (axes,) = panels(x, y, **layout)
    for value, label in levels:
        level(axes, value, label)
    return result, axes, drawn(axes, curves, log, empty)


def drawn_rows(series: SeriesReader, labels: style.Labels) -> Iterator[tuple[int, Any, str]]:
    """The rows to draw, each with its colour and its time as text."""
    rows = labels.rows(series.time, MOST_CURVES)
    for row, colour in zip(rows, style.sequence_colours(len(rows)), strict=True):
        yield row, colour, labels.moment(series.time[row])


def at_times(
    series: SeriesReader, name: str, x: np.ndarray, labels: style.Labels = style.PLAIN, **how: Any
) -> list[DrawnCurve]:
    """A variable with one dimension against `x`, a curve for each of up to six times."""
    rows = drawn_rows(series, labels)
    reach = reach_of(series, name)
    return [
        DrawnCurve(x, np.asarray(series.one(name, r)), label, colour, how=how, reach=reach)
        for r, colour, label in rows
    ]


def reach_of(series: SeriesReader, name: str) -> float:
    """k_max of a variable over shells; infinite for others, and of series that do not say it."""
    of_shells = "k" in series.variables[name]
    return float(series.attributes.get("largest_wavenumber", math.inf)) if of_shells else math.inf


def level(axes: Axes, value: float = 0.0, label: str | None = None) -> None:
    """A horizontal line at `value`: with a label, dashed, for a theoretical value; else thin, for
    reference."""
    if label is None:
        axes.axhline(value, color="#888888", linewidth=0.7)
    else:
        axes.axhline(value, color="#444444", linewidth=1.0, linestyle="--", label=label)


def generic_pictures(series: SeriesReader, labels: style.Labels, by: Curves) -> Pictures:
    """The pictures of any series, by the dimensions of its variables: NAME with all numbers against
    time, NAME_VARIABLE for each variable with one or two dimensions."""
    name = series.path.stem
    yield from numbers(series, labels, by)
    for variable, dimensions in series.variables.items():
        build = {1: curves, 2: planes}.get(len(dimensions))
        if build is not None:
            yield (
                f"{name}_{variable.replace('/', '_')}",
                partial(build, series, variable, labels, by),
            )


def numbers(series: SeriesReader, labels: style.Labels, by: Curves) -> Pictures:
    """Figures of the variables that are single numbers at each time, with up to five panels
    each."""
    names = [variable for variable, dimensions in series.variables.items() if not dimensions]
    for page in range(0, len(names), MOST_PANELS):
        stem = series.path.stem + (f"_{page // MOST_PANELS + 1}" if page else "")
        yield stem, partial(against_time, series, names[page : page + MOST_PANELS], labels, by)


def _title(by: Curves, variable: str) -> str:
    words = by.title(variable) if by.title is not None else None
    return words if words is not None else style.quantity(variable.replace("/", " "))


def _coordinate(by: Curves, name: str) -> str:
    return (by.coordinates or {}).get(name, name.replace("_", " "))


def against_time(
    series: SeriesReader, variables: Sequence[str], labels: style.Labels, by: Curves
) -> Figure:
    """One panel for each variable that is a single number at each time."""
    height = 0.8 + 1.7 * len(variables)
    words = [_title(by, variable) for variable in variables]
    result, grid = panels(labels.axis(r"time $t$", "time"), *words, height=height, right=0.97)
    for panel, variable in zip(grid, variables, strict=True):
        values = np.asarray(series[variable])
        if log := "y" in by.log and bool((values > 0).any()):
            values = np.where(values > 0, values, np.nan)
        panel.plot(
            series.time,
            values,
            marker="o" if len(values) <= 12 else None,
            markersize=3.5,
            clip_on=False,
        )
        if log:
            logarithmic(panel, "y")
    return result


def curves(series: SeriesReader, variable: str, labels: style.Labels, by: Curves) -> Figure:
    """A variable with one dimension against its coordinate, at up to six times."""
    (dimension,) = series.variables[variable]
    each = at_times(series, variable, series.coordinates[dimension], labels)
    words = _coordinate(by, dimension), _title(by, variable)
    return plotted(each, *words, by.log, "nothing to show yet")[0]


def planes(series: SeriesReader, variable: str, labels: style.Labels, by: Curves) -> Figure:
    """A variable with two dimensions as images at up to four times, all on one colour scale."""
    horizontal, vertical = series.variables[variable]
    shown = {
        row: np.asarray(series.one(variable, row)) for row in labels.rows(series.time, MOST_PLANES)
    }
    scale = style.scale_of(variable, list(shown.values()))
    return images(
        series,
        labels,
        [(row, scale.shown(values)) for row, values in shown.items()],
        (_coordinate(by, horizontal), _coordinate(by, vertical)),
        scale.label(_title(by, variable)),
        **scale.look,
        extend=scale.extend,
        points=(series.coordinates[horizontal], series.coordinates[vertical]),
    )


def images(
    series: SeriesReader,
    labels: style.Labels,
    shown: Sequence[tuple[int, np.ndarray]],
    names: tuple[str, str],
    bar: str,
    *,
    points: tuple[np.ndarray, np.ndarray],
    extend: str = "neither",
    **how: Any,
) -> Figure:
    """Images (horizontal, vertical) of rows of a series, side by side, with one colour bar."""
    columns = min(2, len(shown))
    lines = math.ceil(len(shown) / columns)
    result = style.figure(style.WIDTH, 0.8 + 2.8 * lines * (1 if columns > 1 else 1.4))
    grid = result.subplots(lines, columns, squeeze=False)
    result.subplots_adjust(left=0.11, right=0.82, top=0.94, bottom=0.11, wspace=0.26, hspace=0.36)
    mesh: Any = None
    for axes, (row, image) in zip(grid.flat, shown, strict=False):
        mesh = axes.pcolormesh(*points, image.T, shading="nearest", rasterized=True, **how)
        axes.set_title(labels.moment(series.time[row]))
        axes.grid(False)
    for axes in list(grid.flat)[len(shown) :]:
        axes.set_axis_off()
    for axes in grid[-1]:
        axes.set_xlabel(names[0])
    for axes in grid[:, 0]:
        style.name_vertical(axes, names[1])
    colour_bar(result, mesh, bar, extend)
    return result


def colour_bar(
    result: Figure,
    mesh: ScalarMappable,
    words: str,
    extend: str = "neither",
    place: tuple[float, float, float, float] = (0.85, 0.2, 0.022, 0.6),
) -> None:
    bar = result.colorbar(mesh, cax=result.add_axes(place), extend=extend)
    bar.set_label(words, labelpad=4, rotation=0 if len(words) == 1 else 90)


def chosen_panels(diagnostics: Mapping[str, np.ndarray]) -> list[str]:
    """The columns to draw: those of PANELS; if the run has none of them, as with a user's equation,
    the first columns. Empty without rows."""
    if not len(diagnostics.get("time", ())):
        return []
    usual = [name for name in PANELS if name in diagnostics]
    return usual or [name for name in diagnostics if name not in _CLOCK][: len(PANELS)]


def time_series(
    diagnostics: Mapping[str, np.ndarray], labels: style.Labels = style.PLAIN
) -> Figure:
    """A panel each for energy (with its parts if it has several), dissipation, enstrophy, virial
    ratio, maximum density and vortices, without missing quantities, against the scale factor in an
    expanding background, else against time.

    `diagnostics` as from `open_run`: arrays of shape (row,) by name."""
    chosen = chosen_panels(diagnostics)
    names = [n for n in chosen if n == "energy" or np.any(diagnostics[n])] or chosen[:1]
    expanding = "scale_factor" in diagnostics
    time = diagnostics["scale_factor" if expanding else "time"]
    parts = {name: _parts(diagnostics) if name == "energy" else [] for name in names}
    x = "scale factor $a$" if expanding else labels.with_unit(r"time $t$", "time")
    # A blank title makes room for the legend of the energies.
    result, grid = panels(
        x, *names, title=" " * any(parts.values()), height=0.85 + 1.75 * len(names), right=0.97
    )
    for panel, name in zip(grid, names, strict=True):
        curves = {name: diagnostics[name], **{part: diagnostics[part] for part in parts[name]}}
        _draw_column(panel, name, time, curves, labels)
    if time[-1] > time[0]:
        grid[-1].set_xlim(time[0], time[-1])
    else:
        grid[-1].set_xticks([time[0]])
    return result


def _draw_column(
    panel: Axes,
    name: str,
    time: np.ndarray,
    curves: Mapping[str, np.ndarray],
    labels: style.Labels,
) -> None:
    """Draws a column of the diagnostics, the first of `curves`, and the parts that add up to it."""
    total = curves[name]
    has_parts = len(curves) > 1
    log = _is_wide(name, total, curves.values())
    if log:
        visible = {curve: _visible(values, total) for curve, values in curves.items()}
        curves = {curve: values for curve, values in visible.items() if len(values)}
    power = 0 if log else _power_of_ten(curves)
    for number, (curve, values) in enumerate(curves.items()):
        is_total = curve == name and has_parts
        panel.plot(
            time,
            values / 10.0**power,
            color="black" if is_total else f"C{max(number - 1, 0)}",
            label="total" if is_total else style.as_words(curve.removesuffix("_energy")),
            marker="o" if len(time) <= 25 else None,
            markersize=3.5,
            clip_on=False,
        )
    if has_parts:
        above = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.1}
        panel.legend(ncols=len(curves), **above)
    unit = labels.unit(style.vocabulary("dimensions").get(name, ""))
    scale = r"\,".join(filter(None, (f"10^{{{power}}}" if power else "", unit)))
    panel.set_ylabel(style.quantity(name) + (f" (${scale}$)" if scale else ""))
    if log:
        logarithmic(panel, "y")
    else:
        every = np.concatenate(list(curves.values()))
        limits(panel, every / 10.0**power, single=len(time) == 1)


def _is_wide(name: str, total: np.ndarray, curves: Iterable[np.ndarray]) -> bool:
    """Whether a column, or a part of it, would not be seen on a linear axis. A logarithmic axis
    cannot show a total that is negative."""
    positive = _positive(total)
    if not len(positive):
        return False
    if name in ("max_density", "virial_ratio") and positive.max() > _WIDE * positive.min():
        return True
    return any(grows(values) or _lost(values, total) for values in curves)


def grows(values: np.ndarray) -> bool:
    """Whether a nonnegative quantity ends far above its initial value, as in an instability or a
    dynamo."""
    positive = _positive(values)
    return len(positive) > 1 and float(positive[-1]) > _WIDE * float(positive[0])


def _lost(values: np.ndarray, total: np.ndarray) -> bool:
    """Whether a nonnegative part, such as a weak magnetic energy, lies on the axis of a linear
    panel."""
    part = _positive(values) if len(_positive(values)) else np.zeros(1)
    return bool(_ROUND_OFF**2 < part.max() / np.nanmax(total) < _LOST)


def _visible(values: np.ndarray, total: np.ndarray) -> np.ndarray:
    """The values that a logarithmic axis shows beside the `total`, nan in their gaps; empty if it
    shows none."""
    # Energies are squares.
    there = np.isfinite(values) & (values > _ROUND_OFF**2 * np.nanmax(total))
    return np.where(there, values, np.nan) if there.any() else values[:0]


def _positive(values: np.ndarray) -> np.ndarray:
    """The positive values if no value is negative, else none: a logarithmic axis may leave out
    zeros only."""
    finite = values[np.isfinite(values)]
    return finite[finite > 0] if (finite >= 0).all() else finite[:0]


def _parts(diagnostics: Mapping[str, np.ndarray]) -> list[str]:
    """The energies that add up to the total energy, without those of the components of a
    composite."""
    owners = tuple(name.removesuffix("mass") for name in diagnostics if name.endswith("_mass"))
    parts = [
        name
        for name, values in diagnostics.items()
        if name.endswith("_energy") and name != "edge_energy" and not name.startswith(owners)
        # An energy that the run's model does not have is zero in all rows.
        if np.any(np.isfinite(values) & (values != 0))
    ]
    return parts if len(parts) > 1 else []


def _power_of_ten(curves: Mapping[str, np.ndarray]) -> int:
    """The power of ten in the axis label that keeps the tick labels short; 0 for ordinary
    numbers."""
    most = max(
        (float(np.nanmax(abs(v))) for v in curves.values() if np.isfinite(v).any()), default=0
    )
    power = math.floor(math.log10(most)) if most > 0 and math.isfinite(most) else 0
    return power if power < -2 or power > 3 else 0


def limits(panel: Axes, values: np.ndarray, *, single: bool) -> None:
    """Sets the limits of the vertical axis: from zero, to show the relative change, unless that
    change is small."""
    values = values[np.isfinite(values)]
    if (
        len(values)
        and values.min() >= 0
        and values.max() > 0
        and (single or np.ptp(values) > 0.15 * values.max())
    ):
        panel.set_ylim(0, 1.08 * values.max())
    elif len(values) and 0 < np.ptp(values) < _STEADY * (size := float(abs(values).max())):
        # Conserved quantities look constant, and their tick labels stay short.
        middle = (values.max() + values.min()) / 2
        panel.set_ylim(middle - 1.4 * _STEADY * size, middle + 1.4 * _STEADY * size)
    counted = len(values) > 0 and bool((values == np.round(values)).all())
    panel.yaxis.set_major_locator(MaxNLocator(5, integer=counted))
    panel.ticklabel_format(axis="y", style="plain", useOffset=False)
