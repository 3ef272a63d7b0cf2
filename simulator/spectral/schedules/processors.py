"""The schedule of processors, whose loops work in a core's cache."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
from jax import lax

from simulator.spectral.collectives import after
from simulator.spectral.schedules.schedule import Arrays
from simulator.spectral.schedules.xla import Planes, XlaSchedule
from simulator.spectral.stages import XYZ, all_to_all


@dataclass(frozen=True, eq=False)
class Processors(XlaSchedule):
    """Visits as many planes at a time as fit in the cache. Every message is an array, because an
    all-to-all of XLA's CPU client reads and writes every message in its own buffer: separate
    messages need not be joined before the exchange and cut after it. All components travel
    together, with `low` one after another, so that only one is stored on both sides of an
    exchange."""

    low_name: ClassVar[str] = "_sequential"
    cache: ClassVar[int] = 4 << 20
    """Bytes of a block."""

    def of_fields(self) -> Self:
        whole = super().of_fields()
        if self.layout.devices > 1 or self.block is not None:
            return whole
        # A call of the FFT over a whole array uses all cores, while XLA's loop bodies use one; and
        # a single call over all axes makes the fewest passes over memory.
        return replace(whole, plan=XYZ)

    def planes(self, stage: int, components: int, *, reducing: bool = False) -> int:
        stages = self.plan.stages
        every = self.local(stage, stages[stage].block)
        if stages[stage].block in stages[stage].axes:
            return every
        if self.block is None:
            return self.planes_in(self.cache, stage, components)
        if stage == 0:
            return self.block
        if self.block >= self.local(0, stages[0].block):
            return every
        return self.planes_in(self.cache, stage, components)

    def message_order(self, exchange: int) -> str:
        return self.plan.exchanges[exchange].order

    def cut(self, array: jax.Array) -> Arrays:
        return (array,)

    def received_planes(self, messages: Arrays, planes: Planes, axis: int) -> Arrays:
        return (jnp.concatenate([planes.of(message, axis) for message in messages]),)

    def as_messages(self, packed: Arrays) -> Arrays:
        (messages,) = packed
        return tuple(messages[i : i + 1] for i in range(len(messages)))

    def all_to_all(self, messages: Arrays, over: str) -> Arrays:
        return self.as_messages((all_to_all(jnp.concatenate(messages), over, self.exchange),))

    def empty(self, like: Arrays, axis: int, extent: int, source: Arrays) -> Arrays:
        """XLA merges equal constants into one array and copies that array for every loop that fills
        it; each array therefore gets another one of the values of `source`."""
        arrays: list[jax.Array] = []
        for number, part in enumerate(like):
            shape = (*part.shape[:axis], extent, *part.shape[axis + 1 :])
            if self.linear:
                arrays.append(jnp.zeros(shape, part.dtype))
                continue
            value = lax.stop_gradient(source[0]).reshape(-1)[number % source[0].size]
            if not jnp.issubdtype(part.dtype, jnp.complexfloating):
                value = jnp.real(value)
            arrays.append(jnp.broadcast_to(value.astype(part.dtype), shape))
        return tuple(arrays)

    def outer_forward(self, messages: Arrays) -> Arrays:
        return self._in_sequence(self.outer_forward_of, messages, 1, 0)

    def outer_inverse(self, modes: Arrays, *, reducing: bool = False) -> Arrays:
        return self._in_sequence(self.outer_inverse_of, modes, 0, 1)

    def _in_sequence(
        self, run: Callable[[Arrays], Arrays], arrays: Arrays, axis: int, result_axis: int
    ) -> Arrays:
        """`run(arrays)`; with `low` for one component after another. The components are counted
        along `axis` of `arrays`, and along `result_axis` of the results."""
        count = arrays[0].shape[axis]
        if not self.low or count == 1 or not self.plan.exchanges:
            return run(arrays)

        def component(i: int | jax.Array, before: Arrays = ()) -> Arrays:
            parts = tuple(lax.dynamic_slice_in_dim(a, i, 1, axis=axis) for a in arrays)
            return run(tuple(after(part, before[0]) for part in parts) if before else parts)

        shapes = jax.eval_shape(component, jnp.int32(0))
        results = self.empty(shapes, result_axis, count, arrays)
        before: Arrays = ()
        # Not a loop of XLA's: exchanges in it could start before or after independent ones (see
        # `collectives`).
        for i in range(count):
            pairs = zip(results, component(i, before), strict=True)
            results = tuple(
                lax.dynamic_update_slice_in_dim(array, part, i, axis=result_axis)
                for array, part in pairs
            )
            before = () if self.linear else results
        return results
