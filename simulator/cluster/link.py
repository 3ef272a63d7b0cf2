"""Latency and bandwidth between two processes, over the transport that a run would use.

`python -m simulator.cluster.link FOLDER` measures gloo, in processes of its own, because JAX has
one transport in a process; `beside` starts it."""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from simulator.cluster import discover
from simulator.cluster.allocation import COORDINATOR, Allocation
from simulator.cluster.failure import contained
from simulator.cluster.mpi import LIBRARY
from simulator.cluster.start import Cluster, Meeting, start

_LARGE = 4 << 20  # bytes
_TIMES = {8: 200, _LARGE: 10}


@dataclass(frozen=True)
class Link:
    """Seconds of the smallest exchange of two processes, and bytes a second each way of a large
    one."""

    latency: float
    bandwidth: float

    def __str__(self) -> str:
        return f"{1e6 * self.latency:.3g} us, {self.bandwidth / 1e9:.2g} GB/s each way"


def measured_link(cluster: Cluster) -> Link:
    """Measures the link of the first two processes. All processes call this."""
    seconds = {size: _seconds(cluster, size, times) for size, times in _TIMES.items()}
    return Link(seconds[8], _LARGE / seconds[_LARGE])


def _seconds(cluster: Cluster, size: int, times: int) -> float:
    """The time of one exchange of `size` bytes, the shortest of three averages."""
    part = PartitionSpec("process")

    @jax.jit
    @partial(jax.shard_map, mesh=cluster.processes, in_specs=(), out_specs=part)
    def exchanges() -> jax.Array:
        values = jax.lax.pcast(jnp.zeros((1, size // 8)), "process", to="varying")
        swap = partial(jax.lax.ppermute, axis_name="process", perm=[(0, 1), (1, 0)])
        return jax.lax.fori_loop(0, times, lambda _, v: swap(v), values)

    best = np.inf
    for _ in range(3):
        cluster.barrier("link")
        began = time.perf_counter()
        jax.block_until_ready(exchanges())
        best = min(best, time.perf_counter() - began)
    return best / times


def mpi_offered() -> bool:
    """Whether this process may use MPI, so that gloo is something to compare with."""
    return bool(os.environ.get(LIBRARY))


def beside(allocation: Allocation, folder: Path | None) -> Link | None:
    """The link over gloo, measured by a process beside each process; None on all processes but the
    first, or if it fails. All processes call this, before they meet."""
    environ = {name: text for name, text in os.environ.items() if name != LIBRARY}
    if allocation.coordinator is not None:
        environ[COORDINATOR] = allocation.coordinator
    folders = [] if folder is None else [str(folder)]
    process = subprocess.run(
        [sys.executable, "-m", "simulator.cluster.link", *folders],
        env=environ,
        capture_output=True,
        text=True,
    )
    lines = process.stdout.splitlines()
    return Link(**json.loads(lines[-1])) if process.returncode == 0 and lines else None


def _main() -> int:
    allocation = discover(os.environ)
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    with contained(allocation):
        cluster = start(
            allocation,
            platform="cpu",
            count=allocation.num_processes,
            meet=Meeting(folder, transport="gloo"),
            report=lambda line: None,
        )
        link = measured_link(cluster)
        if cluster.is_first:
            print(json.dumps(asdict(link)))
        cluster.close()
    return 0


if __name__ == "__main__":
    sys.exit(_main())
