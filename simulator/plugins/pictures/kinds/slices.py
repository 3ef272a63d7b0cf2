"""Mid-planes of fields, and projections of densities."""

from simulator.plugins.pictures.series_pictures import draws_each
from simulator.plugins.pictures.slices import projections, series_fields, slices

draws_each("slices", "slices", series_fields)(slices)
draws_each("projections", "projection", series_fields)(projections)
draws_each("lightcone", "lightcone", series_fields)(projections)
