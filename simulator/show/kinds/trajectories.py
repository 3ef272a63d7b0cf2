"""Paths of particles."""

import numpy as np
from matplotlib.figure import Figure

from simulator.archive.series_file import SeriesReader
from simulator.show import style
from simulator.show.kinds.particle_statistics import species
from simulator.show.lines import Pictures, panels
from simulator.show.series_pictures import Diagnostics, draws, one_for_each
from simulator.show.style import Labels


@draws("trajectories")
def trajectory_pictures(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    return one_for_each(species(series), "trajectories", paths, series)


def paths(series: SeriesReader, name: str) -> Figure:
    """The paths of up to 60 particles, seen along z, through the faces of the box, with a dot at
    the end."""
    few = style.evenly(len(series.coordinates[f"{name}_id"]), 60)
    x = _unfolded(series, name, "x", few)
    y = _unfolded(series, name, "y", few)
    title = f"{name}: {len(few)} paths, $t = {series.time[0]:.4g}$ to ${series.time[-1]:.4g}$"
    result, (axes,) = panels("$x$", "$y$", title=title, height=5.6, right=0.97)
    axes.set_prop_cycle(color=style.sequence_colours(len(few)))
    axes.plot(x, y, linewidth=0.9)
    axes.scatter(x[-1], y[-1], s=7, color="black", zorder=3)
    axes.set_aspect("equal", adjustable="datalim")
    return result


def _unfolded(series: SeriesReader, name: str, axis: str, few: list[int]) -> np.ndarray:
    """One coordinate (row, particle) of the particles `few`, continued through the faces of the
    box. Without a stored displacement, a particle is assumed to move by less than half the box
    between two rows."""
    position = series[f"{name}/position_{axis}"][:, few]
    if f"{name}/displacement_{axis}" in series:
        displacement = series[f"{name}/displacement_{axis}"][:, few]
        return position[0] - displacement[0] + displacement
    return np.unwrap(position, axis=0, period=float(series.attributes["box"]["xyz".index(axis)]))
