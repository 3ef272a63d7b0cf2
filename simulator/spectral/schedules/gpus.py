"""The schedule of GPUs, whose limit is memory traffic."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.layout import Layout, with_layout_constraint

from simulator.spectral.collectives import after
from simulator.spectral.schedules.packing import fit, fit_modes
from simulator.spectral.schedules.schedule import Arrays, Reductions
from simulator.spectral.schedules.xla import (
    Planes,
    Visit,
    XlaSchedule,
    fill,
    one_array,
    shapes_of,
)
from simulator.spectral.stages import Z_THEN_YX, ZX_THEN_Y, Stage, all_to_all

FEW = 4
"""Components, of values and products together, for which blocks save no memory."""
MOST_BLOCKS = 64
"""Of a large grid: more would not save memory, and each starts its kernels anew."""


@dataclass(frozen=True, eq=False)
class GPUs(XlaSchedule):
    """Visits physical space whole, because copies into and out of a loop cost memory traffic; with
    `low` in blocks, which take least memory. Every component is an array, so that one component is
    sent while the next is transformed, and few are stored both before and after."""

    low_name: ClassVar[str] = "_in_blocks"
    memory: ClassVar[int] = 256 << 20
    """Bytes of a block, at least."""

    def planes(self, stage: int, components: int, *, reducing: bool = False) -> int:
        every = self.local(stage, self.plan.stages[stage].block)
        if stage > 0:
            return every
        if self.block is not None:
            return self.block
        if reducing or (self.low and components > FEW):
            return max(self.planes_in(self.memory, stage, components), every // MOST_BLOCKS)
        return every

    @property
    def backward(self) -> Self:
        """On a single GPU, which sends nothing, x and y are transformed back in one call."""
        if self.layout.devices > 1 or self.plan is not ZX_THEN_Y or self.low:
            return self
        return replace(self, plan=Z_THEN_YX)

    def message_order(self, exchange: int) -> str:
        """The order in which the later stage stores its arrays, because XLA would bring every
        message into that order by a copy."""
        return self.plan.stages[exchange + 1].order

    def cut(self, array: jax.Array) -> Arrays:
        return tuple(array[i : i + 1] for i in range(len(array)))

    def received_planes(self, messages: Arrays, planes: Planes, axis: int) -> Arrays:
        parts = tuple(planes.of(message, axis) for message in messages)
        if self.linear or planes.size == messages[0].shape[axis]:
            return parts
        # The slice gets the layout of the whole array, else XLA transposes the whole array before
        # the visits.
        return tuple(map(in_order, parts))

    def as_messages(self, packed: Arrays) -> Arrays:
        return packed

    def all_to_all(self, messages: Arrays, over: str) -> Arrays:
        return tuple(all_to_all(message, over, self.exchange) for message in messages)

    def empty(self, like: Arrays, axis: int, extent: int, source: Arrays) -> Arrays:
        """Uninitialized memory, because initializing it costs memory traffic."""
        new = jnp.zeros if self.linear else lax.empty
        shapes = [(*part.shape[:axis], extent, *part.shape[axis + 1 :]) for part in like]
        return tuple(new(shape, part.dtype) for shape, part in zip(shapes, like, strict=True))

    def to_points(self, stage: Stage, array: jax.Array) -> jax.Array:
        if not self.real or stage is not self.plan.stages[0] or stage.axes == "z":
            return super().to_points(stage, array)
        # XLA would transform x before z, too, but after z is padded, and so on planes of zeros.
        x, z = array.ndim - 2, array.ndim - 1
        nx, nz = self.points("x"), self.points("z")
        array = fit_modes(array.swapaxes(x, z), z, nx) * (nx * nz * self.scale(forward=False))
        array = lax.fft(array, lax.FftType.IFFT, (nx,)).swapaxes(x, z)
        return lax.fft(fit(array, z, nz // 2 + 1), lax.FftType.IRFFT, (nz,))

    def outer_forward(self, messages: Arrays) -> Arrays:
        """Sends a component when the last but one is transformed: otherwise XLA would receive all
        components before it transforms one."""
        modes: Arrays = ()
        for number, message in enumerate(messages):
            if number > 1 and self._ordered:
                first = after(message[(slice(1),) * message.ndim], modes[number - 2])
                message = lax.dynamic_update_slice(message, first, (0,) * message.ndim)
            modes += self.outer_forward_of((message,))
        return one_array(modes)

    def outer_inverse(self, modes: Arrays, *, reducing: bool = False) -> Arrays:
        """If values are only reduced, begins a component when the last but one is sent; otherwise
        XLA pads all of them at once."""
        if not reducing or not self._ordered:
            return self.outer_inverse_of(modes)
        messages: Arrays = ()
        for number in range(len(modes[0])):
            part = modes[0][number : number + 1]
            if number > 1:
                part = after(part, messages[number - 2])
            messages += self.outer_inverse_of((part,))
        return messages

    @property
    def _ordered(self) -> bool:
        """Whether data dependences order the exchanges of components."""
        return not self.linear and self.layout.devices > 1

    def in_blocks(
        self, visit: Visit, size: int, every: int, axis: int, source: Arrays
    ) -> tuple[Arrays, Reductions]:
        """The results of a block replace the messages that it has read, one by one, if these are as
        large; then no block overlaps another."""
        if self.linear:
            return super().in_blocks(visit, size, every, axis, source)
        arrays, reduced = shapes_of(visit, size, source)
        filled = self.empty(arrays, axis, every, source)
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
