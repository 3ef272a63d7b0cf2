"""Draws mid-planes of a field, or projections of a density, at several times."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, product
from typing import Any, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from simulator.archive.series_file import SeriesReader
from simulator.plugins.pictures import style
from simulator.plugins.pictures.style import (
    PLAIN,
    Labels,
    Scale,
    is_density,
    lengths,
    position,
    quantity,
    scale_of,
)

SURFACE = 0.5  # The part of a point at the surface of a solid that is solid.
MOST_TIMES = 4
Plane = tuple[str, str, str]
PLANES: tuple[Plane, ...] = (("x", "y", "z"), ("x", "z", "y"), ("y", "z", "x"))
"""Horizontal axis, vertical axis, and the axis whose middle the plane cuts."""
_TITLED = 0.42  # Inches between rows of panels with titles.

# Inches around and between the planes.
_LEFT = 0.7
_RIGHT = 1.0
_TOP = 0.42
_BOTTOM = 0.52
_GAP_X = 0.56
_GAP_BAR = 1.25  # Between planes, if each has a colour bar.
_GAP_Y = 0.16
_TALLEST = 9.0
# Smallest width and height of a plane, to which planes of flat boxes are stretched.
_THINNEST = 0.42
_CENTRED: Any = {"ha": "center", "va": "center", "fontsize": 12}
_PAPER: Any = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5}
_FAR = 5.0  # Rows whose values have peaks that differ by more than this factor have a colour scale each.
_SHOWN = 300  # Number of points along a plane above which the pixels limit the resolution.


LINE = "x"
"""The only cut of a run in one dimension, as part of a variable's name."""


def series_fields(series: SeriesReader) -> list[str]:
    """The fields that have all planes: `FIELD/xy`, `FIELD/xz` and `FIELD/yz`; in two dimensions
    `FIELD/xy`, in one `FIELD/x`."""
    planes = [a + b for a, b, _ in cut_planes(series)] if "y" in series.coordinates else [LINE]
    fields = dict.fromkeys(name.partition("/")[0] for name in series.variables)
    return [name for name in fields if all(f"{name}/{cut}" in series for cut in planes)]


def cut_planes(series: SeriesReader) -> tuple[Plane, ...]:
    """The planes of a run: three in three dimensions, one in two dimensions."""
    return PLANES if "z" in series.coordinates else PLANES[:1]


def near(series: SeriesReader, plane: str, index: int) -> Iterator[tuple[str, np.ndarray]]:
    """The species with particles near the plane `plane` in a row of slices, and their positions (2,
    particles)."""
    for variable in series.variables:
        name, _, rest = variable.rpartition("/")
        if rest == f"near_{plane}_{plane[0]}":
            ends = (rest, f"near_{plane}_{plane[1]}")
            places = np.stack([series.one(f"{name}/{end}", index) for end in ends])
            yield name, places[:, np.isfinite(places).all(0)]


def solids_at(series: SeriesReader, plane: str, index: int) -> list[np.ndarray]:
    """The part of each point on the plane `plane` that is solid, in a row of slices: an array (a, b)
    for each kind of solids, such as bodies in a flow."""
    names = [name for name in series.variables if name.endswith(f"/mask_{plane}")]
    return [series.one(name, index) for name in names]


def draw_solids(
    axes: Axes, masks: Iterable[np.ndarray], along: tuple["PlaneAxis", "PlaneAxis"]
) -> list[ContourSet]:
    """Draw the surfaces of solids, where their masks are 1/2, on a plane, and fill them.

    The filling hides the flow within: a colour seen through it would be read as another value."""
    drawn = []
    for mask in masks:
        if not mask.min() < SURFACE < mask.max():
            continue
        periodic = np.pad(mask, (0, 1), mode="wrap").T
        sizes = zip(along, mask.shape, strict=True)
        points = [axis.low + axis.spacing * np.arange(n + 1) for axis, n in sizes]
        drawn.append(axes.contourf(*points, periodic, [SURFACE, 2], colors=["#b8b8b8"]))
        drawn.append(axes.contour(*points, periodic, [SURFACE], colors="black", linewidths=0.8))
    return drawn


