"""Measures the cost of a step: its time and the parts of this time, memory, communication,
compilation.

The step and the parts of its transforms are timed in turns, so that a disturbance of the machine
affects all of them alike; medians are compared."""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from simulator.cluster.mesh import Device
from simulator.errors import RunFailure
from simulator.plan.traffic import TimedExchange, TimedPart, anatomy
from simulator.simulation.advance import Until
from simulator.simulation.compiling import Memory, words
from simulator.simulation.simulation import Simulation
from simulator.spectral import Grid, Local, Points, Transform, make_transform
from simulator.spectral.program import Program
from simulator.spectral.staged import StagedTransform

Values = Mapping[str, jax.Array]
ROUND = 0.2  # Minimum duration of a round of steps in seconds.


def _operations(transform: Transform, transforms: int) -> float:
    points = transform.grid.points
    return (2.5 if transform.layout.real else 5.0) * points * np.log2(points) * transforms


def copy_bandwidth(devices: Sequence[Device], size: int) -> float:
    """The bytes per second that all devices together read and write while each copies an array of
    `size` bytes. All processes call this."""
    mesh = jax.sharding.Mesh(np.array(devices), ("all",))
    sharding = NamedSharding(mesh, PartitionSpec("all"))
    ones = jax.jit(lambda: jnp.ones((len(devices), size // 4), jnp.float32), out_shardings=sharding)
    copy = jax.jit(lambda a: -a)
    array = jax.block_until_ready(copy(ones()))
    fastest = min(_seconds(lambda: jax.block_until_ready(copy(array))) for _ in range(10))
    return 2 * array.nbytes / fastest


def transform_limits(
    simulation: Simulation, parts: Counter[TimedPart], agree: Callable[[float], float]
) -> dict[str, Any]:
    """The least time of a step's transforms on these devices: a transform reads and writes its data
    twice, at the measured `bandwidth` of a copy (bytes per second of all devices), and takes 2.5 N
    log2 N operations (complex data 5 N log2 N), at the `rate` (per second) of transforms of 32^3
    points (128^3 on GPUs), which stay in the cache. `parts`: what, transforms, bytes, operations, and seconds, the
    larger of both, of each part of the transforms.

    The rates are measured on all processes at the same time; `agree` broadcasts those of the
    first."""
    devices, threads = simulation.cluster.devices, simulation.cluster.threads
    gpus = simulation.cluster.platform == "gpu"  # where less work ends before its start is paid for
    bandwidth = agree(copy_bandwidth(devices, 1 << (30 if gpus else 26)))
    local = [d for d in devices if d.process_index == jax.process_index()][:1]
    kernels = simulation.transform.kernels
    grid = Grid((128, 128, 128) if gpus else (32, 32, 32))
    small = make_transform(grid, local, simulation.transform.dtype, kernels=kernels)
    seconds = 0.0
    for direction in ("forward", "inverse"):
        call = _repeated(*part_alone(TimedPart(small, direction, 3, 0)), times=20)
        seconds += min(call() for _ in range(5))
    # The small transforms run on one thread of each device.
    rate = agree(len(devices) * threads * _operations(small, 6) / seconds)

    def limited(part: TimedPart, count: int) -> dict[str, Any]:
        transform = part.transform
        transforms = (part.given + part.made) * count
        each = np.dtype(transform.dtype).itemsize * (1 if transform.layout.real else 2)
        moved = 4.0 * each * transform.grid.points * transforms
        operations = _operations(transform, transforms)
        what = {
            "what": part.direction,
            "transforms": transforms,
            "bytes": moved,
            "operations": operations,
        }
        return {**what, "seconds": max(moved / bandwidth, operations / rate)}

    return {
        "bandwidth": bandwidth,
        "rate": rate,
        "parts": [limited(part, count) for part, count in parts.items()],
    }


def _seconds_per_step(simulation: Simulation, compiled: jax.stages.Compiled, steps: int) -> float:
    before = int(simulation.state.step)
    until = Until(np.float64(np.inf), np.float64(np.inf), np.int64(steps))
    began = perf_counter()
    state = jax.block_until_ready(compiled(simulation.state, until))
    seconds = perf_counter() - began
    simulation.state = state
    if int(state.step) < before + steps:
        problem, _ = simulation.trouble()
        raise RunFailure(
            f"step {before}: {problem}; measure another configuration, or a smaller time step"
        )
    return seconds / steps


def _repeated(
    function: Callable[..., Any], arguments: Sequence[jax.ShapeDtypeStruct], times: int
) -> Callable[[], float]:
    """A function that calls `function`, a function of arrays, in a loop on the device as in steps,
    and returns the seconds of one call."""

    def loop(*arrays: jax.Array) -> Any:
        def again(
            _: int, carry: tuple[tuple[jax.Array, ...], Any]
        ) -> tuple[tuple[jax.Array, ...], Any]:
            # A dependence on the previous result keeps XLA from moving the call out of the loop.
            (first, *others), result = carry
            number = jax.tree.leaves(result)[0].reshape(-1)[0]
            dependent = first.at[(0,) * first.ndim].add((0 * number.real).astype(first.dtype))
            return (dependent, *others), function(dependent, *others)

        return lax.fori_loop(0, times, again, (arrays, function(*arrays)))[1]

    loop.__name__ = f"{function.__name__}_{times}"
    compiled = jax.jit(loop).lower(*arguments).compile()
    shardings = [a.sharding for a in arguments]
    arrays = jax.jit(
        lambda: [jnp.full(a.shape, 1e-3, a.dtype) for a in arguments], out_shardings=shardings
    )()
    return lambda: _seconds(lambda: jax.block_until_ready(compiled(*arrays))) / (times + 1)


def part_alone(part: TimedPart) -> tuple[Callable[..., Any], list[jax.ShapeDtypeStruct]]:
    """A function that executes one part of a step's transforms alone, and its arguments. Its
    pointwise work is the least that keeps XLA from removing a transform."""
    transform = part.transform
    forward = part.direction == "forward"
    source = transform.physical if forward else transform.layout
    kind = transform.value_dtype if forward else transform.complex_dtype
    argument = jax.ShapeDtypeStruct((part.given, *source.shape), kind, sharding=source.sharding(4))

    def spread(values: Values, points: Points, parameters: Values) -> Local:
        fields = values["f"]
        if not part.made:
            return Local({}, means={"f": fields.real.sum(0)})
        rest = fields[part.made :]
        products = [fields[i % part.given] for i in range(part.made)]
        for i in range(len(rest)):
            products[i % part.made] = products[i % part.made] + rest[i]
        return Local({"f": jnp.stack(products)})

    def run(array: jax.Array) -> Any:
        if part.direction == "evaluate":
            return transform.evaluate_once({"f": array}, spread)
        return transform.forward(array) if forward else transform.inverse(array)

    run.__name__ = (
        f"{part.direction}_{transform.name}_{part.given}_{part.made}"  # for the compile cache
    )
    return run, [argument]


def exchange_alone(
    exchange: TimedExchange,
) -> tuple[Callable[..., Any], list[jax.ShapeDtypeStruct]]:
    """A function that executes one all-to-all alone, and its arguments: an array for each sent
    block."""
    mesh = exchange.transform.layout.mesh
    (blocks, *shape) = exchange.shape
    spec = PartitionSpec(mesh.axis_names)
    # The blocks have the form in which transforms pass them: see `Processors.as_messages`.
    sharding = NamedSharding(mesh, spec)
    argument = jax.ShapeDtypeStruct((mesh.size, *shape), exchange.dtype, sharding=sharding)

    def local(*parts: jax.Array) -> tuple[jax.Array, ...]:
        received = lax.all_to_all(jnp.concatenate(parts), exchange.axis, 0, 0, tiled=True)
        return tuple(received[i : i + 1] for i in range(blocks))

    program = Program(local, mesh, [spec] * blocks, [spec] * blocks, name="exchange", linear=True)
    return lambda *parts: program(*parts), [argument] * blocks


def timed_in_rounds(
    contenders: Sequence[Callable[[], Any]],
    seconds: float,
    agree: Callable[[Any], Any] = lambda value: value,
) -> list[list]:
    """The results of the rounds of every contender, a function that returns the seconds of its
    parts: at least five rounds, for about `seconds`, after a warm-up round.

    `agree` broadcasts the value of the first process, so that all processes run the same number of
    rounds."""
    results: list[list] = [[] for _ in contenders]
    for contender in contenders:
        contender()
    start = perf_counter()
    go = True
    while go:
        for times, contender in zip(results, contenders, strict=True):
            times.append(contender())
        go = agree(len(results[0]) < 5 or perf_counter() - start < seconds)
    return results


def measure_step(
    simulation: Simulation, compiled: jax.stages.Compiled, seconds: float = 10.0
) -> dict[str, Any]:
    """The cost of a step, measured for about `seconds`; `compiled` is the simulation's
    `compiled_loop`. Every process calls this.

    Seconds: of a `step` (the median of `rounds`), its `transforms` alone without their exchanges,
    these exchanges alone (`communication`; None if the backend does not report them), a row of
    `diagnostics`, and tracing and compilation of the loop without (`compile_cold`) and with the
    compile cache of an earlier run. Memory of a device: `memory_bytes`; in words of the run's
    precision per grid point of the device the state (`resident`) and `temporary`. `exchanges`: number
    and sent bytes of the all-to-alls of one device, 0 if the backend does not report them."""
    cluster = simulation.cluster
    cold, cached = _compilations(simulation)
    taken = anatomy(simulation.step, simulation.placed_template, np.float64(1e-3))
    one_step = partial(_seconds_per_step, simulation, compiled)
    one_step(1)
    steps = cluster.broadcast(max(1, round(ROUND / one_step(1))))

    def calls(alone: Callable[..., Any], counts: Counter[Any]) -> list[Callable[[], float]]:
        return [_repeated(*alone(what), times=n * steps) for what, n in counts.items()]

    contenders = [partial(one_step, steps), lambda: _seconds(partial(_row, simulation))]
    contenders += [*calls(part_alone, taken.parts), *calls(exchange_alone, taken.exchanges)]
    rounds, rows, *alone = timed_in_rounds(contenders, seconds, cluster.broadcast)
    counts = *taken.parts.values(), *taken.exchanges.values()
    each = [median(times) * n for times, n in zip(alone, counts, strict=True)]
    parts = sum(each[: len(taken.parts)])
    exchanges = sum(each[len(taken.parts) :])
    step = median(rounds)
    points = simulation.grid.points
    devices = len(cluster.devices)
    known = devices == 1 or isinstance(simulation.transform, StagedTransform)
    memory = Memory.of(compiled)
    per_point = partial(words, config=simulation.config, points=points, devices=devices)
    return {
        "step": step,
        "fastest": min(rounds),
        "slowest": max(rounds),
        "transforms": max(parts - exchanges, 0.0),
        "communication": exchanges if known else None,
        "diagnostics": median(rows),
        "resident": per_point(memory.resident),
        "temporary": per_point(memory.temporary),
        "memory_bytes": memory.total,
        "exchanges": {"count": sum(taken.exchanges.values()), "bytes": taken.sent},
        "compile_cold": cold,
        "compile_cached": cached,
        "points_per_second": points / devices / step,
        "limits": transform_limits(simulation, taken.parts, cluster.broadcast),
        "rounds": rounds,
    }


def _compilations(simulation: Simulation) -> tuple[float, float]:
    """Seconds to trace and compile the loop, without and with the compile cache."""
    # A program with a unique name is in no cache at its first compilation, but in the cache at the
    # second.
    name = f"{simulation.advance.__name__}_{os.getpid()}_{os.urandom(4).hex()}"
    name = simulation.cluster.broadcast(name)

    def recompile() -> None:
        jax.clear_caches()  # so that tracing is part of the measured time
        simulation.compiled_loop(name)

    return _seconds(recompile), _seconds(recompile)


def _row(simulation: Simulation) -> None:
    """Computes a row of diagnostics, and whether the fields are finite."""
    simulation.nonfinite()
    jax.device_get(simulation.diagnostics(simulation.state))


def _seconds(call: Callable[[], Any]) -> float:
    began = perf_counter()
    call()
    return perf_counter() - began
