"""Local stages in native code, for processors: one call for every stage, from the messages of one
exchange to the next.

Values, modes and messages have x contiguous: neighbouring lines along x fill a processor's vector
lanes, so that y and z are transformed in place and only x is transposed, inside a tile. In a plane,
where x has one point, y is contiguous, z is transformed in place and y transposed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from simulator.spectral.grid import AXES
from simulator.spectral.native import EVALUATE, load
from simulator.spectral.native.stage import Form, Side, Transformed, run
from simulator.spectral.plans import Exchange, Stage
from simulator.spectral.schedules.device_part import Arrays, DevicePart, Reductions, Visited
from simulator.spectral.schedules.native_blocks import NativeBlocks
from simulator.spectral.schedules.pointwise import (
    MissingOperation,
    Operations,
    PointwiseCall,
    operations_of,
)

LANES = 32
"""Two tiles of lines in single precision."""
ORDER = "zyx"
"""Axis order of modes."""


@dataclass(frozen=True, eq=False)
class NativeStages:
    """The stages of a plan in native code. `products` visits values in blocks of planes; all other
    stages, and whole transforms, are one call each."""

    part: DevicePart

    def __post_init__(self) -> None:
        # What all traces use is computed once for the plan.
        _ = self.outward, self.inward, self.first_stages, self.reduced_axes, self.part.padded

    cache: ClassVar[int] = 1 << 20
    """Bytes of a block."""
    shared: ClassVar[int] = 2 << 20
    """Bytes of a block for each of several threads: in larger blocks the threads wait for one
    another less often."""

    @cached_property
    def flat(self) -> bool:
        """Whether lines along x have only one point, too few to fill a vector's lanes."""
        return self.part.points["x"] == 1

    @cached_property
    def values_order(self) -> str:
        """Memory order of a block of values. In a box, blocks are planes, visited along the first
        axis of the plan's own order."""
        first = self.part.block
        return ORDER if self.flat else first + ORDER.replace(first, "")

    @cached_property
    def block_axis(self) -> int:
        """The axis of a block of values along which blocks follow each other."""
        return self.values_order.index(self.part.block)

    @cached_property
    def reduced_axes(self) -> tuple[int, ...]:
        """The axes of a plane: the sum over planes then has one order, whatever the number of
        planes in a block, and so whatever the number of threads."""
        return tuple({0, 1, 2} - {self.block_axis})

    def planes(self, components: int) -> int:
        """The number of planes of a block, with `components` values at each point."""
        part = self.part
        every = part.extents[0][part.block]
        if part.block in part.plan.stages[0].axes:
            return every
        if part.options.block is not None:
            return min(part.options.block, every)
        threads = part.options.threads
        memory = self.cache if threads == 1 else self.shared * threads
        planes = part.planes_in(memory, 0, components)
        if self.flat:
            planes = max(LANES, planes // LANES * LANES)
        return min(planes, every)

    # ---- stages

    def forward(self, i: int, messages: Arrays) -> Arrays:
        """From the messages that stage `i` receives to the messages that it sends, or modes."""
        return run(self.outward[i - 1], messages)

    def inverse(self, i: int, messages: Arrays, components: int) -> Arrays:
        """From the messages that stage `i` receives, or modes, to the messages that it sends."""
        return run(self.inward[i - 1], messages)

    def from_values(self, values: jax.Array) -> Arrays:
        """The messages that the first stage sends, from values (component, x, y, z)."""
        return run(self.form(0, self.values(AXES), self.sent(0), forward=True), (values,))

    def to_values(self, messages: Arrays, components: int, order: str) -> jax.Array:
        """Values (component, *order) from the messages that the first stage receives."""
        return run(self.form(0, self.sent(0), self.values(order), forward=False), messages)[0]

    def products(self, messages: Arrays, call: PointwiseCall) -> Visited:
        """From messages to messages of products at points."""
        if call.keep:
            return self.blocks(call).visited(messages, call.function, call.keep)
        if call.reverse:
            return self.blocks(call).visited_for_reverse(messages, call.function)
        if call.operations is None:
            return self.blocks(call).visited(messages, call.function)
        return self._at_once(messages, call, call.operations)

    # ---- forms of the calls

    @cached_property
    def outward(self) -> tuple[Form, ...]:
        """The forms of all stages but the first, on the way to modes."""
        ends = [(self.received(i), self.sent(i)) for i in range(1, self.part.last + 1)]
        return tuple(self.form(i, *sides, forward=True) for i, sides in enumerate(ends, 1))

    @cached_property
    def inward(self) -> tuple[Form, ...]:
        """The forms of all stages but the first, on the way to points."""
        ends = [(self.sent(i), self.received(i)) for i in range(1, self.part.last + 1)]
        return tuple(self.form(i, *sides, forward=False) for i, sides in enumerate(ends, 1))

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
        part = self.part
        stage = part.plan.stages[i]
        extents = part.extents[i] | ({stage.block: planes} if planes else {})
        block, transformed = self._across(stage)
        # A real transform starts (or ends) with z; of complex axes, x, which is truncated, goes
        # first.
        leading = "z" if i == 0 and "z" in stage.axes else "x"
        ordered = sorted(transformed, key=lambda axis: axis != leading)
        if not forward:
            ordered.reverse()
        lines = [Transformed(axis, part.points[axis], part.modes[axis]) for axis in ordered]
        others = [axis for axis in stage.order if axis != block and axis not in transformed]
        lines += [Transformed(axis, extents[axis], extents[axis]) for axis in others]
        real = i == 0 and part.real
        return Form(
            lines=(lines[0], lines[1]),
            axes=len(transformed),
            to_points=not forward,
            sign=-1 if forward else 1,
            real=real,
            doubled=real and not forward,
            block=block,
            planes=extents[block],
            source=source,
            target=target,
            start_axis=stage.block,
            start_in=start_in,
            scale=part.scale(forward=forward) if i == 0 else 1.0,
            threads=part.options.threads,
            dtype=part.dtype.name,
        )

    def _across(self, stage: Stage) -> tuple[str, str]:
        """The axis across the planes of a stage, and the axes that it transforms."""
        if self.flat and stage.axes != "x":
            # The only plane is (y, z): the axis across the planes of other grids is an axis of its
            # lines.
            return "x", stage.axes.replace("x", "")
        return stage.block, stage.axes

    def sent(self, i: int) -> Side:
        """The messages that stage `i` sends on the way to modes; of the last stage, the modes."""
        part = self.part
        axes = part.plan.stages[i].axes
        extents = part.extents[i] | {axis: part.modes[axis] for axis in axes}
        if i == part.last:
            a, b, c = (extents[axis] for axis in part.layout.order)
            return Side(part.layout.order, (a, b, c))
        exchange = part.plan.exchanges[i]
        return self._messages(exchange, exchange.cut, extents, part.modes)

    def received(self, i: int) -> Side:
        """The messages that stage `i` receives on the way to modes."""
        part = self.part
        axes = part.plan.stages[i].axes
        extents = part.extents[i] | {axis: part.points[axis] for axis in axes}
        exchange = part.plan.exchanges[i - 1]
        return self._messages(exchange, exchange.join, extents, part.points)

    def _messages(
        self, exchange: Exchange, split: str, extents: dict[str, int], whole: dict[str, int]
    ) -> Side:
        parts = self.part.parts(exchange.over)
        extents = extents | {split: -(-whole[split] // parts)}
        a, b, c = (extents[axis] for axis in exchange.order)
        return Side(exchange.order, (a, b, c), messages=parts, split=split)

    def values(self, order: str, planes: int | None = None) -> Side:
        """Values at points, all planes or a block of `planes`."""
        block = self.part.block
        extents = self.part.extents[0] | ({block: planes} if planes else {})
        a, b, c = (extents[axis] for axis in order)
        return Side(order, (a, b, c), real=self.part.real)

    # ---- physical space

    def blocks(self, call: PointwiseCall) -> NativeBlocks:
        """Physical space in blocks of planes."""
        size = self.planes(call.inputs + call.outputs)
        messages = self.sent(0)
        values = self.values(self.values_order, size)
        return NativeBlocks(
            self.part,
            self.values_order,
            size,
            self.form(0, messages, values, forward=False, planes=size, start_in=1),
            self.form(0, values, messages, forward=True, planes=size, start_in=2),
        )

    @cached_property
    def first_stages(self) -> tuple[Form, Form]:
        """The forms of the first stage, to all values and back."""
        messages = self.sent(0)
        values = self.values(self.values_order)
        to_points = self.form(0, messages, values, forward=False)
        return to_points, self.form(0, values, messages, forward=True)

    def operations(
        self, traced: ClosedJaxpr, first: int, products: int, maxima: int
    ) -> Operations | None:
        """The operations of a function of values at a point, as in `operations_of`, if one call of
        the kernels can apply them at all points."""
        part = self.part
        if not part.real or part.options.block is not None:
            return None
        try:
            operations = operations_of(traced, first, products, maxima, part.dtype)
        except MissingOperation:
            return None
        # Padding counts in reductions, and so do lines that two tiles share.
        padded = part.padded.replace("x", "") if self.flat else part.padded
        to_points, _ = self.first_stages
        lanes = to_points.lines[0 if to_points.axes == 2 else 1].points
        tile = LANES * 4 // part.dtype.itemsize
        if operations.maxima + operations.sums and (padded or lanes < tile // 2):
            return None
        return None if operations.sums and lanes % tile else operations

    def _at_once(self, messages: Arrays, call: PointwiseCall, operations: Operations) -> Visited:
        """The products in one call of the kernels, which write the transformed products directly
        into the messages. The derivative is that of the visits of blocks."""
        values = self.values(self.values_order, self.planes(call.inputs + call.outputs))
        block = values.array(call.inputs)
        function, parameters = self.part.closed(call.function, block, values.order)
        numbers = operations.numbers_of(call.arguments, self.part.dtype)

        @jax.custom_jvp
        def evaluated(
            messages: Arrays, parameters: Sequence[jax.Array], numbers: jax.Array
        ) -> Visited:
            products, by_unit = self._evaluated(messages, operations, numbers)
            maxima = {name: by_unit[i] for i, name in enumerate(call.maxima)}
            sums = {name: by_unit[i] for i, name in enumerate(call.sums, len(maxima))}
            return products, Reductions(maxima, sums).over_planes(), ()

        @evaluated.defjvp
        def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Visited, Visited]:
            def in_blocks(messages: Arrays, parameters: Sequence[jax.Array]) -> Visited:
                return self.blocks(call).visited(messages, lambda *at: function(*at, *parameters))

            return jax.jvp(in_blocks, primals[:2], tangents[:2])

        return evaluated(messages, parameters, numbers)

    def _evaluated(
        self, messages: Arrays, operations: Operations, numbers: jax.Array
    ) -> tuple[Arrays, jax.Array]:
        """The products as messages, and the reductions of every unit (reduction, unit)."""
        to_points, to_modes = self.first_stages
        double = to_points.dtype == "float64"
        # Scratch memory of a thread in bytes, and the number of units that threads share.
        scratch, units = load().evaluation(
            to_points.geometry, to_modes.geometry, operations.sizes, double
        )
        target = to_modes.target
        count = target.messages if operations.products else 0
        shape = target.array(operations.products)
        sent = [jax.ShapeDtypeStruct(shape, to_modes.dtype_of(target))] * count
        reduced = jax.ShapeDtypeStruct((operations.maxima + operations.sums, units), numbers.dtype)
        memory = jax.ShapeDtypeStruct((to_points.threads * scratch,), np.uint8)
        ffi = jax.ffi.ffi_call(EVALUATE, [*sent, reduced, memory], vmap_method="sequential")
        *products, reduced, _ = ffi(
            *messages,
            numbers,
            to_points=np.asarray(to_points.geometry, np.int64),
            to_modes=np.asarray(to_modes.geometry, np.int64),
            points_scale=np.float64(to_points.scale),
            modes_scale=np.float64(to_modes.scale),
            sizes=np.asarray(operations.sizes, np.int64),
            operations=np.asarray(operations.rows, np.int64).reshape(-1),
        )
        return tuple(products), reduced
