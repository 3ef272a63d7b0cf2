"""Measures this machine with a run's own kinds of work: transforms, arithmetic on modes, exchanges and short kernels.

All of it takes a few seconds. Rates depend on the number of devices at work, which share memory and caches.
"""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from simulator.plan.abstract_run import prepare_virtual_devices
from simulator.plan.machines import EXCHANGE_LATENCY, KNOWN, Machine
from simulator.plan.traffic import Traffic, traffic
from simulator.processes.environment import keep_freed_memory
from simulator.processes.hardware import usable_cores
from simulator.spectral import Grid, Local, Modes, Points, Transform, make_transform, operators, usable_counts

_COPY_BYTES = 64 << 20
_MESSAGE_BYTES = 4 << 20
_SIDE, _SMALL_SIDE, _LARGE_SIDE = 64, 32, 128
"""Points along an axis of the timed transforms, and of two fields: one of the size of a block, and a whole one."""
_BLOCKS, _KERNELS, _EXCHANGES = 400, 10000, 20
"""Turns of the loops in which blocks, short kernels and exchanges are timed: several milliseconds."""
_SHORT = 1024
"""Numbers of an array that takes no time; XLA makes one kernel of a loop over less."""
_ROUNDS, _SECONDS = 3, 0.05
"""Each program is called for so many seconds, in so many rounds; the shortest call counts."""

Clock = Callable[[], float]


def this_machine(
    devices: int | None = None, precision: str = "double", clock: Clock = time.perf_counter
) -> Machine:
    """The devices that a run would take here. Starts JAX on them.

    devices: number of devices of the run; by default all. precision: that of the run. clock: seconds of a device at
    work; where others work on the same cores, those that this process had of them.
    """
    import jax

    cores = usable_cores()
    jax.config.update("jax_enable_x64", True)  # as in every run
    prepare_virtual_devices(gpus=True)
    present = jax.devices()
    if present[0].platform == "gpu":
        return _gpu(present, precision)
    keep_freed_memory(os.environ)  # as in every run
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    used = present[: min(cores, devices or cores)]
    trials = {
        "sums": _sums(used, precision),
        "projections": _projections(used, _LARGE_SIDE, precision, 4),
        "blocks": _projections(used, _SMALL_SIDE, precision, _BLOCKS),
        "transform": _transforms(used, precision),
        "kernel": _kernels(used),
    }
    if len(used) > 1:
        trials |= {
            "message": _messages(used, 8 * len(used), 20 * _EXCHANGES),
            "messages": _messages(used, _MESSAGE_BYTES, _EXCHANGES),
        }
    took = _shortest({name: trial.call for name, trial in trials.items()}, clock)

    def rate(*names: str) -> float:
        return sum(trials[name].moved.bytes for name in names) / sum(took[name] for name in names)

    bandwidth = rate("sums", "projections", "projections")  # a stage takes a curl and projects its products
    latency, link = EXCHANGE_LATENCY, bandwidth / 2
    if len(used) > 1:
        latency = took["message"] / trials["message"].moved.exchanges
        moved = trials["messages"].moved
        # An exchange is a copy, whose reading and writing is counted as that of arrays: the rest is that of sending.
        beyond = took["messages"] - latency * moved.exchanges - moved.bytes / bandwidth
        link = moved.sent / max(beyond, took["messages"] / 1000)
    block = max(rate("blocks"), bandwidth)
    flops = _flops(trials["transform"].moved, took["transform"], bandwidth, block)
    return Machine(
        "this machine", "cpu", memory / cores, bandwidth, flops, flops, cores, link, link * cores,
        f"measured: {cores} cores", block_bandwidth=block, measured=True,
        start=took["kernel"] / trials["kernel"].moved.kernels, exchange_latency=latency,
    )  # fmt: skip


def _gpu(devices: Any, precision: str) -> Machine:
    kind = devices[0].device_kind.lower()
    stats = devices[0].memory_stats() or {}
    known = next((m for m in KNOWN.values() if m.name.partition("-")[0] in kind), KNOWN["a100-80"])
    copies, transforms = _copies(devices), _transforms(devices, precision)
    took = _shortest({"copies": copies.call, "transforms": transforms.call}, time.perf_counter)
    copy = copies.moved.bytes / took["copies"]
    flops = _flops(transforms.moved, took["transforms"], copy, copy)
    memory = stats.get("bytes_limit", 0.9 * known.memory) / 0.9
    return Machine(
        "this machine", "gpu", memory, copy, flops, flops, len(devices), known.link, known.network,
        f"measured: {len(devices)} x {devices[0].device_kind}; links as those of {known.name}", measured=True,
    )  # fmt: skip


