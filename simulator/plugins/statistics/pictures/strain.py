"""Probability densities in the eigenframe of the rate of strain."""

from functools import partial

import numpy as np
from matplotlib.figure import Figure

from simulator.archive.series_file import SeriesReader
from simulator.measure import Curves
from simulator.plugins.pictures.lines import (
    PROBABILITY,
    DrawnCurve,
    Pictures,
    curves,
    numbers,
    plotted,
)
from simulator.plugins.pictures.series_pictures import Diagnostics
from simulator.plugins.pictures.style import Labels, quantity

_SYMBOLS = {"alpha": r"$\alpha$", "beta": r"$\beta$", "gamma": r"$\gamma$"}
_SHAPE = Curves(title=lambda name: PROBABILITY, coordinates={"shape": r"$s^*$"})


def strain_pictures(series: SeriesReader, labels: Labels, _: Diagnostics) -> Pictures:
    yield from numbers(series, labels, Curves())
    words = r"eigenvalue of the strain $/\ \langle S_{ij}S_{ij}\rangle^{1/2}$"
    yield "strain_eigenvalues", partial(_three, series, "", "rate", words, labels)
    yield "strain_s_star", partial(curves, series, "s_star", labels, _SHAPE)
    for vector in map(str, series.attributes["vectors"]):
        words = rf"$|\cos|$ between {quantity(vector).partition(' $')[0]} and the eigenvectors"
        build = partial(_three, series, f"{vector}_", "cosine", words, labels)
        yield f"strain_alignment_{vector}", build


def _three(
    series: SeriesReader, prefix: str, coordinate: str, words: str, labels: Labels
) -> Figure:
    """The probability densities of one quantity for each of the three eigenvalues, at the last
    time. The cosines of a vector without preferred direction have the density 1."""
    x = series.coordinates[coordinate]
    each = []
    for eigenvalue, symbol in _SYMBOLS.items():
        y = series.one(prefix + eigenvalue, -1)
        each.append(DrawnCurve(x, np.where(y > 0, y, np.nan), symbol, how={"marker": None}))
    title = labels.moment(series.time[-1])
    cosine = coordinate == "cosine"
    log = "" if cosine else "y"
    result, axes, shown = plotted(
        each, words, PROBABILITY, log, "nothing in range", title=title, right=0.86
    )
    if shown and cosine:
        axes.axhline(1, color="#888888", linewidth=0.8, linestyle="--")
        axes.set_xlim(0, 1)
        axes.set_ylim(bottom=0)
    return result
