"""The schedule of processors in native code: one call for every stage, from the messages of one
exchange to the next.

Values, modes and messages have x contiguous: neighbouring lines along x fill a processor's vector
lanes, so that y and z are transformed in place and only x is transposed, inside a tile. In a plane,
where x has one point, y is contiguous, z is transformed in place and y transposed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import lax

from simulator.spectral.grid import AXES, Grid
from simulator.spectral.native.stage import Form, Side, Transformed, blank, run
from simulator.spectral.schedules.evaluation import Evaluation
from simulator.spectral.schedules.pointwise import MissingOperation, operations_of
from simulator.spectral.schedules.processors import Processors
from simulator.spectral.schedules.schedule import Arrays, Points, Pointwise, Ranges, Reductions
from simulator.spectral.schedules.xla import Planes
from simulator.spectral.stages import Decomposition

LANES = 32
"""Two tiles of lines in single precision."""
ORDER = "zyx"
"""Axis order of modes."""


def is_flat(grid: Grid) -> bool:
    """Whether lines along x have only one point, too few to fill a vector's lanes."""
    return grid.shape[0] == 1


@dataclass(frozen=True, eq=False)
class Native(Processors):
    """`Processors`, with a call of the native kernels for each stage.

    `evaluate` visits values in blocks of planes; all other stages, and whole transforms, are one
    call each."""

    cache: ClassVar[int] = 1 << 20
    shared: ClassVar[int] = 2 << 20
    """Bytes of a block for each of several threads: in larger blocks the threads wait for one
    another less often."""

    @classmethod
    def order_of(cls, plan: Decomposition) -> str:
        return ORDER

    @property
    def values_order(self) -> str:
        """Memory order of a block of values. In a box, blocks are planes, visited along the first
        axis of the plan's own order."""
        first = self.plan.stages[0].block
        return ORDER if is_flat(self.layout.grid) else first + ORDER.replace(first, "")

    def of_fields(self) -> Self:
        return replace(self, linear=True, exchange="full")

    @property
    def reduced_axes(self) -> tuple[int, ...]:
        """The axes of a plane: the sum over planes then has one order, whatever the number of
        planes in a block, and so whatever the number of threads."""
        block = self.values_order.index(self.plan.stages[0].block)
        return tuple(axis for axis in range(3) if axis != block)

    def planes_in(self, memory: int, stage: int, components: int) -> int:
        """The threads share the planes of a block."""
        memory = memory if self.threads == 1 else self.shared * self.threads
        planes = super().planes_in(memory, stage, components)
        return max(LANES, planes // LANES * LANES) if is_flat(self.layout.grid) else planes

    # ---- stages

    def form(
        self,
        i: int,
        source: Side,
        target: Side,
        *,
        forward: bool,
        planes: int | None = None,
        start_in: int = 0,
    ) -> Form:
        """A call of the kernels for stage `i`, for all its planes or a block of `planes`."""
        stage = self.plan.stages[i]
        first = i == 0
        grid = self.layout.grid
        block = stage.block
        transformed = stage.axes
        if is_flat(grid) and stage.axes != "x":
            # The only plane is (y, z): the axis across the planes of other grids is an axis of its
            # lines.
            block = "x"
            transformed = transformed.replace("x", "")
        # A real transform starts (or ends) with z; of complex axes, x, which is truncated, goes
        # first.
        leading = "z" if first and "z" in stage.axes else "x"
        ordered = sorted(transformed, key=lambda axis: axis != leading)
        if not forward:
            ordered.reverse()

        def extent(axis: str) -> int:
            return planes if planes and axis == stage.block else self.local(i, axis)

        lines = [Transformed(axis, self.points(axis), self.modes(axis)) for axis in ordered]
        others = [axis for axis in stage.order if axis != block and axis not in transformed]
        lines += [Transformed(axis, extent(axis), extent(axis)) for axis in others]
        real = first and self.real
        return Form(
            lines=(lines[0], lines[1]),
            axes=len(transformed),
            to_points=not forward,
            sign=-1 if forward else 1,
            real=real,
            doubled=real and not forward,
            block=block,
            planes=extent(block),
            source=source,
            target=target,
            start_axis=stage.block,
            start_in=start_in,
            scale=self.scale(forward=forward) if first else 1.0,
            threads=self.threads,
            dtype=self.dtype.name,
        )

    def side_of_messages(self, i: int, stage: int) -> Side:
        """The messages of exchange `i` as stage `i` (before it) or `i + 1` (after it) sees them."""
        exchange = self.plan.exchanges[i]
        before = stage == i
        parts = self.parts(exchange.over)
        split = exchange.cut if before else exchange.join

        def extent(axis: str) -> int:
            if axis != split:
                return self.extent_at(stage, axis, modes=before)
            return -(-(self.modes(axis) if before else self.points(axis)) // parts)

        a, b, c = map(extent, exchange.order)
        return Side(exchange.order, (a, b, c), messages=parts, split=split)

    def extent_at(self, stage: int, axis: str, *, modes: bool) -> int:
        """A device's extent of an axis on the side of a stage that holds modes, or on the side that
        holds points."""
        if axis in self.plan.stages[stage].axes:
            return self.modes(axis) if modes else self.points(axis)
        return self.local(stage, axis)

    def side_of_modes(self) -> Side:
        order = self.layout.order
        a, b, c = (self.extent_at(self.last, axis, modes=True) for axis in order)
        return Side(order, (a, b, c))

    def side_of_values(self, order: str, planes: int | None = None) -> Side:
        block = self.plan.stages[0].block
        a, b, c = (planes if planes and axis == block else self.local(0, axis) for axis in order)
        return Side(order, (a, b, c), real=self.real)

    def stage_forward(self, i: int, messages: Arrays) -> Arrays:
        target = self.side_of_modes() if i == self.last else self.side_of_messages(i, i)
        return run(self.form(i, self.side_of_messages(i - 1, i), target, forward=True), messages)

    def stage_inverse(self, i: int, source: Arrays, components: int) -> Arrays:
        side = self.side_of_modes() if i == self.last else self.side_of_messages(i, i)
        return run(self.form(i, side, self.side_of_messages(i - 1, i), forward=False), source)

    # ---- transforms

    def forward(self, array: jax.Array) -> jax.Array:
        source, target = self.side_of_values(AXES), self.side_of_messages(0, 0)
        return self.outer_forward(run(self.form(0, source, target, forward=True), (array,)))[0]

    def inverse(self, array: jax.Array) -> jax.Array:
        return self._inverse_in(AXES, array)

    def inverse_kept(self, array: jax.Array) -> jax.Array:
        """Transforms one device's modes to its values in the order of blocks (component,
        *values_order)."""
        return self._inverse_in(self.values_order, array)

    def _inverse_in(self, order: str, array: jax.Array) -> jax.Array:
        messages = self.outer_inverse((array,))
        source, target = self.side_of_messages(0, 0), self.side_of_values(order)
        return run(self.form(0, source, target, forward=False), messages)[0]

    def evaluate(
        self,
        array: jax.Array,
        pointwise: Pointwise,
        components: int,
        reverse: bool = False,
        keep: Ranges = (),
    ) -> tuple[Arrays, Reductions, Arrays]:
        """The kernels write the transformed products directly into the messages."""
        messages = self.outer_inverse((array,))
        blocks = PointBlocks(self, components)
        evaluation = None if keep or reverse else self.evaluation(pointwise, messages)
        if evaluation is not None:
            sent, reduced, values = blocks.visited_at_once(messages, pointwise, evaluation)
        elif reverse and not keep:
            sent, reduced, values = blocks.visited_for_reverse(messages, pointwise)
        else:
            sent, reduced, values = blocks.visited(messages, pointwise, keep)
        return (self.outer_forward(sent) if sent else ()), self.over_devices(reduced), values

    def evaluation(self, pointwise: Pointwise, messages: Arrays) -> Evaluation | None:
        """The call of the kernels that evaluates the function, if they have all its operations:
        not those that read coordinates, for example."""
        at_messages = self.side_of_messages(0, 0)
        inputs = messages[0].shape[at_messages.lead]
        if not self.real or self.block is not None:
            return None
        values = self.side_of_values(self.values_order)
        to_points = self.form(0, at_messages, values, forward=False)
        to_modes = self.form(0, values, at_messages, forward=True)
        try:
            operations = operations_of(pointwise, inputs, self.dtype, self.reduced_axes)
        except MissingOperation:
            return None
        # Padding counts in reductions, and so do lines that two tiles share.
        axes = AXES if self.layout.grid.shape[0] > 1 else "yz"
        padded = any(self.local(0, a) * self.physical.parts(a) > self.points(a) for a in axes)
        lanes = to_points.lines[0 if to_points.axes == 2 else 1].points
        tile = LANES * 4 // self.dtype.itemsize
        if operations.maxima + operations.sums and (padded or lanes < tile // 2):
            return None
        if operations.sums and lanes % tile:
            return None
        return Evaluation(to_points, to_modes, operations)


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


Visited = tuple[Arrays, Reductions, Arrays]
"""The products as messages (none without products), the reductions, and the values to keep."""


class PointBlocks:
    """Physical space, visited in blocks of planes."""

    def __init__(self, schedule: Native, components: int):
        self.schedule, order = schedule, schedule.values_order
        self.every = schedule.local(0, schedule.plan.stages[0].block)
        self.size = min(schedule.planes(0, components), self.every)
        self.axis = 1 + order.index(schedule.plan.stages[0].block)
        """The axis of values along which blocks follow each other."""
        messages = schedule.side_of_messages(0, 0)
        values = schedule.side_of_values(order, self.size)
        self.to_values = schedule.form(
            0, messages, values, forward=False, planes=self.size, start_in=1
        )
        self.to_messages = schedule.form(
            0, values, messages, forward=True, planes=self.size, start_in=2
        )

    def numbers(self) -> jax.Array:
        return jnp.arange(-(-self.every // self.size))

    def block(self, number: jax.Array | int) -> PointBlock:
        planes = Planes.of_block(number, self.size, self.every)
        shape = [1, 1, 1]
        shape[self.axis - 1] = self.size
        fresh = planes.fresh.reshape(shape)
        points = self.schedule.points_of(planes.start, self.size, self.schedule.values_order)
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

    def with_parameters(
        self, pointwise: Pointwise, messages: Arrays
    ) -> tuple[Callable[..., Any], Sequence[jax.Array]]:
        """The function of a block with the traced values that it closes over as parameters, by
        which JAX can differentiate it."""
        target, block = self.to_values.target, self.block(0)
        shape = target.array(messages[0].shape[1])
        values = jnp.zeros(shape, self.to_values.dtype_of(target))
        return jax.closure_convert(pointwise, values, block.points, block.counted)

    def visited_at_once(
        self, messages: Arrays, pointwise: Pointwise, evaluation: Evaluation
    ) -> Visited:
        """`visited` in one call of the kernels. The derivative is that of the visits of blocks."""
        function, parameters = self.with_parameters(pointwise, messages)

        @jax.custom_jvp
        def evaluated(
            messages: Arrays, parameters: Sequence[jax.Array], numbers: jax.Array
        ) -> Visited:
            return (*evaluation.run(messages, numbers), ())

        @evaluated.defjvp
        def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Visited, Visited]:
            def in_blocks(messages: Arrays, parameters: Sequence[jax.Array]) -> Visited:
                return self.visited(messages, lambda *at: function(*at, *parameters))

            return jax.jvp(in_blocks, primals[:2], tangents[:2])

        return evaluated(messages, parameters, evaluation.numbers)

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
        function, parameters = self.with_parameters(pointwise, messages)

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
