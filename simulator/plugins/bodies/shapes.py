"""Shapes in the periodic box: masks chi(x, t) that are 1 inside and 0 outside, smoothed over a
width.

With d the distance from the surface, negative inside, and w the width, chi = s^3 (10 - 15 s + 6
s^2) of s = 1/2 - d / w within the layer |d| < w / 2: chi and its first two derivatives are
continuous, and chi is exactly 0 and 1 beyond the layer. Distances are those to the nearest periodic
image."""

from collections.abc import Sequence
from functools import reduce
from operator import and_, mul, or_
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from pydantic import Field, model_validator

from simulator.errors import UserError, prefixed
from simulator.physics.terms.term import Coordinates
from simulator.plugins.bodies.formula import Formula, check_moment, moment_value
from simulator.plugins.bodies.resolution import LAYER
from simulator.settings import InputPath, Parameters, Positive, PythonFile, Settings, entries, wrong
from simulator.spectral import Grid
from simulator.spectral.arrays import Number, OverPoints, Truth, root
from simulator.spectral.grid import AXES

Place = Annotated[
    tuple[Formula, ...],
    Field(json_schema_extra={"minItems": 2, "maxItems": 3}),
    entries("a number or a formula of t for each axis of the grid is needed", 2, 3),
]


def extents_of(points: Coordinates) -> tuple[int, ...]:
    """The extents of the block of points that the coordinates span."""
    return np.broadcast_shapes(*(x.shape for x in points))


def step_down(distance: jax.Array, width: Number | float) -> jax.Array:
    """chi of the distance from the surface."""
    s = jnp.clip(0.5 - distance / width, 0, 1)
    return s**3 * (10 - 15 * s + 6 * s**2)


class ShapeSettings(Settings):
    """Keys of every shape."""

    smoothing: Positive | None = None
    """Width of the layer in which the mask falls from 1 to 0, half of it inside the shape; by
    default two spacings of the grid; walls along the flow need four."""

    def check(self, grid: Grid) -> None:
        """Raises UserError, beginning with the key, for a shape that does not fit the box."""

    def width(self, grid: Grid) -> Any:
        """The width (length) of the layer in which the mask falls."""
        return LAYER * max(grid.seen(grid.spacing)) if self.smoothing is None else self.smoothing

    def distance(self, grid: Grid, points: Coordinates, time: Number) -> jax.Array:
        """The distance (length) from the surface, negative inside."""
        raise TypeError(f"{type(self).__name__} does not define distance")

    def velocity(self, grid: Grid, points: Coordinates, time: Number) -> list[jax.Array]:
        """The velocity (length/time) of the body at a point, a component for each axis."""
        raise TypeError(f"{type(self).__name__} does not define velocity")

    def middle(self, grid: Grid, time: Number) -> list[jax.Array]:
        """The point about which a body turns and its torque is measured, in double precision."""
        return [jnp.float64(length / 2) for length in grid.seen(grid.box)]

    def reach(self, grid: Grid, time: Number) -> list[tuple[int, Any]]:
        """Axes, by number, with the distance from the body's centre beyond which it does not lie;
        empty for a shape whose distance is that along one axis."""
        return []

    def inside(self, grid: Grid, points: Coordinates, time: Number) -> jax.Array:
        """Whether points lie inside the surface."""
        return self.distance(grid, points, time) < 0

    def near(self, grid: Grid, points: Coordinates, time: Number) -> Truth | None:
        """Whether the mask may be above 0 at one of the points; None if that is not asked."""
        reach = self.reach(grid, time)
        if not reach:
            return None
        r = from_nearest(grid, points, self.middle(grid, time))
        width = self.width(grid)
        return reduce(and_, (abs(r[i]).min() < most + width / 2 for i, most in reach))

    def chi(self, grid: Grid, points: Coordinates, time: Number) -> OverPoints:
        """The mask at a point; not evaluated in blocks of points that the body does not reach."""
        width = self.width(grid)
        near = self.near(grid, points, time)
        if near is None:
            return step_down(self.distance(grid, points, time), width)
        shape = extents_of(points)

        def inside() -> jax.Array:
            return jnp.broadcast_to(step_down(self.distance(grid, points, time), width), shape)

        def beyond() -> jax.Array:
            return jnp.zeros(shape, points[0].dtype) + 0 * sum(x.ravel()[0] for x in points)

        return lax.cond(near, inside, beyond)


