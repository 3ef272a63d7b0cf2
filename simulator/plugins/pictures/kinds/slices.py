"""Mid-planes of fields."""

from simulator.plugins.pictures.series_pictures import pictures_of_each
from simulator.plugins.pictures.slices import series_fields, slices

slice_pictures = pictures_of_each(series_fields, "slices", slices)
