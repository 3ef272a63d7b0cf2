"""The rate of copies in memory."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from simulator.cluster.mesh import Device


def copy_bandwidth(devices: Sequence[Device], size: int) -> float:
    """The bytes per second that all devices together read and write while each copies an array of
    `size` bytes. All processes call this."""
    mesh = jax.sharding.Mesh(np.array(devices), ("all",))
    sharding = NamedSharding(mesh, PartitionSpec("all"))
    ones = jax.jit(lambda: jnp.ones((len(devices), size // 4), jnp.float32), out_shardings=sharding)
    copy = jax.jit(lambda a: -a)
    array = jax.block_until_ready(copy(ones()))
    fastest = min(seconds_of(lambda: jax.block_until_ready(copy(array))) for _ in range(10))
    return 2 * array.nbytes / fastest


def seconds_of(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
