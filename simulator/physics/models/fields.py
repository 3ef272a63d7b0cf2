"""The description of a field: components, transform and units, for all code that stores, measures
or draws it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from simulator.errors import UserError
from simulator.physics.models.damping import absent
from simulator.spectral import Fields, Grid, Local, Points, Transform
from simulator.spectral.arrays import PointValues, SpectralScalar, SpectralVector
from simulator.spectral.operators import squared
from simulator.spectral.transform import Tree

__all__ = ["DerivedField", "FieldSpec", "Fields", "by_name"]

VECTOR = ("x", "y", "z")

MatterFields = dict[str, Any]
"""The fields of a composite or of one of its components: coefficients, sets of particles
(`ParticleSet`) and numbers of the memory, by name."""


def constant(vector: Sequence[float], dtype: jnp.dtype) -> Float[Array, "d 1 1 1"]:
    """A constant vector, to be multiplied with or added to a vector field."""
    return jnp.asarray(vector, dtype).reshape(-1, 1, 1, 1)


def along(direction: Sequence[float], vector: SpectralVector) -> SpectralScalar:
    """d . v for a constant vector d, which is not zero."""
    return sum(d * vector[i] for i, d in enumerate(direction) if not absent(d))  # type: ignore[return-value]


def directed(direction: Sequence[float], scalar: SpectralScalar) -> SpectralVector:
    """s d for a constant vector d."""
    return jnp.stack([d * scalar for d in direction])


def along_axes(grid: Grid, key: str, vector: Sequence[float]) -> tuple[float, ...]:
    """A vector of the configuration with one number for each axis of the grid. A vector of zeros
    fits any grid. Raises UserError, beginning with `key`."""
    count = grid.dimensions
    if len(vector) != count and not absent(*vector):
        needed = ("one number is", "two numbers are", "three numbers are")[count - 1]
        raise UserError(
            f"{key}: {needed} needed, one for each axis of the grid, not [{', '.join(map(str, vector))}]"
        )
    return tuple(vector) if len(vector) == count else (0.0,) * count


def products_of(
    transform: Transform, inputs: Tree, products: Callable[[PointValues], Tree]
) -> Tree:
    """The coefficients of `products`, a function of the values of the inputs at a point."""

    def local(values: PointValues, points: Points, parameters: Tree) -> Local:
        return Local(products(values))

    return transform.evaluate(inputs, local).products


@dataclass(frozen=True)
class FieldSpec:
    """An evolved or a derived field."""

    name: str
    components: tuple[str, ...] = ()  # Names of the components of a vector; none for a scalar.
    solenoidal: bool = False  # The field is kept free of divergence.
    complex: bool = False  # The values on the grid are complex.
    units: str = ""  # Of length, time and mass, e.g. "length/time"; empty if the user defines them.
    axial: bool = False  # The field is a curl: in a plane it is along the normal, and a scalar.

    @property
    def shape(self) -> tuple[int, ...]:
        """The leading shape of its arrays: (3,) for a vector, () for a scalar."""
        return (len(self.components),) if self.components else ()

    def on(self, grid: Grid) -> Self:
        """The same field on a grid: a vector with one component for each axis."""
        if grid.dimensions == 3 or not self.components:
            return self
        return replace(self, components=() if self.axial else self.components[: grid.dimensions])

    def of_component(self, name: str) -> Self:
        """The same field as part of a composite, whose fields begin with the component's name."""
        return replace(self, name=f"{name}_{self.name}")


class DerivedField(NamedTuple):
    """A field that output may request besides the evolved ones."""

    spec: FieldSpec
    values: Callable[[Fields], jax.Array]  # Values (component, x, y, z), zero in padding.


def magnitude(vector: Callable[[Fields], jax.Array]) -> Callable[[Fields], jax.Array]:
    """|v| of the vector whose values a function gives."""
    return lambda fields: jnp.sqrt(squared(vector(fields)))


def by_name(*derived: DerivedField) -> dict[str, DerivedField]:
    """Derived fields by the names of their specifications."""
    return {field.spec.name: field for field in derived}


VELOCITY = FieldSpec("velocity", VECTOR, solenoidal=True, units="length/time")
MATTER_VELOCITY = replace(VELOCITY, solenoidal=False)
DENSITY = FieldSpec("density", units="mass/length^3")
VORTICITY = FieldSpec("vorticity", VECTOR, units="1/time", axial=True)
VORTICITY_MAGNITUDE = FieldSpec("vorticity_magnitude", units="1/time")
DISSIPATION_RATE = FieldSpec("dissipation_rate", units="length^2/time^3")
SPEED = FieldSpec("speed", units="length/time")
Q_CRITERION, LAMBDA_2 = (FieldSpec(name, units="1/time^2") for name in ("q_criterion", "lambda_2"))
CURRENT = FieldSpec("current", VECTOR, units="1/time", axial=True)
CURRENT_MAGNITUDE = FieldSpec("current_magnitude", units="1/time")
PRESSURE = FieldSpec("pressure", units="length^2/time^2")  # over density
POTENTIAL = FieldSpec("potential", units="length^2/time^2")
PHASE = FieldSpec("phase")
