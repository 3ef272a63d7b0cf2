"""Energies against the wavenumbers across and along an axis."""

import math

import numpy as np
from matplotlib.figure import Figure

from simulator.output.series import SeriesReader
from simulator.show.labels import Labels
from simulator.show.style import WIDTH, figure, note, spectrum_of

MOST_TIMES = 4
_DECADES = 8
"""Below the largest value."""


def spectral_map(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """log E(k_perpendicular, k_parallel) at up to four times, on one colour scale."""
    across, along = (series.coordinates[f"k_{d}"] for d in ("perpendicular", "parallel"))
    rows = labels.rows(series.time, MOST_TIMES)
    images = [np.asarray(series.one(name, row)) for row in rows]
    columns = min(2, len(rows))
    lines = math.ceil(len(rows) / columns)
    result = figure(WIDTH, 0.8 + 2.9 * lines * (1 if columns > 1 else 1.4))
    grid = result.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    result.subplots_adjust(left=0.11, right=0.82, top=0.94, bottom=0.11, wspace=0.12, hspace=0.25)
    axis = series.attributes.get("axis", "z")
    for axes in grid.flat[len(rows) :]:
        axes.set_axis_off()
    top = max((float(np.nanmax(image)) for image in images), default=0.0)
    if not top > 0:
        note(grid[0, 0], "nothing above zero yet")
        return result
    high, mesh = math.log10(top), None
    for axes, row, image in zip(grid.flat, rows, images, strict=False):
        logs = np.log10(np.maximum(image, top * 10.0 ** -(_DECADES + 1)))
        mesh = axes.pcolormesh(
            across, along, logs.T, vmin=high - _DECADES, vmax=high, cmap="magma", shading="nearest"
        )
        axes.set_title(labels.moment(series.time[row]))
        axes.grid(False)
    for axes in grid[-1]:
        axes.set_xlabel(r"$k_\perp$")
    for axes in grid[:, 0]:
        axes.set_ylabel(rf"$k_\parallel = |k_{axis}|$")
    assert mesh is not None
    bar = result.colorbar(mesh, cax=result.add_axes((0.85, 0.2, 0.022, 0.6)), extend="min")
    words = spectrum_of(name).partition(" $")[0]
    bar.set_label(rf"$\log_{{10}}$ {words}", labelpad=4)
    return result
