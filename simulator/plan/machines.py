"""The rates of devices: a table of known ones, and this machine as measured.

The table, `devices.yaml`, holds peaks from the vendors' data sheets; `EFFICIENCY` is the fraction of them with which
a step is planned. A device is what a run calls one: a GPU, half of an MI250X, a core of a processor.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from simulator.errors import UserError
from simulator.plan.abstract_run import Platform

GB, TB = 1e9, 1e12
DEVICES = Path(__file__).with_name("devices.yaml")
START, EXCHANGE_LATENCY = 5e-6, 20e-6
"""Seconds from one kernel of a GPU to the next, and of an all-to-all of short messages."""


@dataclass(frozen=True)
class Machine:
    name: str
    platform: Platform
    memory: float
    """Memory of one device in bytes."""
    bandwidth: float
    """Bytes per second that a device reads and writes while all devices of a node work."""
    double: float
    """Operations per second in double precision."""
    single: float
    per_node: int
    """Number of devices per node."""
    link: float
    """Bytes per second that a device sends to others on its node."""
    network: float
    """Bytes per second that a node sends to others."""
    source: str
    block_bandwidth: float | None = None
    """Bytes per second for arrays of a block's size, if these stay in a cache."""
    measured: bool = False
    start: float = START
    """Seconds from one kernel to the next."""
    exchange_latency: float = EXCHANGE_LATENCY
    """Seconds of an all-to-all of short messages, without those for each participating device."""
    program: Mapping[str, Any] | None = field(default=None, repr=False)
    """XLA's description of the device, for compilation without one."""

    def flops(self, precision: str) -> float:
        return self.double if precision == "double" else self.single


def _known() -> dict[str, Machine]:
    table = yaml.safe_load(DEVICES.read_text())
    return {name: (_processor if "cores" in about else _gpu)(name, **about) for name, about in table.items()}


def _gpu(
    name: str, *, memory: float, bandwidth: float, double: float, single: float, per_node: int, link: float,
    network: float, source: str, program: Mapping[str, Any] | None = None,
) -> Machine:  # fmt: skip
    return Machine(
        name, "gpu", memory * GB, bandwidth * GB, double * TB, single * TB, per_node, link * GB, network * GB, source,
        program=program,
    )  # fmt: skip


def _processor(name: str, *, cores: int, memory: float, bandwidth: float, source: str) -> Machine:
    """A node with two processors; a device is a core. Transforms run at 4 (8 in single precision) operations per
    nanosecond and core, and blocks that stay in a core's cache at 10 GB/s: measured with XLA on cores of that
    kind."""
    each = bandwidth * GB / cores
    return Machine(
        name,
        "cpu",
        memory * GB / cores,
        each,
        4e9,
        8e9,
        cores,
        each / 2,
        25 * GB,
        source,
        block_bandwidth=10 * GB,
    )


KNOWN = _known()

USABLE_MEMORY = {"gpu": 0.9, "cpu": 0.9}
"""The fraction of a device's memory that a run may use: on GPUs that of XLA's pool."""
EFFICIENCY = {"bandwidth": 0.8, "flops": 0.3, "link": 0.6, "network": 0.6}
"""The fraction of the table's peak with which a step is planned."""
PEER_LATENCY = 1e-6
"""Seconds of an all-to-all for each participating device."""


def machine(name: str, where: str = "--device") -> Machine:
    """The device of the table, by its name. Raises UserError, blaming `where`, if there is none."""
    word = name.strip().lower().replace("_", "-").removeprefix("nvidia-").removeprefix("amd-")
    if word not in KNOWN:
        raise UserError(
            f"{where}: {name} is not known; {', '.join(KNOWN)} are, others can be described in {DEVICES}"
        )
    peak, fraction = KNOWN[word], EFFICIENCY
    return replace(
        peak,
        bandwidth=peak.bandwidth * fraction["bandwidth"],
        double=peak.double * (fraction["flops"] if peak.platform == "gpu" else 1),
        single=peak.single * (fraction["flops"] if peak.platform == "gpu" else 1),
        link=peak.link * fraction["link"],
        network=peak.network * fraction["network"],
    )
