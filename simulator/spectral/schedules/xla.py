"""Stages in XLA: each block of planes is unpacked from messages, padded, transformed, truncated and
packed into messages while it is in cache.

`Processors` and `GPUs` say how messages are stored, how much is visited at a time, and in which
order components travel."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import lax

from simulator.spectral.grid import AXES
from simulator.spectral.schedules.packing import fit, fit_modes, pack, take, unpack
from simulator.spectral.schedules.schedule import (
    NOTHING,
    Arrays,
    DeviceSchedule,
    Pointwise,
    Ranges,
    Reductions,
)
from simulator.spectral.stages import Stage


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
class XlaSchedule(DeviceSchedule):
    """The transforms of a plan in XLA: `forward`, `inverse` and `evaluate`."""

    # ---- what processors and GPUs do differently

    @property
    def backward(self) -> Self:
        """The schedule of the way to points."""
        return self

    def planes(self, stage: int, components: int, *, reducing: bool = False) -> int:
        """The number of planes that a stage visits at a time, with `components` values at each
        point, which are only reduced if `reducing`."""
        raise NotImplementedError

    def message_order(self, exchange: int) -> str:
        """Memory order of messages."""
        raise NotImplementedError

    def cut(self, array: jax.Array) -> Arrays:
        """An array (component, *order) in parts that are transformed and sent separately."""
        raise NotImplementedError

    def received_planes(self, messages: Arrays, planes: Planes, axis: int) -> Arrays:
        """Some planes of messages, as an array for each part of `cut`."""
        raise NotImplementedError

    def as_messages(self, packed: Arrays) -> Arrays:
        """Messages from an array for each part of `cut`."""
        raise NotImplementedError

    def all_to_all(self, messages: Arrays, over: str) -> Arrays:
        """The messages that this device receives, from those that it sends over a mesh's axis."""
        raise NotImplementedError

    def empty(self, like: Arrays, axis: int, extent: int, source: Arrays) -> Arrays:
        """Arrays like others, with `extent` entries along `axis`, for a loop to fill that reads
        `source`."""
        raise NotImplementedError

    def outer_forward(self, messages: Arrays) -> Arrays:
        """All stages but the first: from the messages that the first stage sends to modes."""
        raise NotImplementedError

    def outer_inverse(self, modes: Arrays, *, reducing: bool = False) -> Arrays:
        """All stages but the first: from modes to the messages that the first stage receives.
        `reducing`: values are only reduced, and no products follow."""
        raise NotImplementedError

    # ---- one stage

    def to_modes(self, stage: Stage, array: jax.Array) -> jax.Array:
        """A block after the transform of a stage."""
        first = stage is self.plan.stages[0]
        kind = lax.FftType.RFFT if first and self.real else lax.FftType.FFT
        array = lax.fft(array, kind, self.lengths(stage))
        for i, axis in enumerate(stage.axes, array.ndim - len(stage.axes)):
            half = axis == "z" and self.real
            array = (fit if half else fit_modes)(array, i, self.modes(axis))
        # Together with the truncation.
        return array * self.scale(forward=True) if first else array

    def to_points(self, stage: Stage, array: jax.Array) -> jax.Array:
        """A block before the transform of a stage."""
        lengths = self.lengths(stage)
        for i, (axis, n) in enumerate(
            zip(stage.axes, lengths, strict=True), array.ndim - len(lengths)
        ):
            half = axis == "z" and self.real
            array = fit(array, i, n // 2 + 1) if half else fit_modes(array, i, n)
        first = stage is self.plan.stages[0]
        # XLA's inverse divides by the number of points; the product that undoes this is fused with
        # the padding.
        array = array * (math.prod(lengths) * (self.scale(forward=False) if first else 1.0))
        kind = lax.FftType.IRFFT if first and self.real else lax.FftType.IFFT
        return lax.fft(array, kind, lengths)

    def lengths(self, stage: Stage) -> tuple[int, ...]:
        return tuple(map(self.points, stage.axes))

    def received(self, i: int, messages: Arrays, planes: Planes, *, forward: bool) -> Arrays:
        """Planes of the array of the stage after (before) exchange `i`, joined from the received
        messages."""
        if not self.plan.exchanges:
            return messages
        exchange = self.plan.exchanges[i]
        stage = self.plan.stages[i + 1 if forward else i]
        axis = exchange.join if forward else exchange.cut
        extent = self.points(axis) if forward else self.modes(axis)
        order = self.message_order(i)
        blocks = self.received_planes(messages, planes, 2 + order.index(stage.block))
        return tuple(unpack(block, order, axis, extent, stage.order) for block in blocks)

    def to_send(self, i: int, parts: Arrays, *, forward: bool) -> Arrays:
        """Planes of the array of the stage before (after) exchange `i`, cut into messages."""
        if not self.plan.exchanges:
            return parts
        exchange = self.plan.exchanges[i]
        stage = self.plan.stages[i if forward else i + 1]
        axis = exchange.cut if forward else exchange.join
        count = self.parts(exchange.over)
        order = self.message_order(i)
        return self.as_messages(
            tuple(pack(part, stage.order, axis, count, order) for part in parts)
        )

    def exchanged(self, i: int, messages: Arrays) -> Arrays:
        over = self.plan.exchanges[i].over
        return messages if self.parts(over) == 1 else self.all_to_all(messages, over)

    def message_axis(self, exchange: int, stage: int) -> int:
        """The axis of an exchange's messages along which a stage visits them in blocks."""
        if not self.plan.exchanges:
            return 1
        return 2 + self.message_order(exchange).index(self.plan.stages[stage].block)

    def stage_forward(self, i: int, messages: Arrays) -> Arrays:
        """From the messages that stage `i` receives to the messages that it sends, or modes."""
        stage = self.plan.stages[i]
        ends = i == self.last

        def visit(planes: Planes, source: Arrays) -> tuple[Arrays, Reductions]:
            blocks = self.received(i - 1, source, planes, forward=True)
            parts = tuple(self.to_modes(stage, block) for block in blocks)
            return (one_array(parts) if ends else self.to_send(i, parts, forward=True)), NOTHING

        axis = 1 if ends else self.message_axis(i, i)
        return self.visited(i, 2 * messages[0].shape[1], visit, axis, messages)[0]

    def stage_inverse(self, i: int, source: Arrays, components: int) -> Arrays:
        """From the messages that stage `i` receives, or modes, to the messages that it sends."""
        stage = self.plan.stages[i]

        def visit(planes: Planes, source: Arrays) -> tuple[Arrays, Reductions]:
            if i == self.last:
                parts = self.cut(planes.of(source[0], 1))
            else:
                parts = self.received(i, source, planes, forward=False)
            points = tuple(self.to_points(stage, part) for part in parts)
            return self.to_send(i - 1, points, forward=False), NOTHING

        axis = self.message_axis(i - 1, i)
        return self.visited(i, 2 * components, visit, axis, source)[0]

    def outer_forward_of(self, messages: Arrays) -> Arrays:
        """`outer_forward` of components that travel together."""
        for i in range(1, self.last + 1):
            messages = self.stage_forward(i, self.exchanged(i - 1, messages))
        return messages[:1]

    def outer_inverse_of(self, modes: Arrays) -> Arrays:
        """`outer_inverse` of components that travel together."""
        messages = modes
        for i in range(self.last, 0, -1):
            sent = self.stage_inverse(i, messages, len(modes[0]))
            messages = self.exchanged(i - 1, sent)
        return messages

    # ---- blocks

    def visited(
        self,
        i: int,
        components: int,
        visit: Visit,
        axis: int,
        source: Arrays,
        *,
        reducing: bool = False,
    ) -> tuple[Arrays, Reductions]:
        """Visits all planes of stage `i`, block by block; joins the results along `axis` and the
        reductions."""
        every = self.local(i, self.plan.stages[i].block)
        size = min(self.planes(i, components, reducing=reducing), every)
        if size == every:
            return visit(Planes(jnp.int32(0), size, jnp.ones(size, bool)), source)
        return self.in_blocks(visit, size, every, axis, source)

    def in_blocks(
        self, visit: Visit, size: int, every: int, axis: int, source: Arrays
    ) -> tuple[Arrays, Reductions]:
        """`visited` in a loop over blocks of `size` planes."""
        arrays, reduced = shapes_of(visit, size, source)
        filled = self.empty(arrays, axis, every, source)
        return fill(lambda planes, _: visit(planes, source), filled, reduced, axis, every, size)

    # ---- transforms

    def forward(self, array: jax.Array) -> jax.Array:
        """Transforms one device's values (component, x, y, z) to its modes (component,
        *layout.order)."""
        stage = self.plan.stages[0]

        def visit(planes: Planes, source: Arrays) -> tuple[Arrays, Reductions]:
            block = planes.of(source[0], 1 + AXES.index(stage.block))
            parts = self.cut(take(block, AXES, stage.order))
            modes = tuple(self.to_modes(stage, part) for part in parts)
            return self.to_send(0, modes, forward=True), NOTHING

        axis = self.message_axis(0, 0)
        messages, _ = self.visited(0, 2 * array.shape[0], visit, axis, (array,))
        return take(self.outer_forward(messages)[0], self.plan.order, self.layout.order)

    def inverse(self, array: jax.Array) -> jax.Array:
        """Transforms one device's modes to its values (component, x, y, z), zero in padding."""
        backward = self.backward
        stage = backward.plan.stages[0]
        modes = take(array, self.layout.order, backward.plan.order)

        def visit(planes: Planes, source: Arrays) -> tuple[Arrays, Reductions]:
            blocks = backward.received(0, source, planes, forward=False)
            (values,) = one_array(tuple(backward.to_points(stage, block) for block in blocks))
            return (take(values, stage.order, AXES),), NOTHING

        messages = backward.outer_inverse((modes,))
        axis = 1 + AXES.index(stage.block)
        return backward.visited(0, 2 * array.shape[0], visit, axis, messages)[0][0]

    def evaluate(
        self,
        array: jax.Array,
        pointwise: Pointwise,
        components: int,
        reverse: bool = False,
        keep: Ranges = (),
    ) -> tuple[Arrays, Reductions, Arrays]:
        """Transforms one device's modes to the modes of pointwise products of their values (none
        without products), and reductions.

        The values and products, `components` at every point, exist one block at a time; a backward
        pass recomputes them. With `reverse` the result needs to be differentiable in reverse mode
        only. The values of the ranges of components in `keep` are returned by schedules with a
        `values_order`."""
        backward = self.backward
        stage = backward.plan.stages[0]
        reducing = components == len(array)

        @jax.checkpoint
        def on_block(
            parts: Arrays, start: jax.Array, fresh: jax.Array
        ) -> tuple[Arrays, Reductions]:
            points, inside = self.points_of(start, len(fresh), stage.order)
            (values,) = one_array(tuple(backward.to_points(stage, part) for part in parts))
            products, reduced = pointwise(values, points, inside & fresh.reshape(-1, 1, 1))
            if products is None:
                return (), reduced
            blocks = tuple(self.to_modes(self.plan.stages[0], part) for part in self.cut(products))
            return self.to_send(0, blocks, forward=True), reduced

        def visit(planes: Planes, source: Arrays) -> tuple[Arrays, Reductions]:
            blocks = backward.received(0, source, planes, forward=False)
            return on_block(blocks, planes.start, planes.fresh)

        modes = take(array, self.layout.order, backward.plan.order)
        messages = backward.outer_inverse((modes,), reducing=reducing)
        axis = self.message_axis(0, 0)
        sent, reduced = self.visited(0, components, visit, axis, messages, reducing=reducing)
        if not sent:
            return (), self.over_devices(reduced), ()
        (modes,) = self.outer_forward(sent)
        modes = take(modes, self.plan.order, self.layout.order)
        return (modes,), self.over_devices(reduced), ()


def one_array(parts: Arrays) -> Arrays:
    """One array of all components."""
    return parts if len(parts) == 1 else (jnp.concatenate(parts),)


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
