"""Local stages in XLA: each block of planes is unpacked from messages, padded, transformed,
truncated and packed into messages while it is in cache."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import jax
from jax import lax

from simulator.spectral.grid import AXES
from simulator.spectral.plans import Z_THEN_YX, ZX_THEN_Y, Stage
from simulator.spectral.schedules.device_part import (
    NOTHING,
    Arrays,
    DevicePart,
    Reductions,
    Visited,
)
from simulator.spectral.schedules.exchange import DeviceExchange, one_array
from simulator.spectral.schedules.packing import fit, fit_modes, pack, take, unpack
from simulator.spectral.schedules.pointwise import PointwiseCall
from simulator.spectral.schedules.visits import Planes, Visits


@dataclass(frozen=True, eq=False)
class XlaStages:
    """The stages of a plan in XLA."""

    part: DevicePart
    exchange: DeviceExchange
    visits: Visits

    values_order: ClassVar[None] = None
    """The memory order of values that `products` keeps: it keeps none."""
    reduced_axes: ClassVar[None] = None
    """The axes of a block along which `products` reduces values: all."""

    @property
    def on_gpu(self) -> bool:
        return self.part.options.platform != "cpu"

    @cached_property
    def back(self) -> Self:
        """The stages of the way to points. On a single GPU, which sends nothing, x and y are
        transformed back in one call."""
        part = self.part
        alone = self.on_gpu and part.layout.devices == 1 and not part.options.sequential
        if not alone or part.plan is not ZX_THEN_Y:
            return self
        part = replace(part, plan=Z_THEN_YX)
        return replace(self, part=part, visits=replace(self.visits, part=part))

    # ---- stages

    def forward(self, i: int, messages: Arrays) -> Arrays:
        """From the messages that stage `i` receives to the messages that it sends, or modes."""
        stage = self.part.plan.stages[i]
        ends = i == self.part.last

        def visit(planes: Planes, source: Arrays) -> tuple[Arrays, Reductions]:
            blocks = self._received(i - 1, source, planes, forward=True)
            parts = tuple(self._to_modes(stage, block) for block in blocks)
            return (one_array(parts) if ends else self._to_send(i, parts, forward=True)), NOTHING

        axis = 1 if ends else self._message_axis(i, i)
        return self.visits.every(i, 2 * messages[0].shape[1], visit, axis, messages)[0]

    def inverse(self, i: int, messages: Arrays, components: int) -> Arrays:
        """From the messages that stage `i` receives, or modes, to the messages that it sends."""
        if self.back is not self:
            return self.back.inverse(i, messages, components)
        stage = self.part.plan.stages[i]

        def visit(planes: Planes, source: Arrays) -> tuple[Arrays, Reductions]:
            if i == self.part.last:
                parts = self.exchange.cut(planes.of(source[0], 1))
            else:
                parts = self._received(i, source, planes, forward=False)
            points = tuple(self._to_points(stage, part) for part in parts)
            return self._to_send(i - 1, points, forward=False), NOTHING

        axis = self._message_axis(i - 1, i)
        return self.visits.every(i, 2 * components, visit, axis, messages)[0]

    def from_values(self, values: jax.Array) -> Arrays:
        """The messages that the first stage sends, or modes, from values (component, x, y, z)."""
        stage = self.part.plan.stages[0]

        def visit(planes: Planes, source: Arrays) -> tuple[Arrays, Reductions]:
            block = planes.of(source[0], 1 + AXES.index(stage.block))
            parts = self.exchange.cut(take(block, AXES, stage.order))
            modes = tuple(self._to_modes(stage, part) for part in parts)
            return self._to_send(0, modes, forward=True), NOTHING

        axis = self._message_axis(0, 0)
        return self.visits.every(0, 2 * values.shape[0], visit, axis, (values,))[0]

    def to_values(self, messages: Arrays, components: int, order: str) -> jax.Array:
        """Values (component, *order), zero in padding, from the messages that the first stage
        receives, or modes."""
        back = self.back
        stage = back.part.plan.stages[0]

        def visit(planes: Planes, source: Arrays) -> tuple[Arrays, Reductions]:
            blocks = back._received(0, source, planes, forward=False)
            (values,) = one_array(tuple(back._to_points(stage, block) for block in blocks))
            return (take(values, stage.order, order),), NOTHING

        axis = 1 + order.index(stage.block)
        return back.visits.every(0, 2 * components, visit, axis, messages)[0][0]

    def products(self, messages: Arrays, call: PointwiseCall) -> Visited:
        """From messages to messages of products at points. Values and products exist one block at a
        time; a backward pass recomputes them."""
        back = self.back
        stage = back.part.plan.stages[0]

        @jax.checkpoint
        def on_block(
            parts: Arrays, start: jax.Array, fresh: jax.Array
        ) -> tuple[Arrays, Reductions]:
            points, inside = self.part.points_of(start, len(fresh), stage.order)
            (values,) = one_array(tuple(back._to_points(stage, part) for part in parts))
            products, reduced = call.function(values, points, inside & fresh.reshape(-1, 1, 1))
            if products is None:
                return (), reduced
            parts = self.exchange.cut(products)
            blocks = tuple(self._to_modes(self.part.plan.stages[0], part) for part in parts)
            return self._to_send(0, blocks, forward=True), reduced

        def visit(planes: Planes, source: Arrays) -> tuple[Arrays, Reductions]:
            blocks = back._received(0, source, planes, forward=False)
            return on_block(blocks, planes.start, planes.fresh)

        components = call.inputs + call.outputs
        axis = self._message_axis(0, 0)
        reducing = not call.outputs
        sent, reduced = self.visits.every(0, components, visit, axis, messages, reducing=reducing)
        return sent, reduced, ()

    def operations(self, *function: Any) -> None:
        """The operations of a function of values at a point: XLA compiles it."""

    # ---- a block

    def _to_modes(self, stage: Stage, array: jax.Array) -> jax.Array:
        """A block after the transform of a stage."""
        first = stage is self.part.plan.stages[0]
        kind = lax.FftType.RFFT if first and self.part.real else lax.FftType.FFT
        array = lax.fft(array, kind, self._lengths(stage))
        for i, axis in enumerate(stage.axes, array.ndim - len(stage.axes)):
            half = axis == "z" and self.part.real
            array = (fit if half else fit_modes)(array, i, self.part.modes[axis])
        # Together with the truncation.
        return array * self.part.scale(forward=True) if first else array

    def _to_points(self, stage: Stage, array: jax.Array) -> jax.Array:
        """A block before the transform of a stage."""
        part = self.part
        first = stage is part.plan.stages[0]
        if self.on_gpu and first and part.real and stage.axes != "z":
            return self._to_points_of_xz(array)
        lengths = self._lengths(stage)
        for i, (axis, n) in enumerate(
            zip(stage.axes, lengths, strict=True), array.ndim - len(lengths)
        ):
            half = axis == "z" and part.real
            array = fit(array, i, n // 2 + 1) if half else fit_modes(array, i, n)
        # XLA's inverse divides by the number of points; the product that undoes this is fused with
        # the padding.
        array = array * (math.prod(lengths) * (part.scale(forward=False) if first else 1.0))
        kind = lax.FftType.IRFFT if first and part.real else lax.FftType.IFFT
        return lax.fft(array, kind, lengths)

    def _to_points_of_xz(self, array: jax.Array) -> jax.Array:
        """`_to_points` of real values. XLA would transform x before z, too, but after z is padded,
        and so on planes of zeros."""
        x, z = array.ndim - 2, array.ndim - 1
        nx, nz = self.part.points["x"], self.part.points["z"]
        scale = nx * nz * self.part.scale(forward=False)
        array = fit_modes(array.swapaxes(x, z), z, nx) * scale
        array = lax.fft(array, lax.FftType.IFFT, (nx,)).swapaxes(x, z)
        return lax.fft(fit(array, z, nz // 2 + 1), lax.FftType.IRFFT, (nz,))

    def _lengths(self, stage: Stage) -> tuple[int, ...]:
        return tuple(self.part.points[axis] for axis in stage.axes)

    # ---- messages

    def _message_axis(self, exchange: int, stage: int) -> int:
        """The axis of an exchange's messages along which a stage visits them in blocks."""
        if not self.part.plan.exchanges:
            return 1
        return 2 + self.exchange.order(exchange).index(self.part.plan.stages[stage].block)

    def _received(self, i: int, messages: Arrays, planes: Planes, *, forward: bool) -> Arrays:
        """Planes of the array of the stage after (before) exchange `i`, joined from the received
        messages."""
        plan = self.part.plan
        if not plan.exchanges:
            return tuple(take(modes, self.part.layout.order, plan.order) for modes in messages)
        exchange = plan.exchanges[i]
        stage = plan.stages[i + 1 if forward else i]
        axis = exchange.join if forward else exchange.cut
        extent = self.part.points[axis] if forward else self.part.modes[axis]
        order = self.exchange.order(i)
        blocks = self.exchange.received_planes(messages, planes, 2 + order.index(stage.block))
        return tuple(unpack(block, order, axis, extent, stage.order) for block in blocks)

    def _to_send(self, i: int, parts: Arrays, *, forward: bool) -> Arrays:
        """Planes of the array of the stage before (after) exchange `i`, cut into messages."""
        plan = self.part.plan
        if not plan.exchanges:
            return tuple(take(modes, plan.order, self.part.layout.order) for modes in parts)
        exchange = plan.exchanges[i]
        stage = plan.stages[i if forward else i + 1]
        axis = exchange.cut if forward else exchange.join
        count = self.part.parts(exchange.over)
        order = self.exchange.order(i)
        packed = tuple(pack(part, stage.order, axis, count, order) for part in parts)
        return self.exchange.as_messages(packed)