class BodySettings(ShapeSettings):
    """Keys of a body that may move and turn."""

    center: Place
    """The centre, numbers or formulas of t, by which the body moves."""
    angle: Formula = 0.0
    """The angle (radians), a number or a formula of t, by which the body is turned about `axis`
    through its centre."""
    axis: Literal["x", "y", "z"] = "z"
    """The axis about which the body turns; of a cylinder its own. In a plane z, its normal."""

    def check(self, grid: Grid) -> None:
        if grid.dimensions == 1:
            raise UserError("kind: is a body in two or three dimensions; half_space is a wall")
        if len(self.center) != grid.dimensions:
            count = ("two", "three")[grid.dimensions - 2]
            raise UserError(f"center: {count} numbers are needed, one for each axis of the grid")
        if grid.dimensions == 2 and self.axis != "z":
            raise UserError(f"axis: is the normal of the plane, z, not {self.axis}")
        try:
            for formula in (*self.center, self.angle):
                check_moment(formula)
        except ValueError as error:
            raise UserError(f"center: {error}; a body moves as a function of t") from None

    def middle(self, grid: Grid, time: Number) -> list[jax.Array]:
        return [moment_value(c, time) for c in self.center]

    def relative(self, grid: Grid, points: Coordinates, time: Number) -> list[jax.Array]:
        """The vector from the nearest image of the centre to a point."""
        return from_nearest(grid, points, self.middle(grid, time))

    def plane(self, grid: Grid) -> tuple[int, int]:
        """The two axes, by number, in which the body turns."""
        if grid.dimensions == 2:
            return 0, 1
        first = AXES.index(self.axis)
        return (first + 1) % 3, (first + 2) % 3

    def velocity(self, grid: Grid, points: Coordinates, time: Number) -> list[jax.Array]:
        """dc/dt + Omega x (x - c)."""

        def place(time: Number) -> tuple[list[jax.Array], Number]:
            return self.middle(grid, time), moment_value(self.angle, time)

        _, (drift, turn) = jax.jvp(place, (time,), (jnp.ones_like(time),))
        r = self.relative(grid, points, time)
        v = [d.astype(x.dtype) for d, x in zip(drift, r, strict=True)]
        a, b = self.plane(grid)
        v[a] = v[a] - turn.astype(r[b].dtype) * r[b]
        v[b] = v[b] + turn.astype(r[a].dtype) * r[a]
        return v


def check_axis(grid: Grid, key: str, axis: str) -> None:
    """Raises UserError, beginning with `key`, for an axis that the grid does not have."""
    axes = [*grid.names.values()]
    if axis not in axes:
        has = "axis" if len(axes) == 1 else "axes"
        raise UserError(f"{key}: the grid has the {has} {' and '.join(axes)}")


def from_nearest(grid: Grid, points: Coordinates, middle: Sequence[Number]) -> list[jax.Array]:
    """The vector from the nearest periodic image of a point to the points."""
    lengths = grid.seen(grid.box)
    r = [x - c.astype(x.dtype) for x, c in zip(points, middle, strict=True)]
    nearest = [d - length * jnp.round(d / length) for d, length in zip(r, lengths, strict=True)]
    # Along each axis once: XLA would compute the vector again at every point.
    return [lax.optimization_barrier(d) for d in nearest]


def _fits(grid: Grid, key: str, extents: Sequence[Any]) -> None:
    for axis, extent, length in zip(AXES, extents, grid.seen(grid.box), strict=False):
        if not isinstance(extent, jax.Array) and extent > length:
            raise UserError(
                f"{key}: the body is {extent:g} long along {axis}, but the box {length:g}"
            )


