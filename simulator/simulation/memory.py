"""The memory of a step, as the compiler states it before anything is allocated."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import jax

from simulator.config import RunConfig

ROOM = 64
"""An upper bound of a program's memory in multiples of the state: existing models need 3 to 20. If this much is free,
nothing is compiled to see whether it fits."""
SMALL = 1 << 30
"""Bytes that every device is assumed to have free: smaller programs skip the check."""

_LIMITS = (  # limit and present use of a control group
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


@dataclass(frozen=True)
class Memory:
    """Bytes that a compiled program needs on one device."""

    resident: int
    """Arguments, and results that do not reuse the arguments' memory: the state."""
    temporary: int

    @property
    def total(self) -> int:
        return self.resident + self.temporary

    @classmethod
    def of(cls, compiled: Any) -> Self:
        analysis = compiled.memory_analysis()
        resident = (
            analysis.argument_size_in_bytes + analysis.output_size_in_bytes - analysis.alias_size_in_bytes
        )
        return cls(resident, analysis.temp_size_in_bytes)


def free_bytes(cluster: Any) -> int | None:
    """Free memory of each device of this process; None if it is unknown."""
    device = cluster.local_devices[0]
    if cluster.platform == "gpu":
        with contextlib.suppress(Exception):  # not every driver reports it
            stats = device.memory_stats()
            return stats["bytes_limit"] - stats["bytes_in_use"]
        return None
    free = _free_host_bytes()
    if free is None:
        return None
    return free // (max(cluster.allocation.local_processes, 1) * len(cluster.local_devices))


def _free_host_bytes(root: Path = Path("/")) -> int | None:
    """Available memory of this host, or of the control group if that is less."""
    available: list[int] = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = (root / "proc/meminfo").read_text().splitlines()
        available.append(1024 * int(next(x for x in lines if x.startswith("MemAvailable")).split()[1]))
    for limit, used in _LIMITS:
        with contextlib.suppress(OSError, ValueError):  # "max": no limit
            available.append(int((root / limit[1:]).read_text()) - int((root / used[1:]).read_text()))
    return min(available, default=None)


def fits(cluster: Any, template: Any, compiled_loop: Callable[[], Any]) -> bool:
    """Whether a step of states like `template` fits in the devices' memory; True if the free memory is unknown. All
    processes call this. `compiled_loop` is called only if memory may be short."""
    held = sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(template))
    most = ROOM * held / len(cluster.devices)
    if most <= SMALL:
        return True
    free = free_everywhere(cluster)
    return free is None or most <= free or Memory.of(compiled_loop()).total <= free


def free_everywhere(cluster: Any) -> int | None:
    """The smallest `free_bytes` of all processes, on every process."""
    return min((f for f in cluster.gather(free_bytes(cluster)) if f is not None), default=None)


def words(count: float, config: RunConfig, points: int, devices: int) -> float:
    """Memory in bytes of one device, as the equivalent number of values of the run's precision per grid point."""
    return count / (8 if config.precision == "double" else 4) / (points / devices)
