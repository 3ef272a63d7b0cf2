"""Transfer of energy between scales."""

from functools import partial

from matplotlib.figure import Figure

from simulator.archive.series_file import SeriesReader
from simulator.measure import Curves
from simulator.plugins.pictures.kinds.spectra import shell_wavenumbers
from simulator.plugins.pictures.lines import (
    Pictures,
    drawn_rows,
    generic_pictures,
    legend_beside,
    level,
    logarithmic,
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
    for row, colour, label in drawn_rows(series, labels):
        rate = series.one(f"transfer/{name}", row)[inside]
        flux = series.one(f"flux/{name}", row)[inside]
        upper.plot(k, k * rate, color=colour, linewidth=1.3)
        lower.plot(k, flux, color=colour, linewidth=1.3, label=label)
    level(upper)
    level(lower)
    logarithmic(lower, "x")
    legend_beside(lower)
    return result


transfer_pictures = pictures_of_each(partial(endings, "flux/"), "transfer", transfer_and_flux)


def band_pictures(series: SeriesReader, labels: Labels, _: Diagnostics) -> Pictures:
    return generic_pictures(series, labels, Curves())


def helicity_pictures(series: SeriesReader, labels: Labels, _: Diagnostics) -> Pictures:
    return generic_pictures(series, labels, Curves(coordinates={"k": r"wavenumber $k$"}, log="x"))
