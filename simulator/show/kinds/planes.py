"""Mid-planes of fields, and projections of densities."""

from simulator.archive.series_file import SeriesReader
from simulator.show.lines import Pictures
from simulator.show.series_pictures import Diagnostics, draws, one_for_each
from simulator.show.slices import projections, series_fields, slices
from simulator.show.style import Labels


@draws("slices")
def slice_pictures(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    return one_for_each(series_fields(series), "slices", slices, series, labels)


@draws("projections")
def projection_pictures(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    return one_for_each(series_fields(series), "projection", projections, series, labels)


@draws("lightcone")
def lightcone_pictures(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    return one_for_each(series_fields(series), "lightcone", projections, series, labels)
