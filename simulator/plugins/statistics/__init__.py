"""Further statistics of turbulence and matter as series of a run: transfer of energy between scales,
structure functions, histograms, the eigenframe of strain, profiles and projections of densities,
paths, dispersion and pair correlations of particles, and means over time. `pictures` has their pictures."""
