"""Pictures of any series, from its variables and their dimensions alone: numbers against time, curves, planes."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulator.measure import Curves
from simulator.output.series import SeriesReader
from simulator.show.labels import Labels
from simulator.show.scales import scale_of
from simulator.show.style import WIDTH, figure, note, powers_of_ten, quantity, sequence_colours

MOST_CURVES, MOST_PLANES = 6, 4
MOST_PANELS = 5
"""The largest number of quantities against time in one figure."""
_FEW = 12
_ROUND_OFF = 1e-11
"""Values below this fraction of the largest are not shown on a logarithmic axis."""


def pictures(
    series: SeriesReader, labels: Labels, described: Curves
) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """File names without their endings, and functions that build the figures: NAME for all variables that are
    numbers, NAME_VARIABLE for each with one or two dimensions. Variables with more dimensions have no picture."""
    name = series.path.stem
    numbers = [variable for variable, dimensions in series.variables.items() if not dimensions]
    for page in range(0, len(numbers), MOST_PANELS):
        stem = name if page == 0 else f"{name}_{page // MOST_PANELS + 1}"
        yield stem, partial(against_time, series, numbers[page : page + MOST_PANELS], labels, described)
    for variable, dimensions in series.variables.items():
        draw = {1: curves, 2: planes}.get(len(dimensions))
        if draw is not None:
            yield f"{name}_{variable.replace('/', '_')}", partial(draw, series, variable, labels, described)


def _title(described: Curves, variable: str) -> str:
    words = described.title(variable) if described.title is not None else None
    return words if words is not None else quantity(variable.replace("/", " "))


def _coordinate(described: Curves, name: str) -> str:
    return (described.coordinates or {}).get(name, name.replace("_", " "))


def against_time(series: SeriesReader, variables: Sequence[str], labels: Labels, described: Curves) -> Figure:
    """One panel for each variable that is a single number at each time."""
    height = 0.6 + 1.75 * len(variables)
    result = figure(WIDTH, height)
    panels = np.atleast_1d(result.subplots(len(variables), 1, sharex=True, gridspec_kw={"hspace": 0.1}))
    for panel, variable in zip(panels, variables, strict=True):
        values = np.asarray(series[variable])
        panel.plot(
            series.time, values, marker="o" if len(values) <= _FEW else None, markersize=3.5, clip_on=False
        )
        panel.set_ylabel(_title(described, variable))
        if "y" in described.log and (values > 0).any():
            panel.set_yscale("log")
            powers_of_ten(panel.yaxis)
    panels[-1].set_xlabel(labels.axis(r"time $t$", "time"))
    result.align_ylabels()
    result.subplots_adjust(left=0.15, right=0.97, top=1 - 0.12 / height, bottom=0.52 / height)
    return result


def curves(series: SeriesReader, variable: str, labels: Labels, described: Curves) -> Figure:
    """A variable with one dimension against its coordinate, at up to six times."""
    (dimension,) = series.variables[variable]
    x = series.coordinates[dimension]
    result = figure(WIDTH, 4.2)
    axes: Axes = result.subplots()
    result.subplots_adjust(left=0.15, right=0.78, top=0.93, bottom=0.13)  # a power of ten may stand above
    axes.set_xlabel(_coordinate(described, dimension))
    axes.set_ylabel(_title(described, variable))
    rows = labels.rows(series.time, MOST_CURVES)
    known = {row: np.asarray(series.one(variable, row)) for row in rows}
    most = max((float(np.nanmax(v, initial=0)) for v in known.values()), default=0.0)
    drawn = False
    for (row, y), colour in zip(known.items(), sequence_colours(len(rows)), strict=True):
        shown = np.isfinite(y)
        if "x" in described.log:
            shown &= x > 0
        if "y" in described.log:
            shown &= y > _ROUND_OFF * most
        drawn |= bool(shown.any())
        axes.plot(
            x, np.where(shown, y, np.nan), color=colour, linewidth=1.3, marker="o" if len(x) <= 48 else None,
            markersize=3.0, label=labels.moment(series.time[row]),
        )  # fmt: skip
    if not drawn:
        note(axes, "nothing to show yet")
        return result
    for axis, scale in (("x", axes.set_xscale), ("y", axes.set_yscale)):
        if axis in described.log:
            scale("log")
            powers_of_ten(axes.xaxis if axis == "x" else axes.yaxis)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), handlelength=1.4, labelspacing=0.35)
    return result


def planes(series: SeriesReader, variable: str, labels: Labels, described: Curves) -> Figure:
    """A variable with two dimensions as images, one for each of up to four times, all on one colour scale."""
    horizontal, vertical = series.variables[variable]
    rows = labels.rows(series.time, MOST_PLANES)
    images = [np.asarray(series.one(variable, row)) for row in rows]
    scale = scale_of(variable, images)
    columns = min(2, len(rows))
    result = figure(WIDTH, 0.8 + 2.6 * math.ceil(len(rows) / columns) * (1 if columns > 1 else 1.5))
    grid = result.subplots(math.ceil(len(rows) / columns), columns, squeeze=False)
    x, y = series.coordinates[horizontal], series.coordinates[vertical]
    mesh = None
    for axes, row, image in zip(grid.flat, rows, images, strict=False):
        mesh = axes.pcolormesh(
            x, y, scale.shown(image).T, vmin=scale.low, vmax=scale.high, cmap=scale.colours, shading="nearest"
        )
        axes.set_title(labels.moment(series.time[row]))
        axes.grid(False)
    for axes in list(grid.flat)[len(rows) :]:
        axes.set_axis_off()
    for axes in grid[-1]:
        axes.set_xlabel(_coordinate(described, horizontal))
    for axes in grid[:, 0]:
        axes.set_ylabel(_coordinate(described, vertical))
    result.subplots_adjust(left=0.11, right=0.84, top=0.93, bottom=0.11, wspace=0.28, hspace=0.4)
    assert mesh is not None
    bar = result.colorbar(mesh, cax=result.add_axes((0.87, 0.2, 0.022, 0.6)), extend=scale.extend)
    bar.set_label(scale.label(_title(described, variable)), labelpad=4)
    return result
