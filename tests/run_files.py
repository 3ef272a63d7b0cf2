"""The files of runs that no program has computed, and what can be seen in their pictures."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from simulator.archive.series_file import Series, SeriesReader, Table


def write_table(folder: Path, columns: Mapping[str, Any]) -> dict[str, Any]:
    """diagnostics.csv with these columns, and the steps from 0 in front of them; all of them."""
    count = len(next(iter(columns.values())))
    whole = {"step": np.arange(count), **columns}
    with closing(Table(folder / "diagnostics.csv", list(whole))) as table:
        for row in zip(*whole.values(), strict=True):
            table.append(dict(zip(whole, row, strict=True)))
    return whole


def write_series(
    folder: Path,
    name: str,
    coordinates: Any,
    variables: Any,
    rows: Iterable[tuple[float, Any]],
    *more: Any,
) -> SeriesReader:
    """NAME.h5 with a row for each time and its values."""
    series = Series(folder / f"{name}.h5", coordinates, variables, *more)
    for step, (time, values) in enumerate(rows):
        series.extend([(step, time, values)])
    return SeriesReader(series.path)


def legend_texts(axes: Axes) -> list[str]:
    """What the legend of a picture says, line by line."""
    return [text.get_text() for text in axes.get_legend().get_texts()]


def dashed_lines(axes: Axes) -> list[Line2D]:
    """Lines of theory, which are dashed."""
    return [line for line in axes.lines if line.get_linestyle() == "--"]


def built(build: Callable[..., Figure], *arguments: Any) -> Figure:
    """The figure as it is drawn on a screen."""
    from simulator.plugins.pictures.style import fitted, rc

    with matplotlib.rc_context(rc()):
        figure = fitted(build(*arguments))
        FigureCanvasAgg(figure).draw()
    return figure


def assert_legible(figure: Any) -> None:
    """Every text lies inside the figure, is not tiny, and overlaps no other."""
    renderer = figure.canvas.get_renderer()
    texts = [
        text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()
    ]
    texts = [text for text in texts if text.get_window_extent(renderer).width > 0]
    # Ticks beyond the limits of their axis are made but not drawn.
    texts = [text for text in texts if text.get_in_layout() and _drawn(text, figure)]
    assert texts
    boxes = [text.get_window_extent(renderer) for text in texts]
    for text, box in zip(texts, boxes, strict=True):
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1, text
        assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1, text
        assert box.height * 72 / figure.dpi > 5, text
    for (one, first), (other, second) in itertools.combinations(zip(texts, boxes, strict=True), 2):
        width = min(first.x1, second.x1) - max(first.x0, second.x0)
        height = min(first.y1, second.y1) - max(first.y0, second.y0)
        assert width <= 1 or height <= 1, (one, other)


def _drawn(text: Text, figure: Figure) -> bool:
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
                if text in (tick.label1, tick.label2):
                    slack = 1e-9 * abs(tick.get_loc())
                    return low - slack <= tick.get_loc() <= high + slack
    return True
