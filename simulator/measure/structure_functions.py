"""Moments of velocity increments: structure_functions.h5."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from simulator.measure.cadence import SeriesCadence
from simulator.measure.kind import Kind, Subject, Unsupported
from simulator.settings import Flag, Integer, Positive

if TYPE_CHECKING:
    from simulator.diagnostics.measured import Measured


class StructureFunctionSettings(SeriesCadence):
    separations: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=1000)] | None = None
    """Lengths; by default about six per octave, from the grid spacing to half the box."""
    orders: Annotated[
        tuple[Annotated[Integer, Field(ge=2, le=10)], ...], Field(min_length=1, max_length=9)
    ] = (2, 3, 4)
    """Powers of the increments."""
    mixed: Flag = False
    """Also third moments of the longitudinal increment with squares of increments: those of the velocity, of scalars
    (Yaglom's law), and of Elsasser fields."""


class StructureFunctions(Kind):
    name = "structure_functions"
    description = "Moments of velocity increments in structure_functions.h5."
    Settings = StructureFunctionSettings

    def measured(self, subject: Subject, settings: StructureFunctionSettings) -> "Measured":
        from simulator.diagnostics.structure import default_separations, structure_functions

        model = subject.model
        if not {"velocity", "momentum"} & model.fields.keys():
            raise Unsupported("needs a velocity")
        separations = settings.separations or default_separations(subject.transform.grid)
        mixed = None
        if settings.mixed:
            known = [n for n, lead in model.shapes.items() if not lead or n == "magnetic"]
            mixed = known if "velocity" in model.fields else []
        return structure_functions(subject.transform, separations, settings.orders, model.velocity, mixed)
