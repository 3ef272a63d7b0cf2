"""Draws a field of a run in one dimension: curves at several times, and an image over x and t."""

from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import NonUniformImage

from simulator.archive.series_file import SeriesReader
from simulator.plugins.pictures import style
from simulator.plugins.pictures.lines import MOST_CURVES, at_times, colour_bar, drawn, panels
from simulator.plugins.pictures.slices import LINE, PlaneAxis, slices, words_of
from simulator.plugins.pictures.style import PLAIN, Labels

_MOST_ROWS = 800  # The image has no more pixels along t.
_RIGHT = 0.78


def cuts(series: SeriesReader, field: str, labels: Labels = PLAIN) -> Figure:
    """The mid-planes of `field` at several times, or in one dimension the field over x and t."""
    on_a_line = f"{field}/{LINE}" in series
    return curves_over_time(series, field, labels) if on_a_line else slices(series, field, labels)


def curves_over_time(series: SeriesReader, field: str, labels: Labels = PLAIN) -> Figure:
    """u(x) at up to six times and, of more rows, u(x, t) as an image below."""
    name = f"{field}/{LINE}"
    x = series.coordinates["x"]
    along = PlaneAxis.of(x)
    closed = np.append(x, along.high)  # The box is periodic.
    words = words_of(field, labels, projected=False)
    several = len(series) > MOST_CURVES
    names = (words, labels.axis("time $t$", "time"))[: 1 + several]
    height = 6.4 if several else 4.2
    across = labels.axis("$x$", "length")
    result, grid = panels(across, *names, height=height, right=_RIGHT)
    curves = [replace(c, x=closed, y=_closed(c.y)) for c in at_times(series, name, x, labels)]
    drawn(grid[0], curves, empty="nothing to show yet")
    style.lengths(grid[-1].xaxis, along.low, along.high, 4)
    grid[-1].set_xlim(along.low, along.high)
    if several:
        _image(result, grid[-1], series, field, closed, words)
    return result


def _closed(values: np.ndarray) -> np.ndarray:
    return np.append(values, values[:1])


def _image(
    result: Figure, axes: Axes, series: SeriesReader, field: str, x: np.ndarray, words: str
) -> None:
    rows = style.evenly(len(series), _MOST_ROWS)
    values = np.stack([_closed(series.one(f"{field}/{LINE}", row)) for row in rows])
    scale = style.scale_of(field, [values])
    times = np.asarray(series.time)[rows]
    ends = x[0], x[-1], times[0], times[-1]
    how = "bilinear" if scale.smooth else "nearest"
    image = NonUniformImage(axes, interpolation=how, extent=ends, cmap=scale.colours)
    image.set_clim(scale.low, scale.high)
    image.set_data(x, times, scale.shown(values))
    axes.add_image(image)
    axes.grid(False)
    axes.set_ylim(times[0], times[-1])
    place = axes.get_position()
    bar = (_RIGHT + 0.025, place.y0 + 0.1 * place.height, 0.022, 0.8 * place.height)
    colour_bar(result, image, scale.label(words), scale.extend, bar)
