"""The interface of a transform, the same for all backends; products on shifted grids.

A quadratic product on N points gives the mode k an error from k + N e for vectors e of integers. If
only modes within 2 sqrt(2) / 3 of the Nyquist wavenumber are kept, e has a single nonzero
component: 1 or -1. On a grid shifted by half a spacing along x, y and z that error has the opposite
sign: the mean over both grids is the exact convolution (`spherical`). Patterson & Orszag, Phys.
Fluids 14, 2538 (1971); Canuto et al., Spectral Methods: Fundamentals in Single Domains (2006),
section 3.3.2.

With `phase_shift` each stage of a step uses one grid, and two stages of equal weight use grids half
a spacing apart: their errors cancel but for the change of the fields between the stages, which is
of order dt. Rogallo, NASA TM 81315 (1981); both grids of a pair are moved by a further shift, another
one in each step, whose phases let what is left average out: Lambert, Reneuve & Augier,
arXiv:2603.08892."""

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Complex, Inexact, Shaped

from simulator.spectral.arrays import Number, PhysicalField, SpectralField, SpectralFields
from simulator.spectral.grid import Grid
from simulator.spectral.layout import Layout, PhysicalLayout
from simulator.spectral.operators import translate
from simulator.spectral.points import Points

Tree = Any  # A dict (or any pytree) of arrays with any number of leading component axes.
Fields = SpectralFields


class Local(NamedTuple):
    """The result of a pointwise function: `products` to be transformed, and values of which only
    the maximum or only the box mean is needed. All have the shape of a block, products with leading
    component axes."""

    products: Tree
    maxima: dict[str, jax.Array] = {}  # noqa: RUF012
    means: dict[str, jax.Array] = {}  # noqa: RUF012

    def everywhere(self, shape: Sequence[int]) -> "Local":
        """Products, maxima and means broadcast to all points of a block of this shape."""
        return Local(
            jax.tree.map(lambda a: jnp.broadcast_to(a, (*a.shape[:-3], *shape)), self.products),
            {name: jnp.broadcast_to(value, shape) for name, value in self.maxima.items()},
            {name: jnp.broadcast_to(value, shape) for name, value in self.means.items()},
        )


Shift = tuple[float | Number, float | Number, float | Number]
"""A shift of the grid along x, y and z, in spacings."""

PointwiseFunction = Callable[[Tree, Points, Tree], Local]
"""A pure function from values by name, coordinates and parameters at a point to `Local`. The
function must not close over traced arrays; these are passed as parameters. Blocks hold whole lines
of z, so that neighbours in z are available too."""


NOTHING_STORED: Mapping[str, jax.Array] = MappingProxyType({})


class Evaluated(NamedTuple):
    products: Tree  # Spectral arrays of the pointwise products.
    maxima: dict[str, jax.Array]
    means: dict[str, jax.Array]
    values: dict[str, jax.Array] = {}  # noqa: RUF012
    """Values of the inputs named in `keep`, (component, *kept_order)."""


class Transform(Protocol):
    """A distributed transform between values on the grid and Fourier coefficients.

    `layout` and `physical` are the layouts of modes and points. All methods but `evaluate` are
    linear in their arrays; all can be traced, and keep arrays sharded."""

    grid: Grid
    layout: Layout
    physical: PhysicalLayout
    dtype: np.dtype  # Type of real values: float64 or float32.
    name: str  # Backend, decomposition and plan, e.g. "custom_partitioning_z_xy".
    kernels: str  # Implementation of the local transforms: "native" or "xla".
    threads: int = 1  # Threads of a processor's device, which share the work of native kernels.
    # The order of the values that `evaluate` keeps; None if it cannot keep values.
    kept_order: str | None = None

    @property
    def complex_dtype(self) -> np.dtype:
        """Type of coefficients."""
        return np.result_type(self.dtype, np.complex64)

    @property
    def value_dtype(self) -> np.dtype:
        """Type of values on the grid."""
        return self.dtype if self.layout.real else self.complex_dtype

    def forward(self, values: Shaped[Array, "..."]) -> Complex[Array, "... ka kb kc"]:
        """The coefficients of the modes that are kept, from values (..., x, y, z), in two
        dimensions (..., x, y)."""
        ...

    def inverse(self, modes: SpectralField) -> PhysicalField:
        """Values on the grid from coefficients; zero in padding."""
        ...

    def inverse_kept(
        self, modes: Complex[Array, "component ka kb kc"]
    ) -> Inexact[Array, "component pa pb pc"]:
        """Values with the axes in `kept_order`, which must not be None, from coefficients."""
        raise TypeError(f"{self.name} keeps no values")

    def evaluate(
        self,
        inputs: Tree,
        pointwise: PointwiseFunction,
        parameters: Tree = (),
        keep: Collection[str] = (),
        stored: Mapping[str, jax.Array] = NOTHING_STORED,
        shift: Shift | None = None,
    ) -> Evaluated:
        """The coefficients of products of fields: `pointwise` is applied to the values of all
        `inputs` at each point, and of the arrays (..., x, y, z) `stored`, which it gets by name
        beside the inputs.

        If `kept_order` is not None, the values of those inputs whose names `keep` lists are
        returned too. With `two_thirds` and `spherical` dealiasing, products of two fields are free
        of aliasing: with `spherical`, products and means are averaged over two grids half a spacing
        apart, and maxima are taken over both. So they are with `phase_shift`, unless `shift` names
        one grid; then no values are kept."""
        if not jax.tree.leaves(inputs):
            raise ValueError("evaluate needs at least one input field")
        if not self.grid.spherical or not self.layout.truncated:
            return self.evaluate_once(inputs, pointwise, parameters, keep, stored)
        if stored:
            problem = "dealiasing needs values between the grid points, too"
            raise ValueError(f"{self.grid.dealias} {problem}")
        if shift is not None:
            return self._evaluate_shifted(inputs, pointwise, parameters, shift)
        original = self.evaluate_once(inputs, pointwise, parameters, keep)
        shifted = self._evaluate_shifted(inputs, pointwise, parameters, (0.5, 0.5, 0.5))

        def mean(a: jax.Array, b: jax.Array) -> jax.Array:
            return 0.5 * (a + b)

        return Evaluated(
            jax.tree.map(mean, original.products, shifted.products),
            jax.tree.map(jnp.maximum, original.maxima, shifted.maxima),
            jax.tree.map(mean, original.means, shifted.means),
            original.values,
        )

    def _evaluate_shifted(
        self, inputs: Tree, pointwise: PointwiseFunction, parameters: Tree, shift: Shift
    ) -> Evaluated:
        """`evaluate_once` on the shifted grid; the products are shifted back, to fields on the
        grid."""
        x, y, z = (
            a * h if n > 1 else 0.0
            for a, h, n in zip(shift, self.grid.spacing, self.grid.shape, strict=True)
        )

        def moved(tree: Tree, sign: int) -> Tree:
            by = (sign * x, sign * y, sign * z)
            return jax.tree.map(
                lambda f: self.layout.constrain(translate(self.layout, f, by)), tree
            )

        lengths = tuple(jnp.asarray(length, self.dtype) for length in (x, y, z))
        at_points = partial(_at_shifted_points, pointwise)
        evaluated = self.evaluate_once(moved(inputs, 1), at_points, (lengths, parameters))
        return evaluated._replace(products=moved(evaluated.products, -1))

    def evaluate_once(
        self,
        inputs: Tree,
        pointwise: PointwiseFunction,
        parameters: Tree = (),
        keep: Collection[str] = (),
        stored: Mapping[str, jax.Array] = NOTHING_STORED,
    ) -> Evaluated:
        """`evaluate` on the points of the grid alone, without the shifted grids of `spherical` and
        `phase_shift` dealiasing; here the reference, for backends that do not visit physical space
        in blocks."""
        return evaluate_whole(self, inputs, pointwise, parameters, stored)