def dots(number: int) -> dict[str, Any]:
    """The look of the dots for particles of species `number`: light and dark, to be visible on any
    colour."""
    fill = ("white", "black", "#ffd700", "#00e5ff")[number % 4]
    edge = "white" if fill == "black" else "black"
    return {"s": 2.5, "c": fill, "edgecolors": edge, "linewidths": 0.25, "zorder": 3}


def words_of(field: str, labels: Labels, *, projected: bool) -> str:
    """The label of the colours of a field, or of its projection: the integral of a density, the
    mean of others."""
    if projected and is_density(field):
        of = "" if field == "density" else f"{field.removesuffix('_density').replace('_', ' ')} "
        return of + labels.axis(r"surface density $\Sigma$", "column")
    words = labels.axis(quantity(field), "density") if field == "density" else quantity(field)
    return f"mean {words}" if projected else words


def where(
    series: SeriesReader, field: str, axis: str, labels: Labels = PLAIN, *, projected: bool
) -> str:
    """The axis of a projection, or the position of the mid-plane, of which a run in two dimensions
    has none."""
    points = series.coordinates.get(axis)
    if projected:
        return f"along ${axis}$"
    if f"{field}/place_{axis}" in series:
        return f"${axis}$ of the maximum"
    return "" if points is None else at_place(axis, float(points[len(points) // 2]), labels)


def at_place(axis: str, value: float, labels: Labels) -> str:
    """`$x = 2$`, with the unit of the run."""
    unit = labels.unit("length")
    return f"${axis} = {position(value)}" + (rf"\,{unit}$" if unit else "$")


def when(series: SeriesReader, row: int, labels: Labels) -> str:
    """The time of a row; for a light cone also the distances that the row covers."""
    moment = labels.moment(float(series.time[row]))
    if "nearest" not in series:
        return moment
    near, far = (float(series.one(name, row)) for name in ("nearest", "farthest"))
    unit = labels.unit("length")
    return f"{moment}: {near:.4g} to {far:.4g}" + (f" ${unit}$" if unit else "")


def slices(
    series: SeriesReader, field: str, labels: Labels = PLAIN, *, projected: bool = False
) -> Figure:
    """The mid-planes of `field` (one in two dimensions) at up to four times, or its projections along
    the three axes; on one colour scale, or on one for each time if the largest values of these
    times differ much. Leaves out the first times, at which the field is 0, unless it always is."""
    return _Sheet(series, field, labels, projected).drawn()


projections = partial(slices, projected=True)


@dataclass(frozen=True)
class _Sheet:
    """The planes of a field at several times, as panels of a figure: a row for each time; a single
    plane in rows of two times, with titles."""

    series: SeriesReader
    field: str
    labels: Labels
    projected: bool

    @cached_property
    def planes(self) -> tuple[Plane, ...]:
        return cut_planes(self.series)

    @cached_property
    def alone(self) -> bool:
        return len(self.planes) == 1

    @cached_property
    def rows(self) -> list[int]:
        names = self._names()
        empty = _empty_rows(self.series, names)
        return [empty + row for row in self.labels.rows(self.series.time[empty:], MOST_TIMES)]

    @cached_property
    def values(self) -> list[list[np.ndarray]]:
        """The planes of each row."""
        return [[self.series.one(name, row) for name in self._names()] for row in self.rows]

    def _names(self) -> list[str]:
        return [f"{self.field}/{a}{b}" for a, b, _ in self.planes]

    @cached_property
    def axes(self) -> dict[str, "PlaneAxis"]:
        names = {name for plane in self.planes for name in plane[:2]}
        return {name: PlaneAxis.of(self.series.coordinates[name]) for name in names}

    @cached_property
    def apart(self) -> bool:
        """Whether each row has a colour scale of its own."""
        return _has_own_scales(self.field, self.values, self.labels)

    @cached_property
    def scales(self) -> list[Scale]:
        """The colour scale of each row."""
        if self.apart:
            log = is_density(self.field)
            return [scale_of(self.field, planes, logarithmic=log) for planes in self.values]
        return [scale_of(self.field, list(chain(*self.values)))] * len(self.rows)

    def drawn(self) -> Figure:
        panels = list(product(range(len(self.rows)), range(len(self.planes))))
        columns = self.planes * min(2, len(self.rows)) if self.alone else self.planes
        beside = _GAP_BAR if self.alone and self.apart else _GAP_X
        gaps = (beside, _TITLED if self.alone else _GAP_Y)
        lines = -(-len(panels) // len(columns))
        result, grid, inches = _panels(self.axes, columns, lines, gaps)
        for number, (axes, (row, plane)) in enumerate(zip(grid.flat, panels, strict=False)):
            column = number % len(columns)
            image = self._draw(axes, row, plane)
            if self.apart and (self.alone or column == len(columns) - 1):
                _colour_bar(result, image, "", self.scales[row].extend, axes)
            a, b, _ = self.planes[plane]
            names = (self.labels.with_unit(f"${a}$", "length"), f"${b}$")
            last = number + len(columns) >= len(panels)
            _label(axes, names, (self.axes[a], self.axes[b]), inches[column], last=last)
            self._name(axes, row, plane)
        for axes in grid.flat[len(panels) :]:
            axes.remove()
        a, b, _ = self.planes[0]
        _name_dots(result, [name for name, _ in near(self.series, a + b, self.rows[-1])])
        self._name_colours(result, grid.flat[0].images[0])
        return result

    def _draw(self, axes: Axes, row: int, plane: int) -> AxesImage:
        """Draw one plane with its solids and particles, and the place of a plane that moves."""
        a, b, cut = self.planes[plane]
        along = self.axes[a], self.axes[b]
        image = plane_image(axes, self.values[row][plane], along, self.scales[row])
        if (place := f"{self.field}/place_{cut}") in self.series:
            text = at_place(cut, float(self.series.one(place, self.rows[row])), self.labels)
            axes.text(0.04, 0.04, text, transform=axes.transAxes, fontsize=9, bbox=_PAPER)
        draw_solids(axes, solids_at(self.series, a + b, self.rows[row]), along)
        for species, (_, places) in enumerate(near(self.series, a + b, self.rows[row])):
            axes.scatter(*places, **dots(species))
        return image

    def _name(self, axes: Axes, row: int, plane: int) -> None:
        """Write the time of a row, and above the first row the position of each plane."""
        moment = when(self.series, self.rows[row], self.labels)
        if self.alone:
            axes.set_title(moment, pad=6, fontsize=9 if "nearest" in self.series else None)
            return
        if row == 0:
            cut = self.planes[plane][2]
            words = where(self.series, self.field, cut, self.labels, projected=self.projected)
            axes.set_title(words, pad=8)
        if plane == 0:
            at = {"transform": axes.transAxes, "va": "top", "bbox": _PAPER, "zorder": 4}
            axes.text(0.04, 0.96, moment, fontsize=9, **at)

    def _name_colours(self, result: Figure, image: AxesImage) -> None:
        words = words_of(self.field, self.labels, projected=self.projected)
        label = self.scales[-1].label(words)
        if not self.apart:
            _colour_bar(result, image, label, self.scales[-1].extend)
            return
        width, height = result.get_size_inches()
        middle = (1 + (_BOTTOM - _TOP) / height) / 2
        result.text(1 - 0.13 / width, middle, label, rotation=_turn(label), **_CENTRED)


def _empty_rows(series: SeriesReader, names: list[str]) -> int:
    """The number of rows, but not all, before the first in which one of the planes `names` is not
    0, as in the flow around a body at the start, or before matter crosses a light cone."""
    empty = 0
    while empty < len(series) - 1 and not any(series.one(name, empty).any() for name in names):
        empty += 1
    return empty


def _has_own_scales(field: str, values: list[list[np.ndarray]], labels: Labels) -> bool:
    """Whether each row of planes has a colour scale of its own: the waves of early times would be
    invisible on the scale of the halos of late times, and a flow that has decayed on that of its
    start."""
    if field == "phase" or len(values) == 1:
        return False
    peaks = [max(float(np.nanmax(abs(plane))) for plane in planes) for planes in values]
    return (labels.comoving and is_density(field)) or max(peaks) > _FAR * min(peaks)


def _name_dots(result: Figure, names: list[str]) -> None:
    looks = map(dots, range(len(names)))
    mark = {"linestyle": "", "marker": "o", "markersize": 3}
    handles = [
        Line2D([], [], color=look["c"], markeredgecolor=look["edgecolors"], **mark)
        for look in looks
    ]
    if handles:
        close = {"handletextpad": 0.1, "borderaxespad": 0.2}
        result.legend(handles, names, loc="upper right", frameon=False, fontsize=9, **close)


def interpolation(shape: tuple[int, ...], *, smooth: bool) -> str:
    """The interpolation of an image. Fields are band-limited, that is, smooth between points; they
    are not interpolated if the pixels limit the resolution, or if values jump from one end of the
    scale to the other (not `smooth`)."""
    if not smooth:
        return "nearest"
    return "bicubic" if min(shape) < _SHOWN else "antialiased"


def _panels(
    axis_of: Mapping[str, "PlaneAxis"],
    planes: tuple[Plane, ...],
    rows: int,
    gaps: tuple[float, float],
) -> tuple[Figure, np.ndarray, list[tuple[float, float]]]:
    """A figure with axes (row, plane) that have one scale, so that boxes keep their proportions,
    and the width and height of each plane in inches; `gaps` inches lie between columns and between
    rows."""
    beside, gap = gaps
    across, up = (np.array([axis_of[plane[i]].extent for plane in planes]) for i in (0, 1))
    room = style.WIDTH - _LEFT - _RIGHT - (len(planes) - 1) * beside
    scale = room / across.sum()
    if (thin := scale * across < _THINNEST).any():
        scale = (room - thin.sum() * _THINNEST) / across[~thin].sum()
    scale = min(scale, (_TALLEST - _TOP - _BOTTOM - (rows - 1) * gap) / (rows * up.max()))
    widths = np.maximum(scale * across, _THINNEST)
    heights = np.maximum(scale * up, _THINNEST)
    width = _LEFT + widths.sum() + (len(planes) - 1) * beside + _RIGHT
    height = _TOP + rows * heights.max() + (rows - 1) * gap + _BOTTOM
    result = style.figure(width, height)
    result.subplots_adjust(_LEFT / width, _BOTTOM / height, 1 - _RIGHT / width, 1 - _TOP / height)
    spaces = {
        "wspace": beside / widths.mean(),
        "hspace": gap / heights.max(),
        "width_ratios": widths,
    }
    grid = result.subplots(rows, len(planes), squeeze=False, gridspec_kw=spaces)
    for (_, column), axes in np.ndenumerate(grid):  # lower planes begin at the top of their row
        place = axes.get_position()
        tall = heights[column] / height
        axes.set_position((place.x0, place.y1 - tall, place.width, tall))
    return result, grid, list(zip(widths.tolist(), heights.tolist(), strict=True))


def wrapped_plane(plane: np.ndarray, scale: Scale) -> np.ndarray:
    """The values (b + 1, a + 1) to draw for a periodic plane (a, b), whose first row and column
    follow the last."""
    return scale.shown(np.pad(plane, (0, 1), mode="wrap")).T


def plane_image(
    axes: Axes, plane: np.ndarray, along: tuple["PlaneAxis", "PlaneAxis"], scale: Scale
) -> AxesImage:
    """Draw a periodic plane (a, b) on axes of the same proportions, with each pixel centred on its
    grid point."""
    first, second = along
    image = axes.imshow(
        wrapped_plane(plane, scale),
        origin="lower",
        extent=(*first.cells, *second.cells),
        aspect="auto",
        **scale.look,
        interpolation=interpolation(plane.shape, smooth=scale.smooth),
    )
    axes.grid(False)
    axes.set_xlim(first.low, first.high)
    axes.set_ylim(second.low, second.high)
    axes.tick_params(direction="out", length=2.5, width=0.6)
    return image


def _label(
    axes: Axes,
    names: tuple[str, str],
    along: tuple["PlaneAxis", "PlaneAxis"],
    inches: tuple[float, float],
    *,
    last: bool,
) -> None:
    lengths(axes.xaxis, along[0].low, along[0].high, _intervals(inches[0], 0.5))
    intervals = _intervals(inches[1], 0.24)
    lengths(axes.yaxis, along[1].low, along[1].high, intervals)
    axes.tick_params(labelbottom=last)
    axes.set_ylabel(names[1], labelpad=8, rotation=0, va="center")
    # The label stands between the ticks at the ends, whose labels may be as wide as the gap.
    if intervals < 2:
        axes.yaxis.set_label_coords(-0.12 / inches[0], 0.5)
    if last:
        axes.set_xlabel(names[0], labelpad=2)


def _intervals(inches: float, each: float) -> int:
    """The number of intervals between ticks for which there is room: 0, 1, 2 or 4."""
    return next(number for number in (4, 2, 1, 0) if number * each <= inches)


def _colour_bar(
    result: Figure,
    image: AxesImage,
    label: str,
    extend: str,
    beside: Axes | None = None,
) -> None:
    """A bar at the right of all planes, or of the one on the axes `beside`."""
    width, height = result.get_size_inches()
    right, low, high = width - _RIGHT, _BOTTOM, height - _TOP
    if beside is not None:
        plane = beside.get_position()
        right, low, high = width * plane.x1, height * plane.y0, height * plane.y1
    tall = min(high - low, 2.6)
    place = (
        (right + 0.14) / width,
        ((low + high) / 2 - tall / 2) / height,
        0.11 / width,
        tall / height,
    )
    bar_beside(result, image, place, label, extend, max(1, min(5, int(tall / 0.32))))


def _turn(label: str) -> int:
    """The rotation of a label beside a colour bar; a single letter stands upright."""
    return 0 if len(label) == 1 else 90


def bar_beside(
    result: Figure,
    image: AxesImage,
    place: tuple[float, float, float, float],
    label: str,
    extend: str,
    room: int,
) -> None:
    """A colour bar at `place` with at most `room` intervals between short numbers, and a label
    beside them."""
    axes = result.add_axes(place)
    bar = result.colorbar(
        image, cax=axes, extend=extend, ticks=MaxNLocator(room, steps=[1, 2, 5, 10])
    )
    # Numbers of five characters would leave no room for the label.
    axes.ticklabel_format(axis="y", scilimits=(-3, 3))
    bar.set_label(label, labelpad=4, rotation=_turn(label))
    # The power of ten is above the bar, not over the plane.
    axes.yaxis.get_offset_text().set(x=0, ha="left")
    bar.outline.set_linewidth(0.6)  # pyright: ignore[reportCallIssue] - a Spine, typed as a method
    axes.tick_params(direction="out", length=2.5, width=0.6)
    axes.grid(False)


@dataclass(frozen=True)
class PlaneAxis:
    """A uniform periodic axis: the box from `low` to `high`."""

    low: float
    high: float
    spacing: float

    @property
    def extent(self) -> float:
        return self.high - self.low

    @property
    def cells(self) -> tuple[float, float]:
        """The ends of the pixels of `wrapped_plane`."""
        return self.low - self.spacing / 2, self.high + self.spacing / 2

    @classmethod
    def of(cls, points: np.ndarray) -> Self:
        spacing = float(points[1] - points[0]) if len(points) > 1 else 1.0
        low = float(points[0])
        high = float(points[0]) + len(points) * spacing
        return cls(low, high, spacing)
