"""The local side of a plan in native code: one call for every stage, from the messages of one
exchange to the next.

Values, modes and messages have x contiguous: neighbouring lines along x fill a processor's vector
lanes, so that y and z are transformed in place and only x is transposed, inside a tile. In a plane,
where x has one point, y is contiguous, z is transformed in place and y transposed."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from simulator.spectral.grid import AXES, Grid
from simulator.spectral.local import (
    Kept,
    LocalTransform,
    Messages,
    Parts,
    Pointwise,
    Reductions,
    combine,
    reductions_start,
)
from simulator.spectral.native.stage import Form, Side, Transformed, blank, run

LANES = 32  # Two tiles of lines in single precision.
ORDER = "zyx"  # Axis order of modes.


def points_order(grid: Grid, stage_order: str) -> str:
    """Memory order of a block of values. In a box, blocks are planes, visited along the first axis
    of the plan's own order."""
    return (
        ORDER if flat(grid) else stage_order[0] + "".join(a for a in "zyx" if a != stage_order[0])
    )


def flat(grid: Grid) -> bool:
    """Whether lines along x have only one point, too few to fill a vector's lanes."""
    return grid.shape[0] == 1


@dataclass(frozen=True, eq=False)
class NativeTransform(LocalTransform):
    """A `LocalTransform` on processors, with a call of the native kernels for each stage.

    `evaluate` visits values in blocks of planes; all other stages, and whole transforms, are one
    call each."""

    @property
    def last(self) -> int:
        return len(self.plan.stages) - 1

    @property
    def values_order(self) -> str:
        return points_order(self.layout.grid, self.plan.stages[0].order)

    def _form(
        self,
        i: int,
        forward: bool,
        given: Side,
        wanted: Side,
        planes: int | None = None,
        start_in: int = 0,
    ) -> Form:
        stage, first = self.plan.stages[i], i == 0
        block = stage.block
        lines = [Transformed(a, self.points(a), self.modes(a)) for a in stage.axes]
        if flat(self.layout.grid) and stage.axes != "x":
            # The only plane is (y, z): the axis across the planes of other grids is an axis of its
            # lines.
            block, lines = "x", [line for line in lines if line.axis != "x"]
        # A real transform starts (or ends) with z; of complex axes, x, which is truncated, goes
        # first.
        if first and "z" in stage.axes:
            lines.sort(key=lambda line: line.axis != "z")
        else:
            lines.sort(key=lambda line: line.axis != "x")
        if not forward:
            lines.reverse()
        transformed = [line.axis for line in lines]
        part = self.local(i, stage.block) if planes is None else planes

        def extent(axis: str) -> int:
            return part if axis == stage.block else self.local(i, axis)

        lines += [
            Transformed(a, extent(a), extent(a))
            for a in stage.order
            if a != block and a not in transformed
        ]
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
            source=given,
            target=wanted,
            start_axis=stage.block,
            start_in=start_in,
            # The coefficients are means: the first stage applies the 1/N of all axes.
            scale=1.0 / self.layout.grid.points if first and forward else 1.0,
            dtype=self.dtype.name,
        )

    # ---- positions of the arrays
    # --------------------------------------------------------------------------

    def _messages(self, i: int, stage: int) -> Side:
        """The messages of exchange `i` as stage `i` (before it) or `i + 1` (after it) sees them."""
        exchange, before = self.plan.exchanges[i], stage == i
        parts = self._parts(exchange.over)
        split = exchange.cut if before else exchange.join

        def extent(axis: str) -> int:
            if axis != split:
                return self._at(stage, axis, modes=before)
            return self._split_extent(axis, modes=before, parts=parts)

        a, b, c = (extent(axis) for axis in exchange.order)
        return Side(exchange.order, (a, b, c), messages=parts, split=split)

    def _at(self, stage: int, axis: str, *, modes: bool) -> int:
        """A device's extent of an axis on the side of a stage that holds modes, or on the side that
        holds points."""
        if axis in self.plan.stages[stage].axes:
            return self.modes(axis) if modes else self.points(axis)
        return self.local(stage, axis)

    def _split_extent(self, axis: str, *, modes: bool, parts: int) -> int:
        return -(-(self.modes(axis) if modes else self.points(axis)) // parts)

    def _modes(self) -> Side:
        a, b, c = (self._at(self.last, axis, modes=True) for axis in self.layout.order)
        return Side(self.layout.order, (a, b, c))

    def _values(self, order: str, planes: int | None = None) -> Side:
        block = self.plan.stages[0].block
        a, b, c = (planes if planes and axis == block else self.local(0, axis) for axis in order)
        return Side(order, (a, b, c), real=self.real)

    # ---- transforms
    # --------------------------------------------------------------------------------------

    def _outer_forward_of(self, messages: Messages) -> jax.Array:
        for i in range(1, len(self.plan.stages)):
            wanted = self._modes() if i == self.last else self._messages(i, i)
            messages = run(
                self._form(i, True, self._messages(i - 1, i), wanted),
                self._exchange(i - 1, messages),
            )
        return messages[0]

    def _outer_inverse_of(self, modes: jax.Array) -> Messages:
        messages: Messages = (modes,)
        for i in range(self.last, 0, -1):
            given = self._modes() if i == self.last else self._messages(i, i)
            messages = self._exchange(
                i - 1, run(self._form(i, False, given, self._messages(i - 1, i)), messages)
            )
        return messages

    def forward(self, array: jax.Array) -> jax.Array:
        """Transforms one device's values (component, x, y, z) to its modes (component,
        *layout.order)."""
        return self._outer_forward(
            run(self._form(0, True, self._values(AXES), self._messages(0, 0)), (array,))
        )

    def inverse(self, array: jax.Array) -> jax.Array:
        """Transforms one device's modes to its values (component, x, y, z), zero in padding."""
        messages = self._outer_inverse(array)
        return run(self._form(0, False, self._messages(0, 0), self._values(AXES)), messages)[0]

    def inverse_kept(self, array: jax.Array) -> jax.Array:
        """Transforms one device's modes to its values in the order of blocks (component,
        *values_order)."""
        wanted = self._values(self.values_order)
        return run(self._form(0, False, self._messages(0, 0), wanted), self._outer_inverse(array))[
            0
        ]

    def evaluate(
        self, array, pointwise, components, reverse=False, keep=()
    ) -> tuple[Any, Reductions, Parts]:
        """`LocalTransform.evaluate`, and the values (component, *values_order) of the ranges in
        `keep`. The kernels write the transformed products directly into the messages."""
        messages = self._outer_inverse(array)
        if reverse and not keep:
            sent, reduced, kept = self._visited_for_reverse(messages, pointwise, components)
        else:
            sent, reduced, kept = self._visited(messages, pointwise, components, keep)
        return (self._outer_forward(sent) if sent else None), self._over_devices(reduced), kept

    # ---- physical space, in blocks
    # -----------------------------------------------------------------------

    def _blocks_of(self, components: int) -> tuple[int, jax.Array, Form, Form]:
        """The number of planes in a block, the numbers of the blocks, and the stages before and
        after the pointwise function."""
        total = self.local(0, self.plan.stages[0].block)
        size = min(self.blocks(0, components), total)
        side, values = self._messages(0, 0), self._values(self.values_order, size)
        to_values = self._form(0, False, side, values, size, start_in=1)
        to_messages = self._form(0, True, values, side, size, start_in=2)
        return size, jnp.arange(-(-total // size)), to_values, to_messages

    def _planes(self, i: jax.Array | int, size: int) -> tuple[jax.Array, jax.Array]:
        """The first plane of block `i` of `size` planes, and a mask of the planes that no earlier
        block holds: the last block may overlap the previous one."""
        block = self.plan.stages[0].block
        start = jnp.minimum(i * size, self.local(0, block) - size).astype(jnp.int32)
        shape = [size if a == block else 1 for a in self.values_order]
        return start, (start + jnp.arange(size) >= i * size).reshape(shape)

    def _visited(
        self, messages: Messages, pointwise: Pointwise, components: int, keep: Kept = ()
    ) -> tuple[Messages, Reductions, Parts]:
        """The products as messages (none without products), the reductions, and the values in
        `keep`."""
        size, blocks, to_values, to_messages = self._blocks_of(components)
        axis = self.plan.stages[0].block
        total, along = self.local(0, axis), 1 + self.values_order.index(axis)

        def at_points(messages, i):
            start, fresh = self._planes(i, size)
            points, inside = self._points_of(start, size, self.values_order)
            (block,) = run(to_values, messages, start)
            products, reduced = pointwise(block, points, inside & fresh)
            seen = tuple(block[first : first + number] for first, number in keep)
            return None if products is None else products.astype(block.dtype), reduced, seen, start

        products, reduced, seen, _ = jax.eval_shape(at_points, messages, jnp.int32(0))
        made = 0 if products is None else products.shape[0]

        @jax.checkpoint
        def visit(into, i, messages):
            block_products, extra, seen, start = at_points(messages, i)
            return (
                (run(to_messages, (block_products,), start, into) if made else ()),
                extra,
                seen,
                start,
            )

        def body(carry, i):
            into, reduced, kept = carry
            into, extra, seen, start = visit(into, i, messages)
            kept = tuple(
                lax.dynamic_update_slice_in_dim(whole, part, start, axis=along)
                for whole, part in zip(kept, seen, strict=True)
            )
            return (into, combine(reduced, extra), kept), None

        empty = _blanks(to_messages, made) if made else ()
        kept = tuple(
            blank(
                (*part.shape[:along], total, *part.shape[along + 1 :]),
                part.dtype,
                len(empty) + number,
            )
            for number, part in enumerate(seen)
        )
        return lax.scan(body, (empty, reductions_start(reduced), kept), blocks)[0]

    def _visited_for_reverse(
        self, messages: Messages, pointwise: Pointwise, components: int
    ) -> tuple[Messages, Reductions, Parts]:
        """`_visited`, to be differentiated in reverse mode only: the reverse visits the blocks as
        the function does. JAX's own transpose of the loop would add arrays of all planes for every
        block."""
        size, blocks, to_values, to_messages = self._blocks_of(components)
        start, fresh = self._planes(0, size)
        points, inside = self._points_of(start, size, self.values_order)
        values = jnp.zeros(
            to_values.target.array(messages[0].shape[1]), to_values.dtype_of(to_values.target)
        )
        function, parameters = jax.closure_convert(pointwise, values, points, inside & fresh)

        @jax.custom_vjp
        def visited(messages, parameters):
            return self._visited(messages, lambda *given: function(*given, *parameters), components)

        def reverse(given, cotangents):
            messages, parameters = given
            sent, reduced, _ = cotangents

            def visit(carry, i):
                into, totals = carry
                start, fresh = self._planes(i, size)
                points, inside = self._points_of(start, size, self.values_order)
                (block,) = run(to_values, messages, start)

                def at_points(block, *parameters):
                    products, reduced = function(block, points, inside & fresh, *parameters)
                    return None if products is None else products.astype(block.dtype), reduced

                back, products = jax.vjp(at_points, block, *parameters)[1], None
                if sent:
                    (products,) = run(to_messages.transposed(), sent, start)
                    products = jnp.where(fresh, products, 0)
                of_block, *of_parameters = back((products, reduced))
                into = run(to_values.transposed(), (of_block,), start, into)
                return (into, [a + b for a, b in zip(totals, of_parameters, strict=True)]), None

            # From the last block to the first: planes that two blocks share are written last by the
            # first of the two.
            empty = _blanks(to_values.transposed(), messages[0].shape[1])
            first = (empty, [jnp.zeros_like(p) for p in parameters])
            return lax.scan(visit, first, blocks, reverse=True)[0]

        visited.defvjp(lambda *given: (visited(*given), given), reverse)
        return visited(messages, parameters)


def _blanks(form: Form, components: int) -> Messages:
    """Arrays for a stage to fill."""
    side = form.target
    return tuple(
        blank(side.array(components), form.dtype_of(side), number)
        for number in range(side.messages)
    )
