"""The description of a field: components, transform and units, for all code that stores, measures or draws it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import jax

from simulator.spectral import Fields, Transform

__all__ = ["DerivedField", "FieldSpec", "Fields", "by_name"]

VECTOR = ("x", "y", "z")


@dataclass(frozen=True)
class FieldSpec:
    """An evolved or a derived field."""

    name: str
    components: tuple[str, ...] = ()
    """Names of the components of a vector; none for a scalar."""
    solenoidal: bool = False
    """The field is kept free of divergence."""
    complex: bool = False
    """The values on the grid are complex."""
    units: str = ""
    """Units in terms of length, time and mass, e.g. "length/time"; empty if the user's equation defines them."""
    transform: Transform | None = None
    """The transform of an evolved field, if it is not the model's."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The leading shape of its arrays: (3,) for a vector, () for a scalar."""
        return (len(self.components),) if self.components else ()

    def of_component(self, name: str) -> Self:
        """The same field as part of a composite, whose fields begin with the component's name."""
        return replace(self, name=f"{name}_{self.name}")


class DerivedField(NamedTuple):
    """A field that output may request besides the evolved ones."""

    spec: FieldSpec
    values: Callable[[Fields], jax.Array]
    """Function from spectral fields to values (..., x, y, z), zero in padding."""


def by_name(*derived: DerivedField) -> dict[str, DerivedField]:
    """Derived fields by the names of their specifications."""
    return {field.spec.name: field for field in derived}


VELOCITY = FieldSpec("velocity", VECTOR, solenoidal=True, units="length/time")
MAGNETIC = FieldSpec("magnetic", VECTOR, solenoidal=True, units="length/time")
BUOYANCY = FieldSpec("buoyancy", units="length/time^2")
DENSITY = FieldSpec("density", units="mass/length^3")
MOMENTUM = FieldSpec("momentum", VECTOR, units="mass/(length^2 time)")
PSI = FieldSpec("psi", complex=True, units="(mass/length^3)^(1/2)")
VORTICITY = FieldSpec("vorticity", VECTOR, units="1/time")
VORTICITY_MAGNITUDE = FieldSpec("vorticity_magnitude", units="1/time")
DISSIPATION_RATE = FieldSpec("dissipation_rate", units="length^2/time^3")
SPEED = FieldSpec("speed", units="length/time")
CURRENT = FieldSpec("current", VECTOR, units="1/time")
CURRENT_MAGNITUDE = FieldSpec("current_magnitude", units="1/time")
PRESSURE = FieldSpec("pressure", units="length^2/time^2")  # over density
POTENTIAL = FieldSpec("potential", units="length^2/time^2")
PHASE = FieldSpec("phase")
