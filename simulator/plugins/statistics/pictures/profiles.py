"""Radial profiles of mass densities, and integrals along the axes."""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulator.archive.series_file import SeriesReader
from simulator.plugins.pictures.lines import (
    DrawnCurve,
    drawn_rows,
    logarithmic,
    plotted,
)
from simulator.plugins.pictures.series_pictures import pictures_of_each, variables_over
from simulator.plugins.pictures.slices import projections, series_fields
from simulator.plugins.pictures.style import Labels, as_words, is_density
from simulator.registry import Registry

CURVES = Registry[Callable[[Axes, SeriesReader, DrawnCurve, Labels], None]]("simulator.curves", {})
"""Functions that draw further curves beside those of a picture, by the picture's name, from its
axes, the series, the last curve and the labels."""


def _densities(series: SeriesReader) -> list[str]:
    return [name for name in variables_over(series, "r") if is_density(name)]


def density_profile(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """The density against the distance from the densest point at up to six times."""
    x = labels.axis(r"radius $r$", "length")
    y = labels.axis(rf"{as_words(name)} $\rho$", "density")
    each = list[DrawnCurve]()
    for row, colour, label in drawn_rows(series, labels):
        r = series.one("radius", row)
        density = series.one(name, row)
        there = np.isfinite(density)  # bins near the centre may have no grid points
        each.append(DrawnCurve(r[there], density[there], label, colour))
    result, axes, shown = plotted(each, x, y, "xy")
    if not shown:
        return result
    axes.set_ylim(min(map(np.nanmin, shown)) / 2, max(map(np.nanmax, shown)) * 2)
    if (further := CURVES.get(f"profile_{name}")) is not None:
        further(axes, series, each[-1], labels)
    logarithmic(axes, "xy")
    return result


profile_pictures = pictures_of_each(_densities, "profile", density_profile)
projection_pictures = pictures_of_each(series_fields, "projection", projections)
