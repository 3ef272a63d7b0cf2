"""Transfer of energy between scales."""

from dataclasses import replace
from functools import partial

from matplotlib.figure import Figure

from simulator.archive.series_file import SeriesReader
from simulator.measure import Curves
from simulator.plugins.pictures.kinds.spectra import shell_wavenumbers
from simulator.plugins.pictures.lines import (
    Pictures,
    at_times,
    drawn,
    generic_pictures,
    level,
    panels,
)
from simulator.plugins.pictures.series_pictures import Diagnostics, endings, pictures_of_each
from simulator.plugins.pictures.style import Labels, as_words


def transfer_and_flux(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """Two panels with k T(k) and the flux Pi(k), at up to six times."""
    k = shell_wavenumbers(series)
    inside = (k > 0) & (series.coordinates.get("modes", k) > 0)
    k = k[inside]
    title = f"{as_words(name)}: transfer between scales"
    words = r"wavenumber $k$", r"$k\,T(k)$", r"flux $\Pi(k)$"
    result, (upper, lower) = panels(*words, title=title, height=5.2)
    for axes, variable, factor in ((upper, f"transfer/{name}", k), (lower, f"flux/{name}", 1.0)):
        each = at_times(series, variable, k, labels, marker=None)
        curves = [replace(c, y=factor * c.y[inside]) for c in each if c.y.any()]
        if drawn(axes, curves, "x"):
            level(axes)
    if (legend := upper.get_legend()) is not None:
        legend.remove()
    return result


transfer_pictures = pictures_of_each(partial(endings, "flux/"), "transfer", transfer_and_flux)


def band_pictures(series: SeriesReader, labels: Labels, _: Diagnostics) -> Pictures:
    return generic_pictures(series, labels, Curves())


def helicity_pictures(series: SeriesReader, labels: Labels, _: Diagnostics) -> Pictures:
    return generic_pictures(series, labels, Curves(coordinates={"k": r"wavenumber $k$"}, log="x"))
