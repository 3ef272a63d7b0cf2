"""Mid-planes of fields, or fields over x and t."""

from simulator.plugins.pictures.series_pictures import pictures_of_each
from simulator.plugins.pictures.slices import series_fields
from simulator.plugins.pictures.space_time import cuts

slice_pictures = pictures_of_each(series_fields, "slices", cuts)
