"""Schedules: what a device transforms, sends and visits, and in which order.

A schedule is composed of a local stage (native or XLA), an exchange (an array for each message or
for each component) and, for XLA's stages, an order of visits (blocks or whole). All methods are
traced inside a `Program`."""

from dataclasses import dataclass
from typing import Self

import jax

from simulator.spectral.grid import AXES
from simulator.spectral.plans import XYZ, Decomposition
from simulator.spectral.schedules.device_part import Arrays, DevicePart, Visited
from simulator.spectral.schedules.exchange import ComponentArrays, DeviceExchange, MessageArrays
from simulator.spectral.schedules.native import ORDER, NativeStages
from simulator.spectral.schedules.pointwise import PointwiseCall
from simulator.spectral.schedules.visits import AtOnce, InCache
from simulator.spectral.schedules.xla import XlaStages


def order_of_modes(plan: Decomposition, kernels: str) -> str:
    """The memory order of modes."""
    return ORDER if kernels == "native" else plan.order


@dataclass(frozen=True, eq=False)
class DeviceSchedule:
    """The transforms of one device's arrays."""

    part: DevicePart
    stages: NativeStages | XlaStages
    exchange: DeviceExchange

    @classmethod
    def of(cls, part: DevicePart) -> Self:
        """The schedule for the kernels and the platform of `part.options`."""
        if part.options.kernels == "native":
            return cls(part, NativeStages(part), MessageArrays(part))
        if part.options.platform == "cpu":
            exchange = MessageArrays(part)
            return cls(part, XlaStages(part, exchange, InCache(part)), exchange)
        exchange = ComponentArrays(part)
        return cls(part, XlaStages(part, exchange, AtOnce(part)), exchange)

    def of_fields(self, factor: float = 1.0) -> Self:
        """The schedule of `forward` and `inverse`; modes are coefficients times `factor`."""
        options, plan = self.part.options, self.part.plan
        by_xla = options.platform == "cpu" and options.kernels == "xla"
        if by_xla and self.part.layout.devices == 1 and options.block is None:
            # A call of the FFT over a whole array uses all cores, while XLA's loop bodies use one;
            # and a single call over all axes makes the fewest passes over memory.
            plan = XYZ
        return self.of(self.part.of_fields(plan, factor))

    def forward(self, values: jax.Array) -> jax.Array:
        """Modes (component, *layout.order) from values (component, x, y, z)."""
        return self._to_modes(self.stages.from_values(values))

    def inverse(self, modes: jax.Array, order: str = AXES) -> jax.Array:
        """Values (component, *order), zero in padding, from modes (component, *layout.order)."""
        messages = self._to_messages(modes)
        return self.stages.to_values(messages, len(modes), order)

    def inverse_kept(self, modes: jax.Array) -> jax.Array:
        """`inverse` in the order of the values that `evaluate` keeps."""
        return self.inverse(modes, self.stages.values_order or AXES)

    def evaluate(self, modes: jax.Array, call: PointwiseCall) -> Visited:
        """Modes of pointwise products of the values of `modes` (none without products), reductions,
        and values to keep."""
        messages = self._to_messages(modes, reducing=not call.outputs)
        sent, reduced, values = self.stages.products(messages, call)
        products = (self._to_modes(sent),) if sent else ()
        return products, self.part.over_devices(reduced), values

    def _to_modes(self, messages: Arrays) -> jax.Array:
        """All stages but the first: from the messages that the first stage sends to modes."""
        (modes,) = self.exchange.to_modes(self._forward, messages)
        return modes

    def _forward(self, messages: Arrays) -> Arrays:
        for i in range(1, len(self.part.plan.stages)):
            messages = self.stages.forward(i, self.exchange.sent(i - 1, messages))
        return messages[:1]

    def _to_messages(self, modes: jax.Array, *, reducing: bool = False) -> Arrays:
        """All stages but the first: from modes to the messages that the first stage receives."""
        return self.exchange.to_messages(self._inverse, (modes,), reducing=reducing)

    def _inverse(self, modes: Arrays) -> Arrays:
        messages = modes
        for i in range(self.part.last, 0, -1):
            sent = self.stages.inverse(i, messages, len(modes[0]))
            messages = self.exchange.sent(i - 1, sent)
        return messages
