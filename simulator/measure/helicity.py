"""Helicity, and energy and flux by its sign: helicity.h5."""

from typing import TYPE_CHECKING

from simulator.measure.cadence import SeriesCadence
from simulator.measure.kind import Curves, Kind, Subject, Unsupported

if TYPE_CHECKING:
    from simulator.diagnostics.measured import Measured


def check_flow(subject: Subject) -> None:
    """Refuses models without an evolved velocity that is free of divergence."""
    if "velocity" not in subject.model.solenoidal:
        raise Unsupported("needs an incompressible flow")


class Helicity(Kind):
    name = "helicity"
    description = "Helicity spectrum, and energy, transfer and flux by the sign of helicity, in helicity.h5."
    curves = Curves(coordinates={"k": r"wavenumber $k$"}, log="x")

    def measured(self, subject: Subject, settings: SeriesCadence) -> "Measured":
        from simulator.diagnostics.interactions import helical

        check_flow(subject)
        if subject.transform.grid.planar:
            raise Unsupported("is zero in two dimensions", of_model=False)
        return helical(subject.transform)
