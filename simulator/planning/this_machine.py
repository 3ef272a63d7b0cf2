"""Measures this machine: a copy, copies of a block, and a Fourier transform, a fraction of a second each."""

import os
import time
from collections.abc import Callable
from typing import Any

from simulator.planning.abstract_run import prepare_virtual_devices
from simulator.planning.machines import KNOWN, Machine
from simulator.planning.traffic import traffic
from simulator.processes.hardware import usable_cores
from simulator.spectral import Grid, Modes, make_transform, usable_counts

_COPY_BYTES = 64 << 20
_BLOCK_BYTES = 4 << 20
_SIDE = 64
"""Points along an axis of the timed transforms."""


def this_machine() -> Machine:
    """The devices that a run would take here by default. Starts JAX on them."""
    import jax

    cores = usable_cores()
    jax.config.update("jax_enable_x64", True)  # as in every run
    prepare_virtual_devices(gpus=True)
    devices = jax.devices()
    if devices[0].platform == "gpu":
        return _gpu(devices)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    devices = devices[:cores]
    count = len(devices)
    copy, block = _copy_rate(devices), _block_rate(devices)
    double, single = (_transform_rate(devices, kind) for kind in ("complex128", "complex64"))
    return Machine(
        "this machine", "cpu", memory / count, copy, double, single, count, copy / 2, copy * count / 2,
        f"measured: {count} cores", block_bandwidth=max(block, copy), measured=True,
    )  # fmt: skip


def _gpu(devices: Any) -> Machine:
    kind = devices[0].device_kind.lower()
    stats = devices[0].memory_stats() or {}
    known = next((m for m in KNOWN.values() if m.name.partition("-")[0] in kind), KNOWN["a100-80"])
    copy = _copy_rate(devices)
    double, single = (_transform_rate(devices, k) for k in ("complex128", "complex64"))
    memory = stats.get("bytes_limit", 0.9 * known.memory) / 0.9
    return Machine(
        "this machine", "gpu", memory, copy, double, single, len(devices), known.link, known.network,
        f"measured: {len(devices)} x {devices[0].device_kind}; links as those of {known.name}", measured=True,
    )  # fmt: skip


def _spread(devices: Any, shape: tuple[int, ...], dtype: str) -> Any:
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    sharding = NamedSharding(Mesh(np.array(devices), ("d",)), PartitionSpec("d"))
    return jax.jit(lambda: jax.numpy.ones((len(devices), *shape), dtype), out_shardings=sharding)()


def _seconds(function: Callable[[Any], Any], array: Any) -> float:
    """The time in seconds of a function of each device's part."""
    import jax

    run = jax.jit(jax.shard_map(function, in_specs=array.sharding.spec, out_specs=array.sharding.spec,
                                mesh=array.sharding.mesh))  # fmt: skip
    return _shortest(lambda: run(array), 3)


def _shortest(call: Callable[[], Any], calls: int) -> float:
    """The time in seconds of the shortest of several calls, after one that is not counted."""
    import jax

    jax.block_until_ready(call())
    best = float("inf")
    for _ in range(calls):
        start = time.perf_counter()
        jax.block_until_ready(call())
        best = min(best, time.perf_counter() - start)
    return best


def _copy_rate(devices: Any) -> float:
    """Bytes per second that a device reads and writes while all devices work. The arrays are far larger than a cache,
    and were written before, since the system allocates memory at the first write."""
    from jax import lax

    turns = 2
    array = _spread(devices, (_COPY_BYTES // 8,), "float64")

    def turn(a: Any, _: Any) -> tuple[Any, None]:
        return lax.optimization_barrier(a * 1.0000001), None

    return 2 * _COPY_BYTES * turns / _seconds(lambda a: lax.scan(turn, a, length=turns)[0], array)


def _block_rate(devices: Any) -> float:
    """Bytes per second of the work on a block besides its transforms: complex numbers are transposed and scaled."""
    from jax import lax

    n = 64
    planes, turns = _BLOCK_BYTES // (16 * n * n), 20
    array = _spread(devices, (planes, n, n), "complex128")

    def turn(a: Any, _: Any) -> tuple[Any, None]:
        return lax.optimization_barrier(a.transpose(0, 1, 3, 2) * 1.0000001), None

    return 2 * _BLOCK_BYTES * turns / _seconds(lambda a: lax.scan(turn, a, length=turns)[0], array)


def _transform_rate(devices: Any, dtype: str) -> float:
    """Operations per second and device of a run's own transforms, forward and inverse, all devices at work:
    5 N log2 N for each line of N points, reading, writing and exchanging included."""
    import jax
    import numpy as np

    kind = np.dtype(dtype).type(0).real.dtype
    grid = Grid((_SIDE, _SIDE, _SIDE), (1.0, 1.0, 1.0))
    count = max(usable_counts(Modes(grid), len(devices)))
    transform = make_transform(grid, devices[:count], kind)
    values = jax.ShapeDtypeStruct(
        (3, *transform.physical.shape), kind, sharding=transform.physical.sharding(4)
    )
    run = jax.jit(lambda a: transform.inverse(transform.forward(a))).lower(values).compile()
    array = jax.jit(lambda: jax.numpy.ones(values.shape, kind), out_shardings=values.sharding)()
    return traffic(run).flops / _shortest(lambda: run(array), 5) * count / len(devices)
