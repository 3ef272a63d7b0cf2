"""One device's part of the arrays of a plan: their extents, the points that they hold, and
reductions over these."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from simulator.spectral.candidates import TransformOptions
from simulator.spectral.grid import AXES
from simulator.spectral.layout import Layout, PhysicalLayout
from simulator.spectral.plans import Decomposition
from simulator.spectral.points import Points


class Reductions(NamedTuple):
    """Maxima and sums over grid points, by name."""

    maxima: dict[str, jax.Array]
    sums: dict[str, jax.Array]

    def start(self) -> "Reductions":
        """The identity element of reductions of these shapes."""
        maxima = {k: jnp.full(v.shape, -jnp.inf, v.dtype) for k, v in self.maxima.items()}
        sums = {k: jnp.zeros(v.shape, v.dtype) for k, v in self.sums.items()}
        return Reductions(maxima, sums)

    def joined(self, other: "Reductions") -> "Reductions":
        """The reductions over the points of both."""
        maxima = jax.tree.map(jnp.maximum, self.maxima, other.maxima)
        return Reductions(maxima, jax.tree.map(jnp.add, self.sums, other.sums))

    def over_planes(self) -> "Reductions":
        """The reductions over all planes, from those of every plane."""
        # Otherwise XLA joins the sums over planes with those in planes if there is only one block.
        maxima, sums = lax.optimization_barrier((self.maxima, self.sums))
        maxima = {k: v.max() for k, v in maxima.items()}
        return Reductions(maxima, {k: v.sum() for k, v in sums.items()})


NOTHING = Reductions({}, {})

Pointwise = Callable[[jax.Array, Points, jax.Array], tuple["jax.Array | None", Reductions]]
"""A function from values (component, *block), coordinates and a mask of the grid points that no
earlier block holds to products and reductions."""
Arrays = tuple[jax.Array, ...]
"""Messages (message, component, *order) of an exchange: on processors an array for each message, on
GPUs one for each component. Or parts (component, *order) of an array, numbered consecutively."""
Ranges = Sequence[tuple[int, int]]
"""Ranges (first, number) of components."""
Visited = tuple[Arrays, Reductions, Arrays]
"""The products as messages (none without products), the reductions, and the values to keep."""


def reduce_values(
    maxima: dict[str, jax.Array],
    sums: dict[str, jax.Array],
    inside: jax.Array,
    axes: tuple[int, ...] | None = None,
) -> Reductions:
    """Reductions of a block's values over the points where `inside`, along all axes or `axes`."""
    maxima = {k: lax.stop_gradient(v) for k, v in maxima.items()}
    maxima = {k: jnp.where(inside, v, -jnp.inf).max(axes) for k, v in maxima.items()}
    return Reductions(maxima, {k: jnp.where(inside, v, 0).sum(axes) for k, v in sums.items()})


