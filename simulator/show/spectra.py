"""Shell spectra at several times."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulator.output.series import SeriesReader
from simulator.show.style import (
    WIDTH,
    evenly,
    figure,
    note,
    powers_of_ten,
    sequence_colours,
    spectrum_of,
)

MOST_CURVES = 6
_FEW = 48
_DECADES = 11
"""Range shown below the peak; smaller values are round-off."""


def names(series: SeriesReader) -> list[str]:
    """The variables that are spectra, with one value per shell."""
    return [name for name, dimensions in series.variables.items() if dimensions == ("k",)]


def wavenumbers(series: SeriesReader) -> np.ndarray:
    """The positions of the shells: their centres n dk; for the shell about k = 0 the mean wavenumber of its modes (0
    if it holds only the mean flow)."""
    k = series.coordinates["k"]
    return np.where(k > 0, k, series.coordinates.get("k_mean", k))


def spectrum(series: SeriesReader, name: str, *, guide: bool = True) -> Figure:
    """E(k) of one quantity, log-log, at up to six times; with `guide` also a line of slope -5/3 if a range could have
    that slope."""
    wavenumber = wavenumbers(series)
    rows = evenly(len(series), MOST_CURVES)
    curves = {index: series.at(index)[name] for index in rows}
    result = figure(WIDTH, 4.2)
    axes = result.subplots()
    result.subplots_adjust(left=0.14, right=0.8, top=0.965, bottom=0.125)
    axes.set_xlabel(r"wavenumber $k$")
    axes.set_ylabel(spectrum_of(name))
    shown = {index: np.isfinite(curve) & (curve > 0) & (wavenumber > 0) for index, curve in curves.items()}
    if not any(mask.any() for mask in shown.values()):
        note(axes, "nothing above zero yet")
        return result
    top = max(float(curves[index][mask].max()) for index, mask in shown.items() if mask.any())
    floor = top * 10.0**-_DECADES
    colours = sequence_colours(len(rows))
    for index, colour in zip(rows, colours, strict=True):
        # A gap instead of a steep drop where a shell holds only round-off.
        values = np.where(shown[index] & (curves[index] > floor), curves[index], np.nan)
        axes.plot(
            wavenumber,
            values,
            color=colour,
            label=f"$t = {series.time[index]:.4g}$",
            linewidth=1.3,
            marker="o",
            markersize=3.2,
            markevery=list(range(len(values)) if len(values) <= _FEW else _alone(values)),
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    lowest = min(
        float(curve[shown[index] & (curve > floor)].min())
        for index, curve in curves.items()
        if (shown[index] & (curve > floor)).any()
    )
    reached = wavenumber[np.any([mask & (curves[index] > floor) for index, mask in shown.items()], axis=0)]
    axes.set_xlim(
        wavenumber[wavenumber > 0][0] * 0.9, max(reached[-1] * 1.15, 10 * wavenumber[wavenumber > 0][0])
    )
    envelope = np.max([np.where(mask, curves[index], 0) for index, mask in shown.items()], axis=0)
    highest = _guide(axes, wavenumber, curves[rows[-1]], shown[rows[-1]], envelope) if guide else 0.0
    axes.set_ylim(max(min(lowest / 2, top * 1e-3), floor), max(top, highest) * 2)
    powers_of_ten(axes.xaxis)
    powers_of_ten(axes.yaxis)
    # Beside the axes, because spectra may pass through any corner.
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), handlelength=1.4, labelspacing=0.35)
    return result


def _alone(values: np.ndarray) -> np.ndarray:
    """Indices of values between two gaps, which a line would not show."""
    there = np.pad(np.isfinite(values), 1)
    return np.flatnonzero(there[1:-1] & ~there[:-2] & ~there[2:])


def _guide(
    axes: Axes, wavenumber: np.ndarray, curve: np.ndarray, shown: np.ndarray, envelope: np.ndarray
) -> float:
    """A line of slope -5/3 above all spectra, whose largest values are the `envelope`; returns its highest value.

    It is drawn only if the latest spectrum, `curve`, extends well beyond the range of the line, and has roughly that
    slope.
    """
    first = wavenumber[wavenumber > 0][0]
    low, high = 2.5 * first, 12 * first
    inside = (wavenumber >= low) & (wavenumber <= high)
    if inside.sum() < 3 or wavenumber[-1] < 1.5 * high or not shown[inside].all():
        return 0.0
    slope = np.polyfit(np.log(wavenumber[inside]), np.log(curve[inside]), 1)[0]
    if not -2.6 < slope < -1.0:
        return 0.0
    levels = envelope[inside] * wavenumber[inside] ** (5 / 3)
    ends = np.array([low, high])
    line = 2.2 * levels.max() * ends ** (-5 / 3)
    axes.plot(ends, line, color="#444444", linewidth=1.0, linestyle="--")
    middle = np.sqrt(low * high)
    axes.annotate(
        r"$k^{-5/3}$",
        (middle, 2.2 * levels.max() * middle ** (-5 / 3)),
        xytext=(5, 4),
        textcoords="offset points",
        color="#444444",
    )
    return float(line[0])
