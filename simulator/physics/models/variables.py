"""The variables of an equation: those in which a user states a flow, and those that it evolves."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from simulator.physics.models.fields import Fields
from simulator.spectral.arrays import PointValues, SpectralVector

if TYPE_CHECKING:
    from simulator.physics.models.equation import Equation

Model = TypeVar("Model", bound="Equation")


class Variables(Generic[Model]):
    """The primitive fields of an initial condition, which terms know and act on, and the evolved
    fields of an equation. By default they are the same."""

    def shapes(self, model: Model) -> Mapping[str, tuple[int, ...]]:
        """The primitive fields, with their leading shapes."""
        return model.shapes

    def accelerated(self, model: Model) -> Mapping[str, tuple[int, ...]]:
        """The fields that a forcing accelerates, with their leading shapes."""
        return model.shapes

    def check_start(self, model: Model, kind: str) -> None:
        """Raises UserError if the initial condition `kind`, which is not `of_all`, does not give all
        fields of the model."""

    def evolved(self, model: Model, fields: Fields, names: Collection[str]) -> Fields:
        """The evolved fields from those of an initial condition. Fields that are not in `names`
        were not set, and are zero. If modes grow, the anti-Hermitian part, which is invisible on
        the grid, is removed."""
        return model.linear_growth.visible(fields)

    def primitives(self, values: PointValues) -> PointValues:
        """The primitive fields at a point, from the values of the evolved fields."""
        return values

    def evolved_rates(self, rates: PointValues, values: PointValues) -> PointValues:
        """The rates of the evolved fields at a point, from those of the primitive fields; `values`
        are those of the evolved fields."""
        return rates

    def velocity(self, model: Model, fields: Fields) -> SpectralVector:
        """The velocity (length/time)."""
        return fields["velocity"]
