"""What devices can do: a table of known ones, and this machine measured.

Numbers of the table are peaks from the vendors' data sheets; `EFFICIENCY` says what share of them a step is planned
with. A device is what a run calls one: a GPU, half of an MI250X, a core of a processor.
"""

from dataclasses import dataclass, replace

from simulator.errors import UserError
from simulator.planning.paper import Platform

GB, TB = 1e9, 1e12


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

    def flops(self, precision: str) -> float:
        return self.double if precision == "double" else self.single


def _epyc(name: str, cores: int, memory: float, bandwidth: float, source: str) -> Machine:
    """A node of two processors; a device is a core. Transforms run at 4 (8 in single) operations per nanosecond and
    core, and blocks that stay in a core's cache at 10 GB/s: measured with XLA on cores of that kind."""
    return Machine(
        name, "cpu", memory / cores, bandwidth / cores, 4e9, 8e9, cores, bandwidth / cores / 2, 25 * GB, source,
        block_bandwidth=10 * GB,
    )  # fmt: skip


KNOWN = {
    machine.name: machine
    for machine in (
        Machine(
            "v100", "gpu", 32 * GB, 900 * GB, 7.8 * TB, 15.7 * TB, 4, 150 * GB, 25 * GB,
            "NVIDIA V100 data sheet (SXM2, 32 GB); NVLink 300 GB/s both ways; two EDR ports a node",
        ),
        Machine(
            "a100-40", "gpu", 40 * GB, 1555 * GB, 9.7 * TB, 19.5 * TB, 4, 300 * GB, 100 * GB,
            "NVIDIA A100 data sheet (SXM4, 40 GB); NVLink 600 GB/s both ways; four HDR ports a node",
        ),
        Machine(
            "a100-80", "gpu", 80 * GB, 2039 * GB, 9.7 * TB, 19.5 * TB, 4, 300 * GB, 100 * GB,
            "NVIDIA A100 data sheet (SXM4, 80 GB); NVLink 600 GB/s both ways; four HDR ports a node",
        ),
        Machine(
            "h100", "gpu", 80 * GB, 3350 * GB, 34 * TB, 67 * TB, 4, 450 * GB, 200 * GB,
            "NVIDIA H100 data sheet (SXM5); NVLink 900 GB/s both ways; four NDR ports a node",
        ),
        Machine(
            "h200", "gpu", 141 * GB, 4800 * GB, 34 * TB, 67 * TB, 4, 450 * GB, 200 * GB,
            "NVIDIA H200 data sheet (SXM); NVLink 900 GB/s both ways; four NDR ports a node",
        ),
        Machine(
            "mi250x", "gpu", 64 * GB, 1638 * GB, 23.9 * TB, 23.9 * TB, 8, 100 * GB, 100 * GB,
            "AMD Instinct MI250X data sheet, one of its two dies; four Slingshot ports of 200 Gbit/s a node",
        ),
        _epyc("epyc-7763", 128, 512 * GB, 409.6 * GB, "AMD EPYC 7763 data sheet: 2 x 64 cores, 8 x DDR4-3200 each"),
        _epyc("epyc-9654", 192, 768 * GB, 921.6 * GB, "AMD EPYC 9654 data sheet: 2 x 96 cores, 12 x DDR5-4800 each"),
    )
}  # fmt: skip

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
        raise UserError(f"{where}: {name} is not known; {', '.join(KNOWN)} are")
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
