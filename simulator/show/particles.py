"""Pictures of particles: paths, dispersion and autocorrelation against time, probability density of acceleration,
settling velocity, radial distribution function."""

import numpy as np
from matplotlib.figure import Figure

from simulator.output.series import SeriesReader
from simulator.show.style import WIDTH, evenly, figure, note, powers_of_ten, sequence_colours

MOST_PATHS = 60
MOST_CURVES = 6


def species(series: SeriesReader) -> list[str]:
    """Names of the particles in a series."""
    return list(dict.fromkeys(name.partition("/")[0] for name in series.variables))


def paths(series: SeriesReader, name: str) -> Figure:
    """Paths of up to 60 particles, seen along z, with a dot at the last position. They continue through the faces of
    the box."""
    few = evenly(len(series.coordinates[f"{name}_id"]), MOST_PATHS)
    ways = [_way(series, name, axis, few) for axis in "xy"]
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


def _way(series: SeriesReader, name: str, axis: str, few: list[int]) -> np.ndarray:
    """One coordinate of some particles (row, particle), continued through the faces of the box. Where no displacement
    is stored, a particle is taken to move by less than half the box between two rows."""
    position = series[f"{name}/position_{axis}"][:, few]
    if f"{name}/displacement_{axis}" in series:
        way = series[f"{name}/displacement_{axis}"][:, few]
        return position[0] - way[0] + way
    return np.unwrap(position, axis=0, period=float(series.attributes["box"]["xyz".index(axis)]))


def settling(series: SeriesReader) -> Figure:
    """The mean velocity along gravity of the species that feel one, against time."""
    result = figure(WIDTH, 3.4)
    axes = result.subplots()
    result.subplots_adjust(left=0.13, right=0.97, top=0.96, bottom=0.15)
    for number, name in enumerate(n for n in species(series) if f"{n}/settling_velocity" in series):
        axes.plot(series.time, series[f"{name}/settling_velocity"], color=f"C{number}", label=name)
    axes.legend()
    axes.set_xlabel("$t$")
    axes.set_ylabel(r"settling velocity $\langle v \cdot g / |g| \rangle$")
    return result


def dispersion(series: SeriesReader) -> Figure:
    """Mean squared displacement since the start, and the autocorrelation of the velocity, against time."""
    result = figure(WIDTH, 5.2)
    above, below = result.subplots(2, 1, sharex=True, gridspec_kw={"hspace": 0.08})
    result.subplots_adjust(left=0.15, right=0.97, top=0.965, bottom=0.1)
    later = series.time > series.time[0]
    for number, name in enumerate(n for n in species(series) if f"{n}/dispersion_x" in series):
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


def pair_correlation(series: SeriesReader) -> Figure:
    """The radial distribution function of each species at up to six times, the last one bold with its error."""
    result = figure(WIDTH, 4.2)
    axes = result.subplots()
    result.subplots_adjust(left=0.13, right=0.97, top=0.96, bottom=0.14)
    r, drawn = series.coordinates["r"], False
    for number, name in enumerate(species(series)):
        for index in evenly(len(series), MOST_CURVES):
            g, pairs = (series.one(f"{name}/{quantity}", index) for quantity in ("g", "pairs"))
            some, last = pairs > 0, index == len(series) - 1
            drawn |= bool(some.any())
            label = rf"{name}, $t = {series.time[index]:.4g}$" if last else None
            error = (g / np.sqrt(np.maximum(pairs, 1)))[some] if last else None
            axes.errorbar(
                r[some], g[some], error, color=f"C{number}", alpha=1.0 if last else 0.3,
                linewidth=1.3 if last else 0.8, label=label, marker="." if last else None,
            )  # fmt: skip
    axes.axhline(1, color="#888888", linewidth=0.7)
    axes.set_xlabel("$r$")
    axes.set_ylabel("radial distribution function $g(r)$")
    if not drawn:
        note(axes, "no pairs at these distances")
        return result
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.legend()
    return result
