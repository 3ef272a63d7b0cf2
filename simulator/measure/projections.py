"""Mass densities integrated along the three axes: projections.h5."""

from typing import TYPE_CHECKING

from simulator.measure.cadence import SeriesCadence
from simulator.measure.kind import Kind, Subject, Unsupported

if TYPE_CHECKING:
    from simulator.diagnostics.measured import Measured


class Projections(Kind):
    name = "projections"
    description = "Mass densities integrated along x, y and z in projections.h5."

    def measured(self, subject: Subject, settings: SeriesCadence) -> "Measured":
        from simulator.diagnostics.density import densities, projections

        if subject.transform.grid.planar:
            raise Unsupported("need three dimensions; output.slices holds the plane", of_model=False)
        if not (mass := densities(subject.model)):
            raise Unsupported("needs a mass density")
        return projections(subject.model.density_transform, mass)
