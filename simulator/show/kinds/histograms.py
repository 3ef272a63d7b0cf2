"""Probability densities of fields, gradients and the logarithm of mass densities."""

import numpy as np
from matplotlib.figure import Figure

from simulator.archive.series_file import SeriesReader
from simulator.show import style
from simulator.show.lines import PROBABILITY, DrawnCurve, Pictures, at_times, plotted
from simulator.show.series_pictures import Diagnostics, draws, one_for_each, variables_over
from simulator.show.style import Labels, as_words


@draws("histograms")
def histogram_pictures(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
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
    each.append(DrawnCurve(sigma, gauss, "Gaussian", "#444444", how=theory))
    x = rf"{as_words(name)}, in standard deviations $\sigma$"
    result, axes, shown = plotted(each, x, PROBABILITY, "y")
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
