"""Fields at points and on lines against time, and their spectra in frequency."""

import math
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulator.archive.series_file import SeriesReader
from simulator.errors import UserError
from simulator.plugins.pictures import style
from simulator.plugins.pictures.frequencies import (
    FrequencySpectrum,
    WaveSpectrum,
    probe_spectrum,
)
from simulator.plugins.pictures.lines import (
    MOST_CURVES,
    DrawnCurve,
    Pictures,
    colour_bar,
    drawn,
    panels,
    plotted,
)
from simulator.plugins.pictures.series_pictures import Diagnostics
from simulator.plugins.pictures.style import Labels, note, quantity


def probe_pictures(series: SeriesReader, labels: Labels, _: Diagnostics) -> Pictures:
    for name, (dimension,) in series.variables.items():
        stem = f"probes_{name.replace('/', '_')}"
        if dimension == "point":
            yield stem, partial(against_time_at_points, series, name, labels)
            yield f"{stem}_frequency", partial(frequency_picture, series, name)
        else:
            yield stem, partial(space_time, series, name, labels)
            yield f"{stem}_frequency", partial(waves, series, name)


def against_time_at_points(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """A quantity at up to six points against time."""
    values = series[name]
    points = style.evenly(values.shape[1], MOST_CURVES)
    positions = [series.coordinates[axis] for axis in "xyz" if axis in series.coordinates]
    each = []
    for point, colour in zip(points, style.sequence_colours(len(points)), strict=True):
        words = ", ".join(style.position(float(along[point])) for along in positions)
        curve = values[:, point]
        each.append(DrawnCurve(series.time, curve, f"$({words})$", colour, how={"marker": None}))
    time = labels.axis(r"time $t$", "time")
    return plotted(each, time, quantity(name), height=3.6, right=0.74)[0]


def _spectrum(
    axes: Axes, series: SeriesReader, name: str
) -> FrequencySpectrum | WaveSpectrum | None:
    """The spectrum of a variable of probes; if it cannot be computed, None and a note on the
    axes."""
    try:
        spectrum = probe_spectrum(series, name)
    except UserError:
        note(
            axes,
            "too few rows at even intervals of time:\nuse a fixed dt, or every with align: true",
        )
        return None
    if not spectrum.energy.any():
        note(axes, "nothing varies")
        return None
    return spectrum


def frequency_picture(series: SeriesReader, name: str) -> Figure:
    """E(omega), the mean over all points."""
    words = rf"$E(\omega)$ of {quantity(name)}"
    result, (axes,) = panels(r"angular frequency $\omega$", words, height=4.0, right=0.96)
    spectrum = _spectrum(axes, series, name)
    if spectrum is not None:
        line = {"marker": None, "linewidth": 1.2}
        drawn(axes, [DrawnCurve(spectrum.omega, spectrum.energy, how=line)], "xy")
    return result


def space_time(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """A quantity on a line against position and time."""
    (line,) = series.variables[name]
    result, (axes,) = panels(rf"${line[-1]}$", labels.axis(r"time $t$", "time"), right=0.83)
    axes.grid(False)
    if len(series) < 2:
        note(axes, "one row so far")
        return result
    along = series.coordinates[line]
    values = series[name]
    scale = style.scale_of(name, [values])
    mesh = axes.pcolormesh(
        along,
        series.time,
        scale.shown(values),
        shading="nearest",
        rasterized=True,
        **scale.look,
    )
    if len(along) > 1:
        style.lengths(axes.xaxis, 0.0, float(along[-1] + along[1]), 4)
    colour_bar(result, mesh, scale.label(quantity(name.partition("/")[2])), scale.extend)
    return result


def waves(series: SeriesReader, name: str) -> Figure:
    """log E(omega, k) of a quantity on a line, over five decades; waves with k > 0 travel along the
    axis."""
    axis = series.variables[name][0][-1]
    result, (axes,) = panels(rf"wavenumber $k_{axis}$", r"angular frequency $\omega$", right=0.83)
    axes.grid(False)
    spectrum = _spectrum(axes, series, name)
    if not isinstance(spectrum, WaveSpectrum):
        return result
    high = math.log10(float(spectrum.energy.max()))
    mesh = axes.pcolormesh(
        spectrum.k,
        spectrum.omega,
        np.log10(np.maximum(spectrum.energy, 10.0 ** (high - 6))),
        vmin=high - 5,
        vmax=high,
        cmap="magma",
        shading="nearest",
        rasterized=True,
    )
    # Without a limit, frequencies with almost no energy would take most of the picture.
    below = np.cumsum(spectrum.energy.sum(1))
    last = int(np.searchsorted(below, (1 - 1e-4) * below[-1]))
    axes.set_ylim(0, spectrum.omega[min(2 * last + 4, len(spectrum.omega) - 1)])
    words = rf"$\log_{{10}} E(\omega, k_{axis})$ of {quantity(name.partition('/')[2])}"
    colour_bar(result, mesh, words, "min")
    return result
