"""Mid-planes of fields, and projections of densities."""

from simulator.plugins.pictures.series_pictures import pictures_of_each
from simulator.plugins.pictures.slices import projections, series_fields, slices

slice_pictures = pictures_of_each(series_fields, "slices", slices)
projection_pictures = pictures_of_each(series_fields, "projection", projections)
