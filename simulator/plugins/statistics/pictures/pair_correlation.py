"""The radial distribution function of particles."""

from functools import partial

import numpy as np
from matplotlib.figure import Figure

from simulator.archive.series_file import SeriesReader
from simulator.plugins.pictures import style
from simulator.plugins.pictures.lines import DrawnCurve, Pictures, drawn, drawn_rows, level, panels
from simulator.plugins.pictures.series_pictures import Diagnostics
from simulator.plugins.pictures.style import Labels
from simulator.plugins.statistics.pictures.particles import species


def pair_correlation_pictures(series: SeriesReader, labels: Labels, _: Diagnostics) -> Pictures:
    yield "pair_correlation", partial(pair_correlation, series, labels)


def pair_correlation(series: SeriesReader, labels: Labels) -> Figure:
    """The radial distribution function of each species at up to six times; the last time is bold,
    with error bars."""
    result, (axes,) = panels("$r$", "radial distribution function $g(r)$", right=0.74)
    r = series.coordinates["r"]
    each = list[DrawnCurve]()
    for number, name in enumerate(species(series)):
        colour = f"C{number}"
        for row, _, moment in drawn_rows(series, labels):
            pairs = series.one(f"{name}/pairs", row)
            g = np.where(pairs > 0, series.one(f"{name}/g", row), np.nan)
            if row < len(series) - 1:
                pale = {"alpha": 0.3, "linewidth": 0.8, "marker": None}
                each.append(DrawnCurve(r, g, None, colour, how=pale))
                continue
            each.append(DrawnCurve(r, g, f"{name}, {moment}", colour))
            error = g / np.sqrt(np.maximum(pairs, 1))
            axes.errorbar(r, g, error, fmt="none", color=colour, elinewidth=1.0)
    level(axes, 1.0)
    shown = drawn(axes, each, "xy", "no pairs at these distances")
    if shown:
        axes.set_ylim(np.nanmin(shown) / 2, np.nanmax(shown) * 2)
        style.powers_of_ten(axes.yaxis)
    return result
