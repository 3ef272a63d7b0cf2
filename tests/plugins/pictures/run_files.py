"""The files of runs that no program has computed."""

from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

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
