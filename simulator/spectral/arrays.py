"""The arrays of this program as types. A name in a shape is a length that all arrays of one call
share.

ka, kb, kc are the modes of a layout, in the order of its axes; x, y, z the points of the grid or,
in a pointwise function, of a block in the block's order; both with padding. component: any leading
axes; d: one component for each axis of the grid. With # the length may also be 1: the array
broadcasts. particle: the entries of the buffers of particles; shell: the shells of spectra; "": a
number without axes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from types import ModuleType
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Complex, Float, Inexact, Int, Integer

Number = Float[Array, ""]
Whole = Integer[Array, ""]
Truth = Bool[Array, ""]

SpectralField = Complex[Array, "*component ka kb kc"]
SpectralScalar = Complex[Array, "ka kb kc"]
SpectralVector = Complex[Array, "d ka kb kc"]
SpectralFields = dict[str, Complex[Array, "... ka kb kc"]]
OfModes = Float[Array, "ka kb kc"]  # A real number for each mode, such as its energy.
OverModes = Inexact[Array, "#ka #kb #kc"]  # A factor for each mode, such as a wavenumber or L.

PhysicalField = Inexact[Array, "*component x y z"]
PhysicalScalar = Inexact[Array, "x y z"]
PhysicalVector = Inexact[Array, "d x y z"]
PointValues = dict[str, Inexact[Array, "... #x #y #z"]]
OverPoints = Float[Array, "#x #y #z"]  # A factor for each point, such as a coordinate.

ParticleVectors = Float[Array, "3 particle"]
ParticleScalars = Float[Array, "particle"]
ParticleIds = Int[Array, "particle"]

Spectrum = Float[Array, "shell"]

Numbers = Mapping[str, Array]  # Small arrays by name, the same on every device.


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Combination:
    """The sum of arrays times numbers, still to be computed: a kernel that reads the arrays does so
    on the way."""

    factors: tuple[Number, ...]
    arrays: tuple[Array, ...]

    @classmethod
    def of(cls, array: Array) -> Self:
        return cls((jnp.ones((), jnp.float64),), (array,))

    @property
    def real(self) -> Array:
        """An array of the precision of the sum."""
        return self.arrays[0].real

    def __add__(self, other: Self) -> Self:
        return replace(
            self, factors=self.factors + other.factors, arrays=self.arrays + other.arrays
        )

    def __sub__(self, other: Self) -> Self:
        return self + -1 * other

    def __rmul__(self, factor: Number | float) -> Self:
        return replace(self, factors=tuple(factor * own for own in self.factors))


def computed(sum_: Array | Combination) -> Array:
    """The array of a combination."""
    if not isinstance(sum_, Combination):
        return sum_
    return reduce(
        add, (factor * array for factor, array in zip(sum_.factors, sum_.arrays, strict=True))
    )


def latest(sum_: Array | Combination) -> Array:
    """The array, or the last one of a combination, which is computed last."""
    return sum_.arrays[-1] if isinstance(sum_, Combination) else sum_


def root(square: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The square root, with the slope 0 at 0: that of jnp.sqrt is infinite there, and infinity
    times a slope of 0 is NaN. NaN stays NaN."""
    zero = square == 0
    return jnp.where(zero, 0, jnp.sqrt(jnp.where(zero, 1, square)))


def quotient(a: jax.Array | float, b: jax.Array) -> jax.Array:
    """a / b, and 0 with the slope 0 where b is 0."""
    zero = b == 0
    return jnp.where(zero, 0, a / jnp.where(zero, 1, b))


def namespace(*values: object) -> ModuleType:
    """JAX's numpy if one of the values is an array of JAX, which may be traced; else NumPy, which
    starts no device."""
    return jnp if any(isinstance(value, jax.Array) for value in values) else np


def holds(condition: ArrayLike) -> bool:
    """Whether a condition on values is met; True if a run is only checked, so that there are no
    values."""
    try:
        return bool(condition)
    except jax.errors.ConcretizationTypeError:
        return True