def _at_shifted_points(
    pointwise: PointwiseFunction, values: Tree, points: Points, given: Tree
) -> Local:
    (dx, dy, dz), parameters = given
    return pointwise(values, Points(points.x + dx, points.y + dy, points.z + dz), parameters)


def evaluate_whole(
    transform: Transform,
    inputs: Tree,
    pointwise: PointwiseFunction,
    parameters: Tree = (),
    stored: Mapping[str, jax.Array] = NOTHING_STORED,
) -> Evaluated:
    """The reference of all schedules: forward(pointwise(inverse(inputs))), of whole fields.

    Each exchange of the plan sends all inputs in one all-to-all, and all products back in another
    one."""
    physical = transform.physical
    values = Positions.of(inputs).split(transform.inverse(stack(inputs)))
    points = Points(*physical.coordinates(transform.dtype))
    at_points = {**values, **stored} if stored else values
    local = pointwise(at_points, points, parameters).everywhere(physical.shape)
    products = Positions.of(local.products)
    modes = transform.forward(stack(local.products)) if products.leads else None
    maxima = {name: lax.stop_gradient(values) for name, values in local.maxima.items()}
    return Evaluated(
        products.split(modes),
        {name: physical.max(values) for name, values in maxima.items()},
        {name: physical.mean(values) for name, values in local.means.items()},
    )


@dataclass(frozen=True)
class Positions:
    """The positions of the leaves of a tree in one array (component, ...)."""

    treedef: Any
    leads: tuple[tuple[int, ...], ...]
    """The leading axes of each leaf."""

    @classmethod
    def of(cls, tree: Tree) -> Self:
        """The positions that `stack` gives the leaves of a tree."""
        leaves, treedef = jax.tree.flatten(tree)
        return cls(treedef, tuple([tuple(leaf.shape[: leaf.ndim - 3]) for leaf in leaves]))

    @cached_property
    def sizes(self) -> list[int]:
        return list(map(math.prod, self.leads))

    @cached_property
    def components(self) -> int:
        return sum(self.sizes)

    @cached_property
    def ranges(self) -> Tree:
        """The range (first, number) of each leaf's components."""
        firsts = itertools.accumulate([0, *self.sizes[:-1]])
        return self.treedef.unflatten(zip(firsts, self.sizes, strict=True))

    def split(self, array: jax.Array | None) -> Tree:
        """The tree whose leaves are parts of an array; None for a tree without leaves."""
        if array is None:
            return self.treedef.unflatten([])
        # The reverse of a slice is an array of all components with zeros, that of a split is a
        # concatenation.
        parts = zip(lax.split(array, self.sizes), self.leads, strict=True)
        return self.treedef.unflatten([p.reshape(*lead, *array.shape[1:]) for p, lead in parts])


def stack(tree: Tree) -> jax.Array:
    """All leaves of a tree, at least one, as one array (component, ...)."""
    leaves = [leaf.reshape(-1, *leaf.shape[leaf.ndim - 3 :]) for leaf in jax.tree.leaves(tree)]
    return leaves[0] if len(leaves) == 1 else jnp.concatenate(leaves)
