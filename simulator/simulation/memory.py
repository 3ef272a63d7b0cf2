"""The memory of a step, from what the compiler says before anything is allocated."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import jax

from simulator.config import RunConfig

ROOM = 64
"""No program of a run holds so many times its state: 3 to 20 in the models that there are. Where so much is free,
nothing is compiled to see whether it fits."""
SMALL = 1 << 30
"""Bytes that every device has free: programs that need less are not held against the free memory."""

_LIMITS = (  # of a control group: what it may use, and what it uses
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


@dataclass(frozen=True)
class Memory:
    """Bytes that a compiled program needs on one device."""

    resident: int
    """Of its arguments, and of results that do not take their place: the state."""
    temporary: int

    @property
    def total(self) -> int:
        return self.resident + self.temporary

    @classmethod
    def of(cls, compiled: Any) -> Self:
        found = compiled.memory_analysis()
        resident = found.argument_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes
        return cls(resident, found.temp_size_in_bytes)


def free_bytes(cluster: Any) -> int | None:
    """What each device of this process may still take; None where nothing tells."""
    device = cluster.local_devices[0]
    if cluster.platform == "gpu":
        with contextlib.suppress(Exception):  # not every driver tells
            found = device.memory_stats()
            return found["bytes_limit"] - found["bytes_in_use"]
        return None
    free = _free_host_bytes()
    if free is None:
        return None
    return free // (max(cluster.allocation.local_processes, 1) * len(cluster.local_devices))


def _free_host_bytes(root: Path = Path("/")) -> int | None:
    """Memory of this host that may still be taken, or what the control group leaves of it."""
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = (root / "proc/meminfo").read_text().splitlines()
        found.append(1024 * int(next(x for x in lines if x.startswith("MemAvailable")).split()[1]))
    for limit, used in _LIMITS:
        with contextlib.suppress(OSError, ValueError):  # "max": no limit
            found.append(int((root / limit[1:]).read_text()) - int((root / used[1:]).read_text()))
    return min(found, default=None)


def fits(cluster: Any, template: Any, compiled_loop: Callable[[], Any]) -> bool:
    """Whether a step of states like `template` fits in the devices' memory; True where nothing tells. All processes
    call. `compiled_loop` is called only where there may be too little."""
    held = sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(template))
    most = ROOM * held / len(cluster.devices)
    if most <= SMALL:
        return True
    free = free_everywhere(cluster)
    return free is None or most <= free or Memory.of(compiled_loop()).total <= free


def free_everywhere(cluster: Any) -> int | None:
    """`free_bytes` where it is least, on every process."""
    return min((f for f in cluster.gather(free_bytes(cluster)) if f is not None), default=None)


def words(count: float, config: RunConfig, points: int, devices: int) -> float:
    """Bytes of one device as numbers of the run's precision for each of its grid points."""
    return count / (8 if config.precision == "double" else 4) / (points / devices)