class SphereSettings(BodySettings):
    """A sphere, in a plane a disc."""

    kind: Literal["sphere"] = "sphere"
    radius: Positive
    """Distance of the surface from the centre; at most half of the box."""

    def across(self, grid: Grid) -> Sequence[int]:
        """The axes, by number, along which the surface is curved."""
        return range(len(grid.axes))

    def check(self, grid: Grid) -> None:
        super().check(grid)
        across = self.across(grid)
        extents = [2 * self.radius if i in across else 0.0 for i in range(len(grid.axes))]
        _fits(grid, "radius", extents)

    def reach(self, grid: Grid, time: Number) -> list[tuple[int, Any]]:
        return [(i, self.radius) for i in self.across(grid)]

    def distance(self, grid: Grid, points: Coordinates, time: Number) -> jax.Array:
        r = self.relative(grid, points, time)
        return root(sum(r[i] ** 2 for i in self.across(grid))) - self.radius  # type: ignore[arg-type]


class CylinderSettings(SphereSettings):
    """A cylinder from one end of the box to the other, along `axis`; in a plane a disc."""

    kind: Literal["cylinder"] = "cylinder"  # pyright: ignore[reportIncompatibleVariableOverride]
    radius: Positive
    """Distance of the surface from the axis; at most half of the box."""

    def across(self, grid: Grid) -> Sequence[int]:
        return self.plane(grid)


class BoxSettings(BodySettings):
    kind: Literal["box"] = "box"
    size: Annotated[
        tuple[Positive | None, ...],
        Field(json_schema_extra={"minItems": 2, "maxItems": 3}),
        entries("a length, or null, for each axis of the grid is needed", 2, 3),
    ]
    """The lengths of the sides; null: from one end of the box to the other."""

    def check(self, grid: Grid) -> None:
        super().check(grid)
        if len(self.size) != len(self.center):
            raise UserError("size: has to have as many entries as center")
        if all(side is None for side in self.size):
            raise UserError("size: null along every axis is the whole box; leave the mask out")
        _fits(grid, "size", [0.0 if side is None else side for side in self.size])

    def reach(self, grid: Grid, time: Number) -> list[tuple[int, Any]]:
        sides = {i: side for i, side in enumerate(self.size) if side is not None}
        turned = self.plane(grid)
        reach: list[tuple[int, Any]] = [
            (i, side / 2) for i, side in sides.items() if i not in turned
        ]
        if all(i in sides for i in turned):  # in the plane in which it turns half the diagonal
            half = sum(sides[i] ** 2 for i in turned) ** 0.5 / 2
            reach += [(i, half) for i in turned]
        return reach

    def distance(self, grid: Grid, points: Coordinates, time: Number) -> jax.Array:
        r = self.relative(grid, points, time)
        a, b = self.plane(grid)
        angle = moment_value(self.angle, time)
        cos = jnp.cos(angle).astype(r[a].dtype)
        sin = jnp.sin(angle).astype(r[a].dtype)
        r[a], r[b] = cos * r[a] + sin * r[b], cos * r[b] - sin * r[a]
        sides = zip(r, self.size, strict=True)
        beyond = [abs(d) - side / 2 for d, side in sides if side is not None]
        outside = root(sum(jnp.maximum(q, 0) ** 2 for q in beyond))  # type: ignore[arg-type]
        return outside + jnp.minimum(reduce(jnp.maximum, beyond), 0)


