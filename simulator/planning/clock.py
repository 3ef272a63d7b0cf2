"""How long a step takes on a machine, from its work."""

from dataclasses import dataclass

from simulator.planning.machines import EXCHANGE_LATENCY, LATENCY, PEER_LATENCY, Machine
from simulator.planning.work import Work


@dataclass(frozen=True)
class Seconds:
    """Of one step, by part: see `Work`."""

    transforms: float
    blocks: float
    modes: float
    exchange: float
    starts: float
    """From one kernel to the next."""

    @property
    def all(self) -> float:
        return self.transforms + self.blocks + self.modes + self.exchange + self.starts


def seconds(work: Work, machine: Machine, precision: str, devices: int) -> Seconds:
    """A device does one thing after the other: it reads and writes at its bandwidth (in blocks, on a processor, at
    that of its cache), or transforms at its rate where that is slower, and sends to devices of its own node and of
    others at the same time."""
    cached = machine.block_bandwidth
    arithmetic = work.flops / machine.flops(precision)
    moving = 0.0 if cached else work.transforms / machine.bandwidth
    return Seconds(
        transforms=max(arithmetic, moving),
        blocks=work.blocks / (cached or machine.bandwidth) + work.parcels / machine.bandwidth,
        modes=work.modes / machine.bandwidth,
        exchange=_exchange(work, machine, devices),
        starts=work.kernels * LATENCY[machine.platform],
    )


def _exchange(work: Work, machine: Machine, devices: int) -> float:
    if devices == 1 or not work.exchanges:
        return 0.0
    inside = min(devices, machine.per_node)
    near, far = (inside - 1) / devices, (devices - inside) / devices
    on_node = work.sent * near / machine.link
    # A pencil's exchanges stay among fewer devices; those of a row may all be on one node, which this leaves out.
    off_node = work.sent * far / (machine.network / machine.per_node)
    return max(on_node, off_node) + work.exchanges * (EXCHANGE_LATENCY + devices**0.5 * PEER_LATENCY)
