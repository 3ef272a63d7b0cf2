"""Probability densities in the eigenframe of the rate of strain: strain.h5."""

from typing import TYPE_CHECKING

from simulator.measure.cadence import SeriesCadence
from simulator.measure.helicity import check_flow
from simulator.measure.kind import Kind, Subject, Unsupported
from simulator.settings import Points, Ratio

if TYPE_CHECKING:
    from simulator.diagnostics.measured import Measured


class StrainSettings(SeriesCadence):
    bins: Points = 100
    """Number of bins of each histogram."""
    range: Ratio = 5.0
    """The histograms of the eigenvalues extend by this many root mean squares of the strain to both sides."""


class Strain(Kind):
    name = "strain"
    description = (
        "Eigenvalues of the rate of strain, and alignment of vorticity, magnetic field and scalar gradients with its "
        "eigenvectors, in strain.h5."
    )
    Settings = StrainSettings

    def measured(self, subject: Subject, settings: StrainSettings) -> "Measured":
        from simulator.diagnostics.strain import strain

        check_flow(subject)
        if subject.transform.grid.planar:
            raise Unsupported("needs a flow in three dimensions", of_model=False)
        return strain(subject.transform, subject.model.shapes, settings.bins, settings.range)
