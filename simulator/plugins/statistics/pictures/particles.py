"""Dispersion, settling and acceleration of particles, and their paths."""

from functools import partial

import numpy as np
from matplotlib.figure import Figure

from simulator.archive.series_file import SeriesReader
from simulator.plugins.pictures import style
from simulator.plugins.pictures.lines import (
    PROBABILITY,
    DrawnCurve,
    Pictures,
    at_times,
    drawn,
    level,
    panels,
    plotted,
)
from simulator.plugins.pictures.series_pictures import Diagnostics, one_for_each
from simulator.plugins.pictures.style import Labels

_LINE = {"marker": None}


def particle_pictures(series: SeriesReader, labels: Labels, _: Diagnostics) -> Pictures:
    if species(series, "dispersion_x"):
        yield "dispersion", partial(dispersion, series)
    if species(series, "settling_velocity"):
        yield "settling_velocity", partial(settling, series)
    names = species(series, "pair_dispersion")
    yield from one_for_each(names, "pair_dispersion", pair_dispersion, series)
    yield from one_for_each(species(series), "acceleration", acceleration, series, labels)


def species(series: SeriesReader, variable: str = "") -> list[str]:
    """The names of the particles in a series; with `variable`, only of particles that have this
    variable."""
    names = dict.fromkeys(name.partition("/")[0] for name in series.variables)
    return [name for name in names if not variable or f"{name}/{variable}" in series]


def settling(series: SeriesReader) -> Figure:
    """The mean velocity along gravity, of each species on which gravity acts, against time."""
    each = [
        DrawnCurve(series.time, series[f"{name}/settling_velocity"], name, how=_LINE)
        for name in species(series, "settling_velocity")
    ]
    words = r"settling velocity $\langle v \cdot g / |g| \rangle$"
    return plotted(each, "$t$", words, height=3.4)[0]


def dispersion(series: SeriesReader) -> Figure:
    """The mean squared displacement since the first row, and the autocorrelation of the velocity,
    against time."""
    words = r"$\langle |x(t) - x(0)|^2 \rangle$", r"$\langle v(t) \cdot v(0) \rangle$, normalised"
    result, (above, below) = panels("time since the start", *words, height=5.2)
    time = series.time - series.time[0]
    displacements = []
    correlations = []
    for name in species(series, "dispersion_x"):
        square = np.sum([series[f"{name}/dispersion_{axis}"] for axis in "xyz"], axis=0)
        displacements.append(DrawnCurve(time, square, name, how=_LINE))
        correlation = series[f"{name}/velocity_autocorrelation"]
        correlations.append(DrawnCurve(time, correlation, how=_LINE))
    if drawn(above, displacements, "xy", "nothing has moved yet"):
        drawn(below, correlations, "x")
        level(below)
    return result


def pair_dispersion(series: SeriesReader, name: str) -> Figure:
    """The mean squared change of the separation of pairs against time, by the separation at the
    start, and the ballistic law t^2."""
    time = series.time - series.time[0]
    change = series[f"{name}/pair_change"]
    each = [
        DrawnCurve(time, change[:, i], rf"$r_0$ = {r:.3g}", how=_LINE)
        for i, r in enumerate(series.coordinates[f"{name}_separation"])
    ]
    if len(time) > 2:
        law = change[1, 0] * (time[1:] / time[1]) ** 2
        dashed = {"marker": None, "linestyle": "--", "linewidth": 0.8}
        each.append(DrawnCurve(time[1:], law, "$t^2$", "0.4", how=dashed))
    y = r"$\langle |r(t) - r(0)|^2 \rangle$"
    empty = "no pair has changed yet"
    return plotted(each, "time since the start", y, "xy", empty, title=name)[0]


def acceleration(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """The probability density of the acceleration's components over their root mean square, at up
    to six times."""
    sigma = series.coordinates["sigma"]
    each = at_times(series, f"{name}/acceleration", sigma, labels, marker=".")
    x = r"acceleration $a / a_{\mathrm{rms}}$"
    return plotted(each, x, PROBABILITY, "y", "nothing is accelerated yet", title=name)[0]


def trajectory_pictures(series: SeriesReader, labels: Labels, _: Diagnostics) -> Pictures:
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
