"""The duration of a step on a machine, from the traffic of its compiled program and the machine's rates."""

from dataclasses import dataclass

from simulator.plan.machines import PEER_LATENCY, Machine
from simulator.plan.traffic import Traffic


@dataclass(frozen=True)
class Seconds:
    """The duration of one step, by part: see `Traffic`."""

    transforms: float
    blocks: float
    fields: float
    exchange: float
    starts: float
    """Time between one kernel and the next."""

    @property
    def all(self) -> float:
        return self.transforms + self.blocks + self.fields + self.exchange + self.starts


def seconds(moved: Traffic, machine: Machine, precision: str, devices: int) -> Seconds:
    """Assumes that a device does one thing after the other: it reads and writes at its bandwidth (in blocks, on a
    processor, at that of its cache), or transforms at its rate if that is slower, and sends to devices on its own
    node and on others at the same time."""
    cached = machine.block_bandwidth
    arithmetic = moved.flops / machine.flops(precision)
    moving = moved.transforms / cached if cached else moved.passes / machine.bandwidth
    return Seconds(
        transforms=max(arithmetic, moving),
        blocks=moved.blocks / (cached or machine.bandwidth),
        fields=moved.fields / machine.bandwidth,
        exchange=_exchange(moved, machine, devices),
        starts=moved.kernels * machine.start,
    )


def _exchange(moved: Traffic, machine: Machine, devices: int) -> float:
    if devices == 1 or not moved.exchanges:
        return 0.0
    inside = min(devices, machine.per_node)
    near, far = (inside - 1) / devices, (devices - inside) / devices
    # Sent bytes as if they were distributed evenly over all devices, including the device itself.
    sent = moved.sent * devices / (devices - 1)
    on_node = sent * near / machine.link
    # A pencil's exchanges involve fewer devices; those of a row may all be on one node, which is neglected here.
    off_node = sent * far / (machine.network / machine.per_node)
    return max(on_node, off_node) + moved.exchanges * (machine.exchange_latency + devices**0.5 * PEER_LATENCY)
