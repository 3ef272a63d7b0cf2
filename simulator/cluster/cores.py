"""The cores of a process, and the size of XLA's pool of threads."""

import contextlib
import os
from collections.abc import Iterator
from typing import Literal

from simulator.cluster.allocation import Allocation
from simulator.cluster.hardware import usable_cores

POOL = "NPROC"
"""XLA's CPU client reads the size of its pool from this variable when it starts."""

Threads = int | Literal["auto"]


def cores_of(allocation: Allocation) -> int:
    """The number of cores that this process may use: those that Slurm bound it to, or its share of
    the cores of a host with several local processes."""
    cores = usable_cores()
    if allocation.cores is not None:
        return min(cores, allocation.cores)
    return max(1, cores // allocation.local_processes)


def threads_of(threads: Threads, count: int | Literal["auto"], cores: int) -> int:
    """The number of threads of a processor's device, by `devices.threads` and `devices.count`: the
    only device of a process uses its `cores`, and the virtual devices that the user counts have
    one thread each."""
    if threads != "auto":
        return threads
    return cores if count == "auto" else 1


@contextlib.contextmanager
def pool_of(threads: int | None) -> Iterator[None]:
    """JAX's CPU backend, if it starts in this context, gets a pool of `threads` threads; with None
    one for each core."""
    before = os.environ.get(POOL)
    if threads is not None:
        os.environ[POOL] = str(threads)
    try:
        yield
    finally:
        if before is not None:
            os.environ[POOL] = before
        elif threads is not None:
            del os.environ[POOL]
