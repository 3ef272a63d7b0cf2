"""What devices can do: a table of known ones, and this machine measured.

Numbers of the table, `devices.yaml`, are peaks from the vendors' data sheets; `EFFICIENCY` says what share of them a
step is planned with. A device is what a run calls one: a GPU, half of an MI250X, a core of a processor.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from simulator.errors import UserError
from simulator.planning.abstract_run import Platform

GB, TB = 1e9, 1e12
DEVICES = Path(__file__).with_name("devices.yaml")


@dataclass(frozen=True)
class Machine:
    name: str
    platform: Platform
    memory: float
    """Bytes of one device."""
    bandwidth: float
    """Bytes per second that a device reads and writes, all devices of a node at work."""
    double: float
    """Operations per second, in double precision."""
    single: float
    per_node: int
    """Devices of a node."""
    link: float
    """Bytes per second that a device sends to others of its node."""
    network: float
    """Bytes per second that a node sends to others."""
    source: str
    block_bandwidth: float | None = None
    """Bytes per second of arrays of a block's size, where these stay in a cache."""
    measured: bool = False
    program: Mapping[str, Any] | None = field(default=None, repr=False)
    """What XLA has to know to compile for such a device where there is none."""

    def flops(self, precision: str) -> float:
        return self.double if precision == "double" else self.single


def _known() -> dict[str, Machine]:
    found = yaml.safe_load(DEVICES.read_text())
    return {name: (_processor if "cores" in about else _gpu)(name, **about) for name, about in found.items()}


def _gpu(
    name: str, *, memory: float, bandwidth: float, double: float, single: float, per_node: int, link: float,
    network: float, source: str, program: Mapping[str, Any] | None = None,
) -> Machine:  # fmt: skip
    return Machine(
        name, "gpu", memory * GB, bandwidth * GB, double * TB, single * TB, per_node, link * GB, network * GB, source,
        program=program,
    )  # fmt: skip


def _processor(name: str, *, cores: int, memory: float, bandwidth: float, source: str) -> Machine:
    """A node of two processors; a device is a core. Transforms run at 4 (8 in single) operations per nanosecond and
    core, and blocks that stay in a core's cache at 10 GB/s: measured with XLA on cores of that kind."""
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
"""The share of a device's memory that a run takes: on GPUs what the program gives XLA's pool."""
EFFICIENCY = {"bandwidth": 0.8, "flops": 0.3, "link": 0.6, "network": 0.6}
"""The share of a table's peak that a step is planned with."""
LATENCY = {"cpu": 5e-6, "gpu": 5e-6}
"""Seconds from one kernel to the next."""
EXCHANGE_LATENCY, PEER_LATENCY = 20e-6, 1e-6
"""Seconds of an all-to-all of small messages, and for each device that takes part."""


def machine(name: str, where: str = "--device") -> Machine:
    """The device of the table, by its name. Raises UserError, blaming `where`, if there is none."""
    word = name.strip().lower().replace("_", "-").removeprefix("nvidia-").removeprefix("amd-")
    if word not in KNOWN:
        raise UserError(
            f"{where}: {name} is not known; {', '.join(KNOWN)} are, others can be described in {DEVICES}"
        )
    found = KNOWN[word]
    share = EFFICIENCY
    return replace(
        found,
        bandwidth=found.bandwidth * share["bandwidth"],
        double=found.double * (share["flops"] if found.platform == "gpu" else 1),
        single=found.single * (share["flops"] if found.platform == "gpu" else 1),
        link=found.link * share["link"],
        network=found.network * share["network"],
    )
