"""The exchanges of a plan: how messages are stored, and in which order components travel."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from simulator.spectral.collectives import after, all_to_all
from simulator.spectral.schedules.device_part import Arrays, DevicePart
from simulator.spectral.schedules.visits import Planes, fillable, in_order

Travel = Callable[[Arrays], Arrays]
"""All stages but the first, for components that travel together: from the messages that the first
stage sends to modes, or from modes to the messages that it receives."""


@dataclass(frozen=True, eq=False)
class DeviceExchange(ABC):
    """The exchanges of one device."""

    part: DevicePart

    def sent(self, i: int, messages: Arrays) -> Arrays:
        """The messages that this device receives in exchange `i`, from those that it sends."""
        over = self.part.plan.exchanges[i].over
        return messages if self.part.parts(over) == 1 else self.all_to_all(messages, over)

    @abstractmethod
    def all_to_all(self, messages: Arrays, over: str) -> Arrays:
        """The messages that this device receives from the devices along `over`."""

    @abstractmethod
    def order(self, i: int) -> str:
        """The memory order of messages of exchange `i`."""

    @abstractmethod
    def cut(self, array: jax.Array) -> Arrays:
        """An array (component, *order) in parts that are transformed and sent separately."""

    @abstractmethod
    def as_messages(self, packed: Arrays) -> Arrays:
        """Messages from an array for each part of `cut`."""

    @abstractmethod
    def received_planes(self, messages: Arrays, planes: Planes, axis: int) -> Arrays:
        """Some planes of messages, as an array for each part of `cut`."""

    @abstractmethod
    def to_modes(self, travel: Travel, messages: Arrays) -> Arrays:
        """`travel` to modes, in the order in which components are sent."""

    @abstractmethod
    def to_messages(self, travel: Travel, modes: Arrays, *, reducing: bool) -> Arrays:
        """`travel` from modes to messages. `reducing`: values are only reduced, and no products
        follow."""


class MessageArrays(DeviceExchange):
    """An array for each message, because an all-to-all of XLA's CPU client reads and writes every
    message in its own buffer: separate messages need not be joined before the exchange and cut
    after it. All components travel together; with `sequential` one after another, so that only one
    is stored on both sides of an exchange."""

    def all_to_all(self, messages: Arrays, over: str) -> Arrays:
        sent = all_to_all(jnp.concatenate(messages), over, self.part.options.exchange)
        return self.as_messages((sent,))

    def order(self, i: int) -> str:
        return self.part.plan.exchanges[i].order

    def cut(self, array: jax.Array) -> Arrays:
        return (array,)

    def as_messages(self, packed: Arrays) -> Arrays:
        (messages,) = packed
        return tuple(messages[i : i + 1] for i in range(len(messages)))

    def received_planes(self, messages: Arrays, planes: Planes, axis: int) -> Arrays:
        return (jnp.concatenate([planes.of(message, axis) for message in messages]),)

    def to_modes(self, travel: Travel, messages: Arrays) -> Arrays:
        return self._in_turn(travel, messages, 1, 0)

    def to_messages(self, travel: Travel, modes: Arrays, *, reducing: bool) -> Arrays:
        return self._in_turn(travel, modes, 0, 1)

    def _in_turn(self, travel: Travel, arrays: Arrays, axis: int, result_axis: int) -> Arrays:
        """The components are counted along `axis` of `arrays`, and along `result_axis` of the
        results."""
        count = arrays[0].shape[axis]
        if not self.part.options.sequential or count == 1 or not self.part.plan.exchanges:
            return travel(arrays)

        def component(i: int | jax.Array, before: Arrays = ()) -> Arrays:
            parts = tuple(lax.dynamic_slice_in_dim(a, i, 1, axis=axis) for a in arrays)
            return travel(tuple(after(part, before[0]) for part in parts) if before else parts)

        shapes = jax.eval_shape(component, jnp.int32(0))
        results = fillable(shapes, result_axis, count, arrays, zero=self.part.linear)
        before: Arrays = ()
        # Not a loop of XLA's: exchanges in it could start before or after independent ones (see
        # `collectives`).
        for i in range(count):
            pairs = zip(results, component(i, before), strict=True)
            results = tuple(
                lax.dynamic_update_slice_in_dim(array, part, i, axis=result_axis)
                for array, part in pairs
            )
            before = () if self.part.linear else results
        return results


class ComponentArrays(DeviceExchange):
    """An array for each component, so that on GPUs one component is sent while the next is
    transformed, and few are stored both before and after."""

    def all_to_all(self, messages: Arrays, over: str) -> Arrays:
        kind = self.part.options.exchange
        return tuple(all_to_all(message, over, kind) for message in messages)

    def order(self, i: int) -> str:
        """The order in which the later stage stores its arrays, because XLA would bring every
        message into that order by a copy."""
        return self.part.plan.stages[i + 1].order

    def cut(self, array: jax.Array) -> Arrays:
        return tuple(array[i : i + 1] for i in range(len(array)))

    def as_messages(self, packed: Arrays) -> Arrays:
        return packed

    def received_planes(self, messages: Arrays, planes: Planes, axis: int) -> Arrays:
        parts = tuple(planes.of(message, axis) for message in messages)
        if self.part.linear or planes.size == messages[0].shape[axis]:
            return parts
        # The slice gets the layout of the whole array, else XLA transposes the whole array before
        # the visits.
        return tuple(map(in_order, parts))

    @property
    def _ordered(self) -> bool:
        """Whether data dependences order the exchanges of components."""
        return not self.part.linear and self.part.layout.devices > 1

    def to_modes(self, travel: Travel, messages: Arrays) -> Arrays:
        """Sends a component when the last but one is transformed: otherwise XLA would receive all
        components before it transforms one."""
        modes: Arrays = ()
        for number, message in enumerate(messages):
            if number > 1 and self._ordered:
                first = after(message[(slice(1),) * message.ndim], modes[number - 2])
                message = lax.dynamic_update_slice(message, first, (0,) * message.ndim)
            modes += travel((message,))
        return one_array(modes)

    def to_messages(self, travel: Travel, modes: Arrays, *, reducing: bool) -> Arrays:
        """If values are only reduced, begins a component when the last but one is sent; otherwise
        XLA pads all of them at once."""
        if not reducing or not self._ordered:
            return travel(modes)
        messages: Arrays = ()
        for number in range(len(modes[0])):
            part = modes[0][number : number + 1]
            if number > 1:
                part = after(part, messages[number - 2])
            messages += travel((part,))
        return messages


def one_array(parts: Arrays) -> Arrays:
    """One array of all components."""
    return parts if len(parts) == 1 else (jnp.concatenate(parts),)
