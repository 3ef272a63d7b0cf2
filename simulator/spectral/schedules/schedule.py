"""The base of schedules: one device's part of the arrays of a plan.

A stage processes one device's part of an array (component, *order); an exchange sends this part as
messages (message, component, *order). All methods are traced inside a `Program`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from simulator.spectral.grid import AXES
from simulator.spectral.layout import Layout, PhysicalLayout, padded
from simulator.spectral.stages import Decomposition, Kind


class Points(NamedTuple):
    """Coordinates of the points of a block, which broadcast against its values."""

    x: jax.Array
    y: jax.Array
    z: jax.Array


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
class DeviceSchedule:
    """One device's part of the transforms of a plan: the extents and the points of its arrays."""

    plan: Decomposition
    layout: Layout
    physical: PhysicalLayout
    dtype: np.dtype
    """Type of real values: float64 or float32."""
    block: int | None = None
    """Number of planes of physical space visited at a time; None: chosen by `planes`."""
    low: bool = False
    """Whether memory is saved at the cost of time (`run.memory: low`)."""
    exchange: Kind = "full"
    """The number format of messages."""
    threads: int = 1
    """The threads of the device."""
    linear: bool = False
    """Whether JAX transposes the transform, so that no value may depend on another one's values
    other than linearly: not for the order of exchanges, and not to fill memory."""
    factor: float = 1.0
    """Modes are coefficients, which are means, times this factor."""

    low_name: ClassVar[str]
    """How `low` saves memory, for the names of programs."""

    @classmethod
    def order_of(cls, plan: Decomposition) -> str:
        """The memory order of modes."""
        return plan.order

    @property
    def values_order(self) -> str | None:
        """The memory order of values that `evaluate` keeps; None if it cannot keep values."""
        return None

    @property
    def reduced_axes(self) -> tuple[int, ...] | None:
        """The axes of a block along which `pointwise` reduces values; None: all axes."""
        return None

    def of_fields(self) -> Self:
        """The schedule of `forward` and `inverse`, which are linear and send full numbers."""
        return replace(self, linear=True, exchange="full")

    # ---- extents

    @property
    def real(self) -> bool:
        return self.layout.half

    @property
    def last(self) -> int:
        return len(self.plan.stages) - 1

    def points(self, axis: str) -> int:
        return self.layout.grid.shape[AXES.index(axis)]

    def modes(self, axis: str) -> int:
        return len(self.layout.mode_numbers[axis])

    def local(self, stage: int, axis: str) -> int:
        """Extent of an axis on one device in the input of a stage: points, or modes once the axis
        is transformed."""
        stages = self.plan.stages
        transformed = any(axis in earlier.axes for earlier in stages[:stage])
        extent = self.modes(axis) if transformed else self.points(axis)
        over = stages[stage].sharded.get(axis)
        return extent if over is None else padded(extent, self.parts(over)) // self.parts(over)

    def parts(self, mesh_axis: str) -> int:
        """The number of devices along an axis of the mesh."""
        return self.layout.mesh.shape[mesh_axis]

    def planes_in(self, memory: int, stage: int, components: int) -> int:
        """The number of planes of a stage that fit in `memory` bytes, at least one."""
        _, second, third = self.plan.stages[stage].order
        real = stage == 0 and self.real
        itemsize = self.dtype.itemsize if real else 2 * self.dtype.itemsize
        plane = components * itemsize * self.local(stage, second) * self.local(stage, third)
        return max(1, memory // plane)

    def scale(self, *, forward: bool) -> float:
        """The factor of a sum over points or over modes, which the first stage applies for all
        axes."""
        return self.factor / self.layout.grid.points if forward else 1.0 / self.factor

    # ---- points of a block

    def points_of(self, start: jax.Array, block: int, order: str) -> tuple[Points, jax.Array]:
        """Coordinates of a block with axes in this order, and a mask of its grid points without
        padding."""
        grid = self.layout.grid
        blocked = self.plan.stages[0].block
        coordinates: dict[str, jax.Array] = {}
        inside = jnp.ones((1, 1, 1), bool)
        for axis, spacing, extent in zip(AXES, grid.spacing, grid.shape, strict=True):
            local = self.local(0, axis)
            parts = self.physical.parts(axis)
            index = start + jnp.arange(block) if axis == blocked else jnp.arange(local)
            if parts > 1:
                index = index + local * lax.axis_index(self.physical.sharded[axis])
            shape = [-1 if a == axis else 1 for a in order]
            coordinates[axis] = (index * spacing).astype(self.dtype).reshape(shape)
            if local * parts > extent:
                inside = inside & (index < extent).reshape(shape)
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

    def over_devices(self, reduced: Reductions) -> Reductions:
        """The reductions over the points of all devices."""
        axes = tuple(dict.fromkeys(self.physical.sharded.values()))
        if self.layout.devices == 1 or not axes:
            return reduced
        maxima = {k: lax.pmax(lax.stop_gradient(v), axes) for k, v in reduced.maxima.items()}
        return Reductions(maxima, {k: lax.psum(v, axes) for k, v in reduced.sums.items()})
