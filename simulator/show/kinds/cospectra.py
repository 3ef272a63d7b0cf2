"""Spectra of fluxes, helicities and parts of the energy."""

from functools import partial

from simulator.archive.series_file import SeriesReader
from simulator.measure import Curves
from simulator.show.kinds.spectra import spectrum
from simulator.show.lines import Pictures, curves, generic_pictures
from simulator.show.series_pictures import Diagnostics, draws, variables_over
from simulator.show.style import Labels

_BY = Curves(coordinates={"k": r"wavenumber $k$"}, log="x")


@draws("cospectra")
def cospectra_pictures(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    for name in variables_over(series, "k"):
        if name.endswith("_energy") or name.startswith("elsasser"):
            yield f"cospectra_{name}", partial(spectrum, series, name, labels, guide=False)
        else:
            yield f"cospectra_{name}", partial(curves, series, name, labels, _BY)


@draws("helicity")
def helicity_pictures(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    return generic_pictures(series, labels, _BY)
