"""Latency and bandwidth between two processes, over the transport that a run would use."""

import time
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from simulator.cluster.start import Cluster

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
