"""Mid-planes of fields, and projections of densities."""

from simulator.show.series_pictures import draws_each
from simulator.show.slices import projections, series_fields, slices

draws_each("slices", "slices", series_fields)(slices)
draws_each("projections", "projection", series_fields)(projections)
