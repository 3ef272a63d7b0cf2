"""Orders of visits of XLA's stages: an array's planes in blocks, which stay in a core's cache, or
whole."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.layout import Layout, with_layout_constraint

from simulator.spectral.schedules.device_part import Arrays, DevicePart, Reductions


class Planes(NamedTuple):
    """A block of planes."""

    start: jax.Array
    """The first plane."""
    size: int
    fresh: jax.Array
    """True at the planes that no earlier block holds: the last block may overlap the previous
    one."""

    @classmethod
    def of_block(cls, number: jax.Array | int, size: int, every: int) -> Self:
        """Block `number` of `every` planes."""
        start = jnp.minimum(number * size, every - size).astype(jnp.int32)
        return cls(start, size, start + jnp.arange(size) >= number * size)

    def of(self, array: jax.Array, axis: int) -> jax.Array:
        """These planes of an array."""
        return lax.dynamic_slice_in_dim(array, self.start, self.size, axis=axis)


Visit = Callable[[Planes, Arrays], tuple[Arrays, Reductions]]
"""A function from planes of a source to planes of results, and reductions."""


@dataclass(frozen=True, eq=False)
class Visits(ABC):
    """The number of planes that are visited at a time, and the loop over the blocks."""

    part: DevicePart

    @abstractmethod
    def planes(self, stage: int, components: int, *, reducing: bool) -> int:
        """The number of planes that a stage visits at a time, with `components` values at each
        point, which are only reduced if `reducing`."""

    def every(
        self,
        stage: int,
        components: int,
        visit: Visit,
        axis: int,
        source: Arrays,
        *,
        reducing: bool = False,
    ) -> tuple[Arrays, Reductions]:
        """Visits all planes of a stage; joins the results along `axis` and the reductions."""
        every = self.part.planes(stage)
        size = min(self.planes(stage, components, reducing=reducing), every)
        if size == every:
            return visit(Planes(jnp.int32(0), size, jnp.ones(size, bool)), source)
        return self.in_blocks(visit, size, every, axis, source)

    def in_blocks(
        self, visit: Visit, size: int, every: int, axis: int, source: Arrays
    ) -> tuple[Arrays, Reductions]:
        """The results of a loop over blocks of `size` planes."""
        arrays, reduced = shapes_of(visit, size, source)
        filled = fillable(arrays, axis, every, source, zero=self.part.linear)
        return fill(lambda planes, _: visit(planes, source), filled, reduced, axis, every, size)


class InCache(Visits):
    """As many planes at a time as fit in the cache of a core of a processor."""

    cache: ClassVar[int] = 4 << 20
    """Bytes of a block."""

    def planes(self, stage: int, components: int, *, reducing: bool) -> int:
        part = self.part
        stages = part.plan.stages
        block = part.options.block
        if stages[stage].block in stages[stage].axes:
            return part.planes(stage)
        if stage == 0 and block is not None:
            return block
        if block is not None and block >= part.planes(0):
            return part.planes(stage)
        return part.planes_in(self.cache, stage, components)


FEW = 4
"""Components, of values and products together, for which blocks save no memory."""
MOST_BLOCKS = 64
"""Largest number of blocks: more would not save memory, and each starts its kernels anew."""


class AtOnce(Visits):
    """All planes, because on GPUs copies into and out of a loop cost memory traffic; with
    `sequential` physical space in blocks, which take least memory."""

    memory: ClassVar[int] = 256 << 20
    """Bytes of a block, at least."""

    def planes(self, stage: int, components: int, *, reducing: bool) -> int:
        part = self.part
        every = part.planes(stage)
        if stage > 0:
            return every
        if part.options.block is not None:
            return part.options.block
        if reducing or (part.options.sequential and components > FEW):
            return max(part.planes_in(self.memory, stage, components), every // MOST_BLOCKS)
        return every

    def in_blocks(
        self, visit: Visit, size: int, every: int, axis: int, source: Arrays
    ) -> tuple[Arrays, Reductions]:
        """The results of a block replace the messages that it has read, one by one, if these are as
        large; then no block overlaps another. Other memory is not initialized, because that costs
        memory traffic."""
        if self.part.linear:
            return super().in_blocks(visit, size, every, axis, source)
        arrays, reduced = shapes_of(visit, size, source)
        filled = tuple(lax.empty(longer(part, axis, every), part.dtype) for part in arrays)
        pairs = zip(filled, source, strict=False)
        shared = sum((new.shape, new.dtype) == (old.shape, old.dtype) for new, old in pairs)
        if shared:
            size = next(n for n in range(size, 0, -1) if every % n == 0)

        def of_block(planes: Planes, filled: Arrays) -> tuple[Arrays, Reductions]:
            block, reduced = visit(planes, (*filled[:shared], *source[shared:]))
            return tuple(map(in_order, block)), reduced

        filled = (*source[:shared], *filled[shared:])
        return fill(of_block, filled, reduced, axis, every, size)


def in_order(array: jax.Array) -> jax.Array:
    """The array, stored in the order of its axes."""
    return with_layout_constraint(array, Layout(tuple(range(array.ndim))))


def longer(like: jax.Array, axis: int, extent: int) -> tuple[int, ...]:
    """The shape of an array with another extent of an axis."""
    return (*like.shape[:axis], extent, *like.shape[axis + 1 :])


def fillable(like: Arrays, axis: int, extent: int, source: Arrays, *, zero: bool) -> Arrays:
    """Arrays like others, with `extent` entries along `axis`, for a loop to fill that reads
    `source`; `zero`, or with other values.

    XLA merges equal constants into one array and copies that array for every loop that fills it;
    each array therefore gets another one of the values of `source`."""
    arrays: list[jax.Array] = []
    for number, part in enumerate(like):
        shape = longer(part, axis, extent)
        if zero:
            arrays.append(jnp.zeros(shape, part.dtype))
            continue
        value = lax.stop_gradient(source[0]).reshape(-1)[number % source[0].size]
        if not jnp.issubdtype(part.dtype, jnp.complexfloating):
            value = jnp.real(value)
        arrays.append(jnp.broadcast_to(value.astype(part.dtype), shape))
    return tuple(arrays)


def shapes_of(visit: Visit, size: int, source: Arrays) -> tuple[Arrays, Reductions]:
    """The shapes and types of what a visit to `size` planes gives."""
    start, fresh = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((size,), bool)
    return jax.eval_shape(
        lambda start, fresh: visit(Planes(start, size, fresh), source), start, fresh
    )


def fill(
    visit: Visit, filled: Arrays, reduced: Reductions, axis: int, every: int, size: int
) -> tuple[Arrays, Reductions]:
    """The arrays `filled` with the results of `visit(planes, filled)` for all blocks of `size`
    planes, and the reductions."""

    def body(
        carry: tuple[Arrays, Reductions], number: jax.Array
    ) -> tuple[tuple[Arrays, Reductions], None]:
        filled, reduced = carry
        planes = Planes.of_block(number, size, every)
        block, of_block = visit(planes, filled)

        def put(array: jax.Array, part: jax.Array) -> jax.Array:
            return lax.dynamic_update_slice_in_dim(array, part, planes.start, axis=axis)

        return (jax.tree.map(put, filled, block), reduced.joined(of_block)), None

    return lax.scan(body, (filled, reduced.start()), jnp.arange(-(-every // size)))[0]
