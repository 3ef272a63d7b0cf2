"""Probability densities of the eigenvalues of the strain, and of angles to its eigenvectors."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from simulator.measure import Curves
from simulator.output.series import SeriesReader
from simulator.show.curves import MOST_PANELS, against_time, curves
from simulator.show.labels import Labels
from simulator.show.style import COLOURS, WIDTH, figure, note, quantity

_SYMBOLS = {"alpha": r"$\alpha$", "beta": r"$\beta$", "gamma": r"$\gamma$"}
_SHAPE = Curves(title=lambda name: "probability density", coordinates={"shape": r"$s^*$"})
_WORDS = {
    "strain_rms": r"$\langle S_{ij}S_{ij}\rangle^{1/2}$",
    "strain_product": r"$\langle\alpha\beta\gamma\rangle$",
    **{f"{e}_mean": rf"$\langle\{e}\rangle$" for e in _SYMBOLS},
    **{f"stretching_{e}": rf"$\langle\{e}\,\omega_\{e}^2\rangle$" for e in _SYMBOLS},
}
_NUMBERS = Curves(title=lambda name: _WORDS[name])


def pictures(series: SeriesReader, labels: Labels) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """File names without their endings, and functions that build the figures."""
    numbers = [name for name, dimensions in series.variables.items() if not dimensions]
    for page in range(0, len(numbers), MOST_PANELS):
        stem = "strain" if page == 0 else f"strain_{page // MOST_PANELS + 1}"
        yield stem, partial(against_time, series, numbers[page : page + MOST_PANELS], labels, _NUMBERS)
    yield "strain_eigenvalues", partial(_eigenvalues, series, labels)
    yield "strain_s_star", partial(curves, series, "s_star", labels, _SHAPE)
    for vector in map(str, series.attributes["vectors"]):
        yield f"strain_alignment_{vector}", partial(_alignment, series, vector, labels)


def _three(
    series: SeriesReader, variables: Sequence[str], coordinate: str, label: str, moment: str
) -> Figure:
    last = len(series) - 1
    result = figure(WIDTH, 4.2)
    axes = result.subplots()
    result.subplots_adjust(left=0.13, right=0.86, top=0.93, bottom=0.13)
    axes.set_title(moment)
    axes.set_xlabel(label)
    axes.set_ylabel("probability density")
    x, drawn = series.coordinates[coordinate], False
    for (name, symbol), variable, colour in zip(_SYMBOLS.items(), variables, COLOURS, strict=False):
        density = np.asarray(series.one(variable, last))
        drawn |= bool(density.any())
        axes.plot(x, np.where(density > 0, density, np.nan), color=colour, label=symbol, gid=name)
    if not drawn:
        note(axes, "nothing in range")
        return result
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), handlelength=1.4, labelspacing=0.35)
    return result


def _eigenvalues(series: SeriesReader, labels: Labels) -> Figure:
    moment = labels.moment(series.time[len(series) - 1])
    label = r"eigenvalue of the strain $/\ \langle S_{ij}S_{ij}\rangle^{1/2}$"
    result = _three(series, tuple(_SYMBOLS), "rate", label, moment)
    if result.axes[0].lines:
        result.axes[0].set_yscale("log")
    return result


def _alignment(series: SeriesReader, vector: str, labels: Labels) -> Figure:
    """A vector without preferred direction has the density 1."""
    moment = labels.moment(series.time[len(series) - 1])
    words = quantity(vector).partition(" $")[0]
    label = rf"$|\cos|$ between {words} and the eigenvectors"
    result = _three(series, [f"{vector}_{e}" for e in _SYMBOLS], "cosine", label, moment)
    axes = result.axes[0]
    if axes.lines:
        axes.axhline(1, color="#888888", linewidth=0.8, linestyle="--")
        axes.set_xlim(0, 1)
        axes.set_ylim(bottom=0)
    return result
