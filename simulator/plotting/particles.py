"""Pictures of particles: paths, dispersion and autocorrelation against time, probability density of acceleration."""

import numpy as np
from matplotlib.figure import Figure

from simulator.output.series import SeriesReader
from simulator.plotting.style import WIDTH, evenly, figure, note, powers_of_ten, sequence_colours

MOST_PATHS = 60
MOST_CURVES = 6


def species(series: SeriesReader) -> list[str]:
    """Names of the particles in a series."""
    return list(dict.fromkeys(name.partition("/")[0] for name in series.variables))


def paths(series: SeriesReader, name: str) -> Figure:
    """Paths of up to 60 particles, seen along z, with a dot at the last position. They continue through the faces of
    the box."""
    few = evenly(len(series.coordinates[f"{name}_id"]), MOST_PATHS)
    ways = []
    for axis in "xy":
        way = series[f"{name}/displacement_{axis}"][:, few]
        ways.append(series[f"{name}/position_{axis}"][0, few] - way[0] + way)
    result = figure(WIDTH, 5.6)
    axes = result.subplots()
    result.subplots_adjust(left=0.13, right=0.97, top=0.94, bottom=0.11)
    axes.set_prop_cycle(color=sequence_colours(len(few)))
    axes.plot(*ways, linewidth=0.9)
    axes.scatter(ways[0][-1], ways[1][-1], s=7, color="black", zorder=3)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel("$x$")
    axes.set_ylabel("$y$")
    axes.set_title(f"{name}: {len(few)} paths, $t = {series.time[0]:.4g}$ to ${series.time[-1]:.4g}$")
    return result


def dispersion(series: SeriesReader) -> Figure:
    """Mean squared displacement since the start, and the autocorrelation of the velocity, against time."""
    result = figure(WIDTH, 5.2)
    above, below = result.subplots(2, 1, sharex=True, gridspec_kw={"hspace": 0.08})
    result.subplots_adjust(left=0.15, right=0.97, top=0.965, bottom=0.1)
    later = series.time > series.time[0]
    for number, name in enumerate(species(series)):
        square = np.sum([series[f"{name}/dispersion_{axis}"] for axis in "xyz"], axis=0)
        moved = later & (square > 0)
        above.plot(series.time[moved] - series.time[0], square[moved], color=f"C{number}", label=name)
        below.plot(
            series.time[later] - series.time[0],
            series[f"{name}/velocity_autocorrelation"][later],
            color=f"C{number}",
        )
    if not later.any():
        note(above, "nothing has moved yet")
        return result
    above.set_xscale("log")
    powers_of_ten(below.xaxis)
    if above.lines and any(len(line.get_xdata()) for line in above.lines):
        above.set_yscale("log")
        powers_of_ten(above.yaxis)
    above.legend()
    above.set_ylabel(r"$\langle |x(t) - x(0)|^2 \rangle$")
    below.axhline(0, color="#888888", linewidth=0.7)
    below.set_ylabel(r"$\langle v(t) \cdot v(0) \rangle$, normalised")
    below.set_xlabel("time since the start")
    return result


def acceleration(series: SeriesReader, name: str) -> Figure:
    """Probability density of the acceleration's components over their root mean square, at up to six times."""
    result = figure(WIDTH, 4.0)
    axes = result.subplots()
    result.subplots_adjust(left=0.15, right=0.8, top=0.93, bottom=0.13)
    rows = evenly(len(series), MOST_CURVES)
    sigma = series.coordinates["sigma"]
    drawn = False
    for index, colour in zip(rows, sequence_colours(len(rows)), strict=True):
        density = series.one(f"{name}/acceleration", index)
        some = np.isfinite(density) & (density > 0)
        drawn |= bool(some.any())
        axes.plot(
            sigma[some], density[some], color=colour, label=f"$t = {series.time[index]:.4g}$", marker="."
        )
    axes.set_xlabel(r"acceleration $a / a_{\mathrm{rms}}$")
    axes.set_ylabel("probability density")
    axes.set_title(name)
    if not drawn:
        note(axes, "nothing is accelerated yet")
        return result
    axes.set_yscale("log")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return result
