"""Energies against the wavenumbers across and along an axis."""

import math

import numpy as np
from matplotlib.figure import Figure

from simulator.archive.series_file import SeriesReader
from simulator.show.lines import MOST_PLANES, Pictures, images, panels
from simulator.show.series_pictures import Diagnostics, draws, one_for_each
from simulator.show.style import Labels, note, spectrum_of


@draws("spectral_maps")
def spectral_map_pictures(
    series: SeriesReader, labels: Labels, diagnostics: Diagnostics
) -> Pictures:
    return one_for_each(series.variables, "spectral_map", energy_map, series, labels)


def energy_map(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """log E(k_perpendicular, k_parallel) at up to four times, on one colour scale over eight
    decades."""
    rows = labels.rows(series.time, MOST_PLANES)
    top = max(float(np.nanmax(series.one(name, row))) for row in rows)
    if not top > 0:
        result, (axes,) = panels(r"$k_\perp$", r"$k_\parallel$")
        note(axes, "nothing above zero yet")
        return result
    axis = series.attributes.get("axis", "z")
    return images(
        series,
        labels,
        [(row, np.log10(np.maximum(series.one(name, row), top * 1e-9))) for row in rows],
        (r"$k_\perp$", rf"$k_\parallel = |k_{axis}|$"),
        rf"$\log_{{10}}$ {spectrum_of(name).partition(' $')[0]}",
        extend="min",
        cmap="magma",
        points=(series.coordinates["k_perpendicular"], series.coordinates["k_parallel"]),
        vmin=math.log10(top) - 8,
        vmax=math.log10(top),
    )