def _flops(moved: Traffic, took: float, bandwidth: float, block: float) -> float:
    """Operations per second and device of transforms, their own reading and writing included, that of blocks and
    arrays around them left out."""
    return moved.flops / max(took - moved.fields / bandwidth - moved.blocks / block, took / 2)


class _Trial(NamedTuple):
    """A program to be timed, and its traffic on one device."""

    call: Callable[[], Any]
    moved: Traffic


def _trial(
    function: Callable[[Any], Any], shape: tuple[int, ...], dtype: Any, sharding: Any, turns: int
) -> _Trial:
    """The function of a sharded array applied to its result `turns` times, in a loop on the devices."""
    import jax
    from jax import lax

    def again(array: Any) -> Any:
        return lax.scan(lambda a, _: (lax.optimization_barrier(function(a)), None), array, length=turns)[0]

    array = jax.jit(lambda: jax.numpy.ones(shape, dtype), out_shardings=sharding)()
    run = jax.jit(again).lower(array).compile()
    return _Trial(lambda: run(array), traffic(run))


def _on_each(devices: Any, function: Callable[[Any], Any], shape: tuple[int, ...], turns: int) -> _Trial:
    """A function of each device's part, an array of this shape."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh, spec = Mesh(np.array(devices), ("d",)), PartitionSpec("d")
    each = jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec)
    whole = (shape[0] * len(devices), *shape[1:])
    return _trial(each, whole, np.float64, NamedSharding(mesh, spec), turns)


def _shortest(calls: Mapping[str, Callable[[], Any]], clock: Clock) -> dict[str, float]:
    """Seconds of the shortest call of each program, in rounds, since a disturbance may outlast a program."""
    import jax

    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        jax.block_until_ready(call())
    for _ in range(_ROUNDS):
        for name, call in calls.items():
            end, first = time.perf_counter() + _SECONDS, True
            while first or time.perf_counter() < end:
                start, first = clock(), False
                jax.block_until_ready(call())
                best[name] = min(best[name], clock() - start)
    return best


def _copies(devices: Any) -> _Trial:
    """Copies of arrays that are far larger than a cache."""
    return _on_each(devices, lambda a: a * 1.0000001, (_COPY_BYTES // 8,), 2)


def _transform(devices: Any, side: int, precision: str) -> Transform:
    import numpy as np

    grid = Grid((side, side, side), (1.0, 1.0, 1.0))
    count = max(usable_counts(Modes(grid), len(devices)))
    return make_transform(grid, devices[:count], np.float64 if precision == "double" else np.float32)


def _sums(devices: Any, precision: str) -> _Trial:
    """Sums of the modes of a vector, as of an integrator's stages."""
    return _of_modes(devices, _LARGE_SIDE, precision, lambda t, a: 0.7 * a + 0.3 * a[::-1], 4)


def _projections(devices: Any, side: int, precision: str, turns: int) -> _Trial:
    """Projections of a vector onto solenoidal ones: such loops compute wavenumbers, which can take longer than memory
    does."""
    return _of_modes(devices, side, precision, lambda t, a: operators.project(t.layout, a), turns)


def _of_modes(
    devices: Any, side: int, precision: str, function: Callable[[Transform, Any], Any], turns: int
) -> _Trial:
    """A function of a transform and the modes of a vector."""
    t = _transform(devices, side, precision)
    dtype = "complex128" if precision == "double" else "complex64"
    return _trial(lambda a: function(t, a), (3, *t.layout.shape), dtype, t.layout.sharding(4), turns)


def _transforms(devices: Any, precision: str) -> _Trial:
    """A run's own transforms: the products of six fields at all points, as modes."""
    import jax.numpy as jnp

    t = _transform(devices, _SIDE, precision)

    def cross(values: Any, points: Points, parameters: Any) -> Local:
        return Local({"product": jnp.cross(values["a"], values["b"], axis=0)})

    def products(a: Any) -> Any:
        return t.evaluate({"a": a, "b": 2 * a}, cross).products["product"]

    dtype, sharding = "complex128" if precision == "double" else "complex64", t.layout.sharding(4)
    return _trial(products, (3, *t.layout.shape), dtype, sharding, 1)


def _messages(devices: Any, size: int, turns: int) -> _Trial:
    """All-to-alls of `size` bytes of each device."""
    from jax import lax

    shape = (1, len(devices), size // (8 * len(devices)))
    return _on_each(devices, lambda a: lax.all_to_all(a, "d", 1, 1, tiled=True), shape, turns)


def _kernels(devices: Any) -> _Trial:
    """Kernels that take no time of their own."""
    return _on_each(devices, lambda a: a * 1.0000001, (_SHORT,), _KERNELS)