@dataclass(frozen=True, eq=False)
class DevicePart:
    """One device's part of the arrays of a plan."""

    plan: Decomposition
    layout: Layout
    physical: PhysicalLayout
    dtype: np.dtype
    """Type of real values: float64 or float32."""
    options: TransformOptions
    linear: bool = False
    """Whether JAX transposes the transform, so that no value may depend on another one's values
    other than linearly: not for the order of exchanges, and not to fill memory."""
    factor: float = 1.0
    """Modes are coefficients, which are means, times this factor."""

    def of_fields(self, plan: Decomposition, factor: float) -> Self:
        """The part of `forward` and `inverse`, which are linear and send full numbers."""
        options = replace(self.options, exchange="full")
        return replace(self, plan=plan, options=options, linear=True, factor=factor)

    # ---- extents

    @property
    def real(self) -> bool:
        return self.layout.half

    @cached_property
    def last(self) -> int:
        """The number of the last stage."""
        return len(self.plan.stages) - 1

    @cached_property
    def block(self) -> str:
        """The axis of values along which blocks follow each other."""
        return self.plan.stages[0].block

    @cached_property
    def points(self) -> dict[str, int]:
        """The points of the grid along each axis."""
        return dict(zip(AXES, self.layout.grid.shape, strict=True))

    @cached_property
    def padded(self) -> str:
        """The axes along which arrays of values end with padding."""
        return "".join(
            a for a, n in zip(AXES, self.physical.shape, strict=True) if n > self.points[a]
        )

    @cached_property
    def modes(self) -> dict[str, int]:
        """The modes along each axis."""
        return {axis: len(numbers) for axis, numbers in self.layout.mode_numbers.items()}

    @cached_property
    def extents(self) -> tuple[dict[str, int], ...]:
        """The extents of each stage's input on one device, by axis: points, or modes once the axis
        is transformed."""
        extents: list[dict[str, int]] = []
        whole = self.points
        for stage in self.plan.stages:
            cut = {a: -(-whole[a] // self.parts(over)) for a, over in stage.sharded.items()}
            extents.append(whole | cut)
            whole = whole | {axis: self.modes[axis] for axis in stage.axes}
        return tuple(extents)

    def planes(self, stage: int) -> int:
        """The number of planes that a stage visits."""
        return self.extents[stage][self.plan.stages[stage].block]

    def parts(self, mesh_axis: str) -> int:
        """The number of devices along an axis of the mesh."""
        return self.layout.mesh.shape[mesh_axis]

    def planes_in(self, memory: int, stage: int, components: int) -> int:
        """The number of planes of a stage that fit in `memory` bytes, at least one."""
        _, second, third = self.plan.stages[stage].order
        real = stage == 0 and self.real
        itemsize = self.dtype.itemsize if real else 2 * self.dtype.itemsize
        extents = self.extents[stage]
        return max(1, memory // (components * itemsize * extents[second] * extents[third]))

    def scale(self, *, forward: bool) -> float:
        """The factor of a sum over points or over modes, which the first stage applies for all
        axes."""
        return self.factor / self.layout.grid.points if forward else 1.0 / self.factor

    # ---- points of a block

    def points_of(self, start: jax.Array, block: int, order: str) -> tuple[Points, jax.Array]:
        """Coordinates of a block with axes in this order, and a mask of its grid points without
        padding."""
        grid = self.layout.grid
        blocked = self.block
        coordinates: dict[str, jax.Array] = {}
        inside = jnp.ones((1, 1, 1), bool)
        for axis, spacing in zip(AXES, grid.spacing, strict=True):
            local = self.extents[0][axis]
            parts = self.physical.parts(axis)
            index = start + jnp.arange(block) if axis == blocked else jnp.arange(local)
            if parts > 1:
                index = index + local * lax.axis_index(self.physical.sharded[axis])
            shape = [-1 if a == axis else 1 for a in order]
            coordinates[axis] = (index * spacing).astype(self.dtype).reshape(shape)
            if axis in self.padded:
                inside = inside & (index < self.points[axis]).reshape(shape)
        return Points(**coordinates), inside

    def values_at(self, array: jax.Array, points: Points) -> jax.Array:
        """The values of this device's part of an array (..., x, y, z) at the points of a block,
        with axes in the block's order."""
        lead = array.ndim - 3
        order: dict[int, int] = {}  # the axis of the array at each axis of the block
        for i, (axis, spacing, x) in enumerate(
            zip(AXES, self.layout.grid.spacing, points, strict=True)
        ):
            if x.size < array.shape[lead + i]:
                start = jnp.round(x.reshape(-1)[0] / spacing).astype(jnp.int32)
                if self.physical.parts(axis) > 1:
                    over = self.physical.sharded[axis]
                    start = start - array.shape[lead + i] * lax.axis_index(over)
                array = lax.dynamic_slice_in_dim(array, start, x.size, axis=lead + i)
            if x.size > 1:
                order[int(np.argmax(x.shape))] = i
        free = [i for i in range(3) if i not in order.values()]  # axes of one point
        along = [order[a] if a in order else free.pop() for a in range(3)]
        return array.transpose(*range(lead), *(lead + i for i in along))

    def closed(
        self, pointwise: Pointwise, block: tuple[int, ...], order: str
    ) -> tuple[Callable[..., tuple[jax.Array | None, Reductions]], Sequence[jax.Array]]:
        """The function of values (component, *order) of the shape `block` with the traced values that
        it closes over as parameters, by which JAX can differentiate it."""
        extents = dict(zip(order, block[1:], strict=True))
        masked = self.padded + self.block

        def at_points() -> tuple[jax.Array, Points, jax.Array]:
            kind = self.dtype if self.real else np.result_type(self.dtype, np.complex64)
            values = jnp.zeros(block, kind)
            lines = [[n if a == axis else 1 for a, n in extents.items()] for axis in AXES]
            points = Points(*(jnp.zeros(line, self.dtype) for line in lines))
            mask = [n if axis in masked else 1 for axis, n in extents.items()]
            return values, points, jnp.ones(mask, bool)

        return jax.closure_convert(pointwise, *jax.eval_shape(at_points))

    def over_devices(self, reduced: Reductions) -> Reductions:
        """The reductions over the points of all devices."""
        axes = tuple(dict.fromkeys(self.physical.sharded.values()))
        if self.layout.devices == 1 or not axes:
            return reduced
        maxima = {k: lax.pmax(lax.stop_gradient(v), axes) for k, v in reduced.maxima.items()}
        return Reductions(maxima, {k: lax.psum(v, axes) for k, v in reduced.sums.items()})
