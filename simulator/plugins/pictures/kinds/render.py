"""Volume pictures."""

import math
from collections.abc import Mapping
from functools import partial

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from simulator.archive.series_file import SeriesReader
from simulator.plugins.pictures import style
from simulator.plugins.pictures.lines import Pictures
from simulator.plugins.pictures.series_pictures import Diagnostics, endings
from simulator.plugins.pictures.style import Labels, quantity


def render_pictures(series: SeriesReader, labels: Labels, _: Diagnostics) -> Pictures:
    yield f"render_{series.attributes.get('field', 'volume')}", partial(_last, series, labels)


def _last(series: SeriesReader, labels: Labels) -> Figure:
    row = len(series) - 1
    words = labels.moment(series.time[row])
    return volume_picture(series.one("image", row), words, colours_of(series, row))


def colours_of(series: SeriesReader, row: int) -> dict[str, np.ndarray]:
    """The colours of each field in a volume picture of a series, as `volume_picture` takes them."""
    return {name: series.one(f"colours/{name}", row) for name in endings("colours/", series)}


def volume_picture(
    image: np.ndarray, words: str, colours: Mapping[str, np.ndarray], onto: Figure | None = None
) -> Figure:
    """A figure that shows `image` (row, column, channel), of 8 bits, pixel by pixel, with `words`
    in a corner and a bar for each field of `colours`: rows of value, red, green, blue and
    absorption; the bar fades with it. `onto`: a figure of this size to be drawn again."""
    rows, columns = image.shape[:2]
    result = onto or style.figure(columns / style.DPI, rows / style.DPI)
    result.clear()
    axes = result.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.imshow(image, interpolation="nearest", aspect="auto")
    axes.text(0.03, 0.03, words, transform=axes.transAxes, color="white", fontsize=11)
    for number, (name, table) in enumerate(colours.items()):
        _add_bar(result, 0.95 - 0.17 * number, name, table)
    return result


def _add_bar(result: Figure, left: float, name: str, table: np.ndarray) -> None:
    """A bar of the colours of a field, from the smallest value to the largest."""
    low = table[0, 0]
    high = table[-1, 0]
    words = quantity(name)
    values = np.linspace(low, high, 256)
    if 0 < 9 * low < high:
        values = np.geomspace(low, high, 256)
        words = rf"$\log_{{10}}$ {words}"
        low = math.log10(low)
        high = math.log10(high)
    red, green, blue, dense = (np.interp(values, table[:, 0], table[:, i]) for i in range(1, 5))
    seen = np.stack([red, green, blue], 1) * np.sqrt(dense / max(dense.max(), 1e-300))[:, None]
    bar = result.add_axes((left, 0.04, 0.03, 0.3))
    bar.imshow(seen[:, None], origin="lower", aspect="auto", extent=(0, 1, low, high))
    bar.set_xticks([])
    bar.yaxis.set_major_locator(MaxNLocator(4))
    bar.tick_params(colors="white", labelsize=8, length=2, pad=2)
    bar.yaxis.get_offset_text().set(color="white", size=8)
    bar.set_ylabel(words, color="white", fontsize=8, labelpad=2)
    for spine in bar.spines.values():
        spine.set_color("#808080")
