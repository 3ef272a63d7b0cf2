"""Blocks of physical space between native stages, visited by functions that XLA compiles."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from simulator.spectral.native.stage import Form, blank, run
from simulator.spectral.points import Points
from simulator.spectral.schedules.device_part import (
    Arrays,
    DevicePart,
    Pointwise,
    Ranges,
    Reductions,
    Visited,
)
from simulator.spectral.schedules.visits import Planes


class PointBlock(NamedTuple):
    """Planes of physical space."""

    start: jax.Array
    fresh: jax.Array
    """True at the planes that no earlier block holds."""
    points: Points
    inside: jax.Array
    """False in padding."""

    @property
    def counted(self) -> jax.Array:
        """True at the grid points that no earlier block holds."""
        return self.inside & self.fresh


@dataclass(frozen=True, eq=False)
class NativeBlocks:
    """Physical space, visited in blocks of `size` planes of values in the memory order `order`."""

    part: DevicePart
    order: str
    size: int
    to_values: Form
    to_messages: Form

    @property
    def every(self) -> int:
        """The number of planes."""
        return self.part.planes(0)

    @property
    def axis(self) -> int:
        """The axis of values along which blocks follow each other."""
        return 1 + self.order.index(self.part.block)

    def numbers(self) -> jax.Array:
        return jnp.arange(-(-self.every // self.size))

    def block(self, number: jax.Array | int) -> PointBlock:
        planes = Planes.of_block(number, self.size, self.every)
        shape = [1, 1, 1]
        shape[self.axis - 1] = self.size
        fresh = planes.fresh.reshape(shape)
        points = self.part.points_of(planes.start, self.size, self.order)
        return PointBlock(planes.start, fresh, *points)

    def values(self, messages: Arrays, block: PointBlock) -> jax.Array:
        """The values at the points of a block."""
        return run(self.to_values, messages, block.start)[0]

    def visited(self, messages: Arrays, pointwise: Pointwise, keep: Ranges = ()) -> Visited:
        """Visits all blocks, and keeps the values of the ranges of components in `keep`."""
        numbers = self.numbers()

        def at_points(
            messages: Arrays, number: jax.Array
        ) -> tuple[jax.Array | None, Reductions, Arrays, jax.Array]:
            block = self.block(number)
            values = self.values(messages, block)
            products, reduced = pointwise(values, block.points, block.counted)
            parts = tuple(values[first : first + count] for first, count in keep)
            return like(products, values), reduced, parts, block.start

        products, by_plane, parts, _ = jax.eval_shape(at_points, messages, jnp.int32(0))
        count = 0 if products is None else products.shape[0]

        @jax.checkpoint
        def visit(
            into: Arrays, number: jax.Array, messages: Arrays
        ) -> tuple[Arrays, Reductions, Arrays, jax.Array]:
            products, reduced, parts, start = at_points(messages, number)
            if products is not None:
                into = run(self.to_messages, (products,), start, into)
            return into, reduced, parts, start

        def body(carry: Visited, number: jax.Array) -> tuple[Visited, None]:
            into, reduced, kept = carry
            into, of_block, parts, start = visit(into, number, messages)
            reduced = self.joined(reduced, of_block, start)
            pairs = zip(kept, parts, strict=True)
            kept = tuple(
                lax.dynamic_update_slice_in_dim(array, part, start, axis=self.axis)
                for array, part in pairs
            )
            return (into, reduced, kept), None

        empty = blanks(self.to_messages, count) if count else ()
        kept: Arrays = ()
        for number, part in enumerate(parts, len(empty)):
            shape = (*part.shape[: self.axis], self.every, *part.shape[self.axis + 1 :])
            kept += (blank(shape, part.dtype, number),)
        (into, reduced, kept), _ = lax.scan(body, (empty, self.unvisited(by_plane), kept), numbers)
        return into, reduced.over_planes(), kept

    def unvisited(self, of_block: Reductions) -> Reductions:
        """The identity element of the reductions of every plane."""

        def of_every_plane(part: jax.Array) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((self.every,), part.dtype)

        return jax.tree.map(of_every_plane, of_block).start()

    def joined(self, reduced: Reductions, of_block: Reductions, start: jax.Array) -> Reductions:
        """The reductions of every plane, with those of a block's planes from `start` on."""

        def planes(array: jax.Array) -> jax.Array:
            return lax.dynamic_slice_in_dim(array, start, self.size)

        def put(array: jax.Array, part: jax.Array) -> jax.Array:
            return lax.dynamic_update_slice_in_dim(array, part, start, axis=0)

        return jax.tree.map(put, reduced, jax.tree.map(planes, reduced).joined(of_block))

    def visited_for_reverse(self, messages: Arrays, pointwise: Pointwise) -> Visited:
        """`visited`, to be differentiated in reverse mode only: the reverse visits the blocks as
        the function does. JAX's own transpose of the loop would add arrays of all planes for every
        block."""
        numbers = self.numbers()
        block = self.to_values.target.array(messages[0].shape[1])
        function, parameters = self.part.closed(pointwise, block, self.order)

        @jax.custom_vjp
        def visited(messages: Arrays, parameters: Sequence[jax.Array]) -> Visited:
            return self.visited(messages, lambda *at: function(*at, *parameters))

        def reverse(
            arguments: tuple[Arrays, Sequence[jax.Array]], cotangents: Visited
        ) -> tuple[Arrays, list[jax.Array]]:
            return self._reversed(function, numbers, *arguments, cotangents)

        visited.defvjp(lambda *arguments: (visited(*arguments), arguments), reverse)
        return visited(messages, parameters)

    def _reversed(
        self,
        function: Callable[..., tuple[jax.Array | None, Reductions]],
        numbers: jax.Array,
        messages: Arrays,
        parameters: Sequence[jax.Array],
        cotangents: Visited,
    ) -> tuple[Arrays, list[jax.Array]]:
        """The cotangents of the messages and of the parameters of `function`, a pointwise
        function."""
        sent, reduced, _ = cotangents
        from_messages = self.to_messages.transposed()
        from_values = self.to_values.transposed()

        def visit(
            carry: tuple[Arrays, list[jax.Array]], number: jax.Array
        ) -> tuple[tuple[Arrays, list[jax.Array]], None]:
            into, totals = carry
            block = self.block(number)
            values = self.values(messages, block)

            def at_points(
                values: jax.Array, *parameters: jax.Array
            ) -> tuple[jax.Array | None, Reductions]:
                products, reduced = function(values, block.points, block.counted, *parameters)
                return like(products, values), reduced

            back = jax.vjp(at_points, values, *parameters)[1]
            products = None
            if sent:
                (products,) = run(from_messages, sent, block.start)
                products = jnp.where(block.fresh, products, 0)
            of_planes = jax.tree.map(lambda total: jnp.broadcast_to(total, (self.size,)), reduced)
            of_values, *of_parameters = back((products, of_planes))
            into = run(from_values, (of_values,), block.start, into)
            return (into, jax.tree.map(jnp.add, totals, of_parameters)), None

        # From the last block to the first: planes that two blocks share are written last by the
        # first of the two.
        empty = blanks(from_values, messages[0].shape[1])
        zeros = [jnp.zeros_like(parameter) for parameter in parameters]
        return lax.scan(visit, (empty, zeros), numbers, reverse=True)[0]


def like(products: jax.Array | None, values: jax.Array) -> jax.Array | None:
    """Products of the type of values."""
    return None if products is None else products.astype(values.dtype)


def blanks(form: Form, components: int) -> Arrays:
    """Arrays for a stage to fill."""
    side = form.target
    shape, dtype = side.array(components), form.dtype_of(side)
    return tuple(blank(shape, dtype, number) for number in range(side.messages))