class HalfSpaceSettings(ShapeSettings):
    """The part of the box beyond a plane across an axis. Its other surface is the end of the box."""

    kind: Literal["half_space"] = "half_space"
    axis: Literal["x", "y", "z"]
    """The axis across which the surface lies."""
    above: Formula | None = None
    """The place of the surface along the axis, a number or a formula of t; the shape reaches from
    there to the upper end of the box."""
    below: Formula | None = None
    """The place of the surface; the shape reaches from the lower end of the box to there."""

    @model_validator(mode="after")
    def _one_surface(self) -> "HalfSpaceSettings":
        if (self.above is None) == (self.below is None):
            raise wrong("above", "give one of above and below")
        return self

    def check(self, grid: Grid) -> None:
        check_axis(grid, "axis", self.axis)
        length = self._length(grid)
        try:
            check_moment(self._surface)
        except ValueError as error:
            raise UserError(f"{self._key}: {error}; a surface moves as a function of t") from None
        if isinstance(self._surface, float) and not 0 < self._surface < length:
            raise UserError(f"{self._key}: has to lie within the box, between 0 and {length:g}")

    @property
    def _key(self) -> str:
        return "below" if self.above is None else "above"

    @property
    def _surface(self) -> Any:
        return self.below if self.above is None else self.above

    def _length(self, grid: Grid) -> float:
        return grid.seen(grid.box)[AXES.index(self.axis)]

    def distance(self, grid: Grid, points: Coordinates, time: Number) -> jax.Array:
        length = self._length(grid)
        surface = moment_value(self._surface, time)
        low = jnp.float64(0) if self.above is None else surface
        high = surface if self.above is None else jnp.float64(length)
        x = points[AXES.index(self.axis)]
        r = x - ((low + high) / 2).astype(x.dtype)
        r = r - length * jnp.round(r / length)
        return abs(r) - ((high - low) / 2).astype(x.dtype)

    def velocity(self, grid: Grid, points: Coordinates, time: Number) -> list[jax.Array]:
        """The velocity of the surface, along the axis."""
        _, speed = jax.jvp(
            lambda t: moment_value(self._surface, t), (time,), (jnp.ones_like(time),)
        )
        zero = jnp.zeros((1, 1, 1), points[0].dtype)
        along = AXES.index(self.axis)
        return [zero + speed.astype(zero.dtype) if i == along else zero for i in range(len(points))]


class PythonMaskSettings(Settings):
    kind: Literal["python"] = "python"
    path: PythonFile
    """A Python file; the run copies the file and executes the copy."""
    function: str
    """function(x, y, z, t, **parameters) gives the mask, from 0 to 1; in two dimensions
    function(x, y, t, ...)."""
    parameters: Parameters
    """Keyword arguments of the function."""


class ArrayMaskSettings(Settings):
    kind: Literal["array"] = "array"
    path: InputPath
    """A file .npy, or an HDF5 file, with the mask (x, y, z), from 0 to 1, on the run's grid."""
    dataset: str | None = None
    """The data set of the HDF5 file."""


Solid = Annotated[
    SphereSettings | CylinderSettings | BoxSettings | HalfSpaceSettings,
    Field(discriminator="kind"),
]


class UnionSettings(Settings):
    """All points inside any of several shapes: 1 - chi is the product of those of the parts."""

    kind: Literal["union"] = "union"
    parts: Annotated[tuple[Solid, ...], Field(min_length=1, max_length=1000)]
    """The shapes."""

    def check(self, grid: Grid) -> None:
        for i, part in enumerate(self.parts):
            with prefixed(f"parts.{i}"):
                part.check(grid)

    def inside(self, grid: Grid, points: Coordinates, time: Number) -> jax.Array:
        """Whether points lie inside one of the parts."""
        return reduce(or_, (part.inside(grid, points, time) for part in self.parts))

    def near(self, grid: Grid, points: Coordinates, time: Number) -> Truth | None:
        """Whether one of the parts may be above 0 at one of the points; None if that is not
        asked."""
        parts = [part.near(grid, points, time) for part in self.parts]
        known = [part for part in parts if part is not None]
        return reduce(or_, known) if len(known) == len(parts) else None

    def chi(self, grid: Grid, points: Coordinates, time: Number) -> OverPoints:
        return 1 - reduce(mul, (1 - part.chi(grid, points, time) for part in self.parts))

    def middle(self, grid: Grid, time: Number) -> list[jax.Array]:
        """The middle of the first part."""
        return self.parts[0].middle(grid, time)


MaskSettings = Annotated[
    SphereSettings
    | CylinderSettings
    | BoxSettings
    | HalfSpaceSettings
    | UnionSettings
    | PythonMaskSettings
    | ArrayMaskSettings,
    Field(discriminator="kind"),
]
