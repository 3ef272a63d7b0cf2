"""What probes recorded: against time, against time and place, and the spectra of both."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulator.errors import UserError
from simulator.output.series import SeriesReader
from simulator.read.frequencies import FrequencySpectrum, WaveSpectrum, probe_spectrum
from simulator.show.labels import Labels
from simulator.show.scales import scale_of
from simulator.show.style import (
    WIDTH,
    evenly,
    figure,
    lengths,
    note,
    position,
    powers_of_ten,
    quantity,
    sequence_colours,
)

MOST_POINTS = 6
_DECADES = 5
"""Of E(omega, k), below its largest value."""


def pictures(series: SeriesReader, labels: Labels) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """Two pictures of every variable: its values, and their spectrum."""
    for name, (dimension,) in series.variables.items():
        stem = f"probes_{name.replace('/', '_')}"
        values, spectrum = (record, frequencies) if dimension == "point" else (space_time, waves)
        yield stem, partial(values, series, name, labels)
        yield f"{stem}_frequency", partial(spectrum, series, name, labels)


def record(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """A quantity at up to six points against time."""
    result = figure(WIDTH, 3.6)
    axes = result.subplots()
    result.subplots_adjust(left=0.14, right=0.74, top=0.92, bottom=0.15)
    axes.set_xlabel(labels.axis(r"time $t$", "time"))
    axes.set_ylabel(quantity(name))
    values = series[name]
    points = evenly(values.shape[1], MOST_POINTS)
    for point, colour in zip(points, sequence_colours(len(points)), strict=True):
        axes.plot(series.time, values[:, point], color=colour, linewidth=1.1, label=_place(series, point))
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), handlelength=1.2, labelspacing=0.35)
    return result


def _place(series: SeriesReader, point: int) -> str:
    where = (series.coordinates[axis][point] for axis in "xyz" if axis in series.coordinates)
    return rf"$({', '.join(position(float(c)) for c in where)})$"


def frequencies(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """E(omega), the mean over all points."""
    result = figure(WIDTH, 4.0)
    axes = result.subplots()
    result.subplots_adjust(left=0.15, right=0.96, top=0.96, bottom=0.14)
    axes.set_xlabel(r"angular frequency $\omega$")
    axes.set_ylabel(rf"$E(\omega)$ of {quantity(name)}")
    found = _spectrum(axes, series, name)
    if isinstance(found, FrequencySpectrum):
        shown = (found.omega > 0) & (found.energy > 0)
        axes.plot(found.omega[shown], found.energy[shown], linewidth=1.2)
        axes.set_xscale("log")
        axes.set_yscale("log")
        powers_of_ten(axes.xaxis)
        powers_of_ten(axes.yaxis)
    return result


def _spectrum(axes: Axes, series: SeriesReader, name: str) -> FrequencySpectrum | WaveSpectrum | None:
    try:
        found = probe_spectrum(series, name)
    except UserError:
        note(axes, "too few rows at even intervals of time:\nuse a fixed dt, or every with align: true")
        return None
    if not found.energy.any():
        note(axes, "nothing varies")
        return None
    return found


def space_time(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """A quantity on a line against position and time."""
    result = figure(WIDTH, 4.2)
    axes = result.subplots()
    result.subplots_adjust(left=0.12, right=0.83, top=0.96, bottom=0.13)
    (line,) = series.variables[name]
    along, values = series.coordinates[line], series[name]
    axis = line[-1]
    axes.set_xlabel(rf"${axis}$")
    axes.set_ylabel(labels.axis(r"time $t$", "time"))
    axes.grid(False)
    if len(series) < 2:
        note(axes, "one row so far")
        return result
    scale = scale_of(name, [values])
    mesh = axes.pcolormesh(
        along, series.time, scale.shown(values), vmin=scale.low, vmax=scale.high, cmap=scale.colours,
        shading="nearest", rasterized=True,
    )  # fmt: skip
    if len(along) > 1:
        lengths(axes.xaxis, 0.0, float(along[-1] + along[1]), 4)
    bar = result.colorbar(mesh, cax=result.add_axes((0.86, 0.2, 0.022, 0.6)), extend=scale.extend)
    bar.set_label(scale.label(quantity(name.partition("/")[2])), labelpad=4)
    return result


def waves(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """log E(omega, k) of a quantity on a line: of waves along the axis at k > 0, of those against it at k < 0."""
    result = figure(WIDTH, 4.2)
    axes = result.subplots()
    result.subplots_adjust(left=0.12, right=0.83, top=0.96, bottom=0.13)
    axis = series.variables[name][0][-1]
    axes.set_xlabel(rf"wavenumber $k_{axis}$")
    axes.set_ylabel(r"angular frequency $\omega$")
    axes.grid(False)
    found = _spectrum(axes, series, name)
    if not isinstance(found, WaveSpectrum):
        return result
    top = float(found.energy.max())
    logs = np.log10(np.maximum(found.energy, top * 10.0 ** -(_DECADES + 1)))
    high = np.log10(top)
    mesh = axes.pcolormesh(
        found.k, found.omega, logs, vmin=high - _DECADES, vmax=high, cmap="magma", shading="nearest",
        rasterized=True,
    )  # fmt: skip
    # Frequencies that hold next to nothing would take most of the picture.
    held = np.cumsum(found.energy.sum(1))
    last = int(np.searchsorted(held, (1 - 1e-4) * held[-1]))
    axes.set_ylim(0, found.omega[min(2 * last + 4, len(found.omega) - 1)])
    bar = result.colorbar(mesh, cax=result.add_axes((0.86, 0.2, 0.022, 0.6)), extend="min")
    bar.set_label(rf"$\log_{{10}} E(\omega, k_{axis})$ of {quantity(name.partition('/')[2])}", labelpad=4)
    return result
