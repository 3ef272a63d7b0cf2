"""Moments of velocity increments: structure_functions.h5."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from simulator.measurements.cadence import SeriesCadence
from simulator.measurements.kind import Kind, Subject, Unsupported
from simulator.settings import Integer, Positive

if TYPE_CHECKING:
    from simulator.diagnostics.measured import Measured


class StructureFunctionSettings(SeriesCadence):
    separations: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=1000)] | None = None
    """Lengths; by default about six per octave, from the grid spacing to half the box."""
    orders: Annotated[
        tuple[Annotated[Integer, Field(ge=2, le=10)], ...], Field(min_length=1, max_length=9)
    ] = (2, 3, 4)
    """Powers of the increments."""


class StructureFunctions(Kind):
    name = "structure_functions"
    description = "Moments of velocity increments in structure_functions.h5."
    Settings = StructureFunctionSettings

    def measured(self, subject: Subject, settings: StructureFunctionSettings) -> "Measured":
        from simulator.diagnostics.structure import default_separations, structure_functions

        if "velocity" not in subject.model.fields:
            raise Unsupported("needs a velocity")
        separations = settings.separations or default_separations(subject.transform.grid)
        return structure_functions(subject.transform, separations, settings.orders)
