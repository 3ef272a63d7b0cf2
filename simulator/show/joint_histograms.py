"""Joint probability densities, those of the invariants of the velocity gradient with the line between their flows."""

import numpy as np
from matplotlib.figure import Figure

from simulator.output.series import SeriesReader
from simulator.show.labels import Labels
from simulator.show.style import WIDTH, figure, note, quantity

_INVARIANTS = {"Q": r"$Q / Q_\omega$", "R": r"$R / Q_\omega^{3/2}$"}


def pairs(series: SeriesReader) -> list[tuple[str, str]]:
    """The pairs of quantities in a file."""
    found = [str(pair).split(" ") for pair in series.attributes["pairs"]]
    return [(first, second) for first, second in found]


def joint_histogram(series: SeriesReader, first: str, second: str, labels: Labels) -> Figure:
    """The logarithm of the density at the last time, as far as it reaches."""
    last = len(series) - 1
    density = np.asarray(series.one(f"{first}_{second}", last))
    x, y = series.coordinates["first"], series.coordinates["second"]
    result = figure(WIDTH, 4.6)
    axes = result.subplots()
    result.subplots_adjust(left=0.12, right=0.82, top=0.93, bottom=0.12)
    axes.set_xlabel(_axis(first))
    axes.set_ylabel(_axis(second))
    axes.set_title(labels.moment(series.time[last]))
    axes.grid(False)
    if not density.any():
        note(axes, "nothing in range")
        return result
    logs = np.log10(np.where(density > 0, density, np.nan))
    mesh = axes.pcolormesh(x, y, logs.T, cmap="viridis", shading="nearest")
    for i, (c, limit) in enumerate(((x, axes.set_xlim), (y, axes.set_ylim))):
        reached, step = c[(density > 0).any(1 - i)], c[1] - c[0]
        limit(max(reached[0] - 3 * step, c[0] - step), min(reached[-1] + 3 * step, c[-1] + step))
    given = f"{second}_given_{first}"
    if given in series.variables and (second_scale := float(series.one(f"{second}_scale", last))) > 0:
        centre = 0.0 if second in _INVARIANTS else float(series.one(f"{second}_mean", last))
        mean = (np.asarray(series.one(given, last)) - centre) / second_scale
        axes.plot(x, mean, color="#D55E00", linewidth=1.3)
        axes.set_title(f"{labels.moment(series.time[last])}; the line is the mean at each abscissa")
    if (first, second) == ("R", "Q"):
        curve = np.linspace(*axes.get_xlim(), 401)
        axes.plot(curve, -np.cbrt(27 / 4 * curve**2), color="#444444", linewidth=1.0, linestyle="--")
        axes.axhline(0, color="#888888", linewidth=0.6)
        axes.axvline(0, color="#888888", linewidth=0.6)
    bar = result.colorbar(mesh, cax=result.add_axes((0.85, 0.2, 0.022, 0.6)))
    bar.set_label(r"$\log_{10}$ probability density", labelpad=4)
    return result


def _axis(name: str) -> str:
    return _INVARIANTS.get(name, f"{quantity(name)}, deviations from the mean")
