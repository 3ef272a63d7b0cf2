"""Probability densities of fields, gradients and the logarithm of mass densities, and of pairs of
quantities."""

import numpy as np
from matplotlib.figure import Figure

from simulator.archive.series_file import SeriesReader
from simulator.plugins.pictures import style
from simulator.plugins.pictures.lines import (
    PROBABILITY,
    DrawnCurve,
    Pictures,
    at_times,
    colour_bar,
    panels,
    plotted,
)
from simulator.plugins.pictures.series_pictures import Diagnostics, one_for_each, variables_over
from simulator.plugins.pictures.style import Labels, as_words, note, quantity


def histogram_pictures(series: SeriesReader, labels: Labels, _: Diagnostics) -> Pictures:
    names = variables_over(series, "sigma")
    yield from one_for_each(names, "histogram", histogram, series, labels)
    names = [n for n in variables_over(series, "contrast") if not n.endswith("_mass")]
    yield from one_for_each(names, "histogram", log_histogram, series, labels)


def histogram(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """The probability density in units of the standard deviation, at up to six times, and a
    Gaussian."""
    sigma = series.coordinates["sigma"]
    gauss = np.exp(-(sigma**2) / 2) / np.sqrt(2 * np.pi)
    theory = {"linewidth": 1.0, "linestyle": "--", "marker": None}
    each = at_times(series, name, sigma, labels, marker=None)
    # A uniform field has no deviation: all its values lie in one bin.
    each = [curve for curve in each if np.count_nonzero(curve.y) > 1]
    if each:
        each.append(DrawnCurve(sigma, gauss, "Gaussian", "#444444", how=theory))
    x = rf"{as_words(name)}, in standard deviations $\sigma$"
    result, axes, shown = plotted(each, x, PROBABILITY, "y")
    if not shown:
        return result
    shown = np.array(shown[:-1])
    axes.set_ylim(min(np.nanmin(shown, initial=1.0), 1.0) / 2, 2)
    reach = max(3.0, *abs(sigma[np.isfinite(shown).any(0)])) * 1.05
    axes.set_xlim(-reach, reach)
    style.powers_of_ten(axes.yaxis)
    return result


def log_histogram(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """The fraction of the volume per decade of density at up to six times; dashed, of the mass at
    the last time."""
    contrast = series.coordinates["contrast"]
    step = {"marker": None, "drawstyle": "steps-mid"}
    each = at_times(series, name, contrast, labels, **step)
    mass = series.one(f"{name}_mass", -1)
    dashed = {**step, "linestyle": "--"}
    each.append(DrawnCurve(contrast, mass, "mass at\nlast time", each[-1].colour, how=dashed))
    x = rf"{as_words(name.removeprefix('log_'))} $\log_{{10}}(\rho/\bar\rho)$"
    result, axes, shown = plotted(each, x, "fraction per decade", "y")
    if not shown:
        return result
    shown = np.array(shown)
    axes.set_ylim(bottom=max(np.nanmin(shown[:-1], initial=1.0) / 2, 1e-8))
    ends = contrast[np.isfinite(shown).any(0)][[0, -1]]
    margin = 0.05 * np.ptp(ends) + float(contrast[1] - contrast[0])
    axes.set_xlim(ends[0] - margin, ends[1] + margin)
    style.powers_of_ten(axes.yaxis)
    return result


_INVARIANTS = {"Q": r"$Q / Q_\omega$", "R": r"$R / Q_\omega^{3/2}$"}


def joint_histogram_pictures(series: SeriesReader, labels: Labels, _: Diagnostics) -> Pictures:
    for pair in map(str, series.attributes["pairs"]):
        first, second = pair.split(" ")
        yield (
            f"joint_histogram_{first}_{second}",
            lambda first=first, second=second: joint_histogram(series, first, second, labels),
        )


def joint_histogram(series: SeriesReader, first: str, second: str, labels: Labels) -> Figure:
    """The logarithm of the joint probability density at the last time, where it is not zero, with
    the conditional mean of the second quantity; for Q and R also the line that separates strain
    from vortices."""
    density = np.asarray(series.one(f"{first}_{second}", -1))
    x = series.coordinates["first"]
    y = series.coordinates["second"]
    words = (
        _INVARIANTS.get(n, f"{quantity(n)}, deviations from the mean") for n in (first, second)
    )
    result, (axes,) = panels(*words, title=labels.moment(series.time[-1]), height=4.6, right=0.82)
    axes.grid(False)
    if not density.any():
        note(axes, "nothing in range")
        return result
    logs = np.log10(np.where(density > 0, density, np.nan))
    mesh = axes.pcolormesh(x, y, logs.T, cmap="viridis", shading="nearest")
    axes.set_xlim(_limits(x, density.sum(1)))
    axes.set_ylim(_limits(y, density.sum(0)))
    conditional = f"{second}_given_{first}"
    unit = float(series.one(f"{second}_scale", -1)) if conditional in series.variables else 0.0
    if unit > 0:
        centre = 0.0 if second in _INVARIANTS else float(series.one(f"{second}_mean", -1))
        mean = (np.asarray(series.one(conditional, -1)) - centre) / unit
        axes.plot(x, mean, color="#D55E00", linewidth=1.3)
        axes.set_title(f"{labels.moment(series.time[-1])}; line: conditional mean")
    if (first, second) == ("R", "Q"):
        r = np.linspace(*axes.get_xlim(), 401)
        zero_discriminant = -np.cbrt(27 / 4 * r**2)
        axes.plot(r, zero_discriminant, color="#444444", linewidth=1.0, linestyle="--")
        axes.axhline(0, color="#888888", linewidth=0.6)
        axes.axvline(0, color="#888888", linewidth=0.6)
    colour_bar(result, mesh, rf"$\log_{{10}}$ {PROBABILITY}")
    return result


def _limits(centres: np.ndarray, densities: np.ndarray) -> tuple[float, float]:
    """The range of the bins that are occupied, with a margin of two bins inside of all bins."""
    reached = centres[densities > 0]
    step = centres[1] - centres[0]
    low = max(reached[0] - 3 * step, centres[0] - step)
    return low, min(reached[-1] + 3 * step, centres[-1] + step)
