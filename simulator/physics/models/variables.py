"""The variables of an equation: those in which a user states a flow, and those that it evolves."""

from collections.abc import Collection
from typing import Generic, Protocol, TypeVar

from simulator.physics.models.fields import Fields
from simulator.physics.models.growth import Growth
from simulator.spectral.arrays import PointValues, SpectralVector


class Evolving(Protocol):
    """An equation with its linear growth."""

    linear_growth: Growth


Model = TypeVar("Model", bound=Evolving)


class Variables(Generic[Model]):
    """The primitive fields of an initial condition, which terms know and act on, and the evolved
    fields of an equation. By default they are the same."""

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
