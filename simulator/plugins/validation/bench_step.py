"""The measurement of `simulator bench step`: the cost of a step on this machine."""

import argparse
import platform
from functools import partial
from math import prod
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from simulator.archive.stored_state import RunInputs
from simulator.cluster import Allocation, energy
from simulator.config import RunConfig, load_config
from simulator.errors import RunFailure
from simulator.files import replace_json
from simulator.plan.step_time import traced_work
from simulator.plugins.validation.benchmark_record import benchmark_record
from simulator.plugins.validation.rates import copy_bandwidth, seconds_of
from simulator.run.command import allocated, launched
from simulator.run.refusals import check_memory, check_messages
from simulator.simulation.advance import Until
from simulator.simulation.compiling import Memory, words
from simulator.simulation.placement import check_devices, connect
from simulator.simulation.simulation import Simulation
from simulator.spectral import Grid, make_transform
from simulator.spectral.native import described
from simulator.words import counted, size

DEFAULT = Path(__file__).with_name("step.yaml")
ROUND = 0.2  # Minimum duration of a round of steps in seconds.
LASTS = 50  # Minimum number of steps that a measured flow lasts.
PAIRS = 20  # Transforms forward and back in one timed call.


def _config(args: argparse.Namespace) -> RunConfig:
    overrides = list(args.overrides)
    # If the first argument is an override and not a file, the default configuration is measured.
    path = args.config
    if path is not None and "=" in path and not Path(path).exists():
        overrides = [path, *overrides]
        path = None
    if args.shape is not None:
        overrides.append(f"grid.shape={','.join(map(str, args.shape))}")
    if args.devices is not None:
        overrides.append(f"devices.count={args.devices}")
    if args.precision is not None:
        overrides.append(f"precision={args.precision}")
    return load_config(DEFAULT if path is None else path, overrides)


def time_and_report(args: argparse.Namespace) -> int:
    config = _config(args)
    with allocated(args) as allocation:
        check_devices(config, config.devices.count, args.processes or 1)
        if allocation is None:  # each launched process executes this function without the option
            return launched(args.arguments, args.processes)
        result = _measured(config, allocation, args.seconds)
    if result is None:
        return 0
    print("\n".join(step_lines(result)))
    if args.json is not None:
        result["measured"] = benchmark_record(args.arguments)
        replace_json(args.json, result)
    return 0


def _measured(config: RunConfig, allocation: Allocation, seconds: float) -> dict[str, Any] | None:
    """The costs and the description of the measured step, in the first process; None in the other
    processes."""
    cluster = connect(config, allocation)
    simulation = Simulation(config, cluster=cluster, inputs=RunInputs())
    check_memory(simulation)
    check_messages(simulation)
    costs = measure_step(simulation, simulation.compiled_loop(), seconds)
    about = {
        "name": config.name,
        "model": config.model.kind,
        "integrator": config.time.integrator,
        "shape": config.grid.shape,
        "precision": config.precision,
        "host": platform.node(),
        "devices": len(cluster.devices),
        "threads": cluster.threads,
        "device": cluster.devices[0].device_kind,
        "processes": cluster.num_processes,
        "transform": simulation.transform.name,
        "kernels": described(simulation.transform.kernels, cluster.platform),
    }
    cluster.close()
    return about | costs if cluster.is_first else None


def measure_step(
    simulation: Simulation, compiled: jax.stages.Compiled, seconds: float = 10.0
) -> dict[str, Any]:
    """The cost of a step, measured for about `seconds`; `compiled` is the simulation's
    `compiled_loop`. Every process calls this.

    Seconds of a `step`: the median of at least five `rounds`, after a warm-up. Memory of a device:
    `memory_bytes`; in words of the run's precision per grid point of the device the state
    (`resident`) and `temporary`. `exchanges`: number and sent bytes of the all-to-alls of one
    device, 0 if the backend does not report them.
    `joules` of a step by source, if the machine has counters."""
    cluster = simulation.cluster
    one_step = partial(seconds_per_step, simulation, compiled)
    one_step(1)
    steps = cluster.broadcast(max(1, round(ROUND / one_step(1))))
    one_step(steps)
    rounds: list[float] = []
    start = perf_counter()
    meter = energy.meter_of(cluster)
    # The first process decides, so that all take the same number of steps.
    while cluster.broadcast(len(rounds) < 5 or perf_counter() - start < seconds):
        rounds.append(one_step(steps))
    joules = energy.by_source(cluster.gather(meter.joules()))
    meter.close()
    step = median(rounds)
    points = simulation.grid.points
    devices = len(cluster.devices)
    memory = Memory.of(compiled)
    per_point = partial(words, config=simulation.config, points=points, devices=devices)
    work = traced_work(simulation.step, simulation.placed_template, np.float64(1e-3))
    return {
        "step": step,
        "fastest": min(rounds),
        "slowest": max(rounds),
        "resident": per_point(memory.resident),
        "temporary": per_point(memory.temporary),
        "memory_bytes": memory.total,
        "exchanges": {"count": work.exchanges, "bytes": work.sent},
        "points_per_second": points / devices / step,
        "limits": _limits(simulation, 4 * work.transformed, work.operations),
        "rounds": rounds,
        **({"joules": {n: j / (steps * len(rounds)) for n, j in joules.items()}} if joules else {}),
    }


def _limits(simulation: Simulation, moved: float, operations: float) -> dict[str, float]:
    """The least `seconds` of a step's transforms on these devices: a transform reads and writes its
    data twice, in all `bytes`, at the measured `bandwidth` of a copy (bytes per second of all
    devices), and takes `operations`, at the `rate` (per second) of transforms of 32^3 points (128^3
    on GPUs), which stay in the cache.

    The rates are measured on all processes at the same time; those of the first one count."""
    cluster = simulation.cluster
    gpus = cluster.platform == "gpu"  # where less work ends before its start is paid for
    bandwidth = cluster.broadcast(copy_bandwidth(cluster.devices, 1 << (30 if gpus else 26)))
    transform = make_transform(
        Grid((128, 128, 128) if gpus else (32, 32, 32)),
        cluster.local_devices[:1],
        simulation.transform.dtype,
        kernels=simulation.transform.kernels,
    )

    @jax.jit
    def pairs() -> jax.Array:
        values = jnp.full((3, *transform.physical.shape), 1e-3, transform.dtype)
        return lax.fori_loop(0, PAIRS, lambda _, v: transform.inverse(transform.forward(v)), values)

    jax.block_until_ready(pairs())
    fastest = min(seconds_of(lambda: jax.block_until_ready(pairs())) for _ in range(5))
    points = transform.grid.points
    done = 6 * PAIRS * 2.5 * points * np.log2(points)
    # The small transforms run on one thread of each device.
    rate = cluster.broadcast(len(cluster.devices) * cluster.threads * done / fastest)
    return {
        "bandwidth": bandwidth,
        "rate": rate,
        "bytes": moved,
        "operations": operations,
        "seconds": max(moved / bandwidth, operations / rate),
    }


def seconds_per_step(simulation: Simulation, compiled: jax.stages.Compiled, steps: int) -> float:
    """Seconds per step of the next `steps` steps. A flow that dies away, or blows up, begins anew.

    Raises RunFailure if it does so within LASTS steps: the step that fails is timed, too."""
    seconds = 0.0
    left = steps
    while True:
        before = int(simulation.state.step)
        until = Until(np.float64(np.inf), np.float64(np.inf), np.int64(left))
        began = perf_counter()
        simulation.state = jax.block_until_ready(compiled(simulation.state, until))
        seconds += perf_counter() - began
        reached = int(simulation.state.step)
        left -= reached - before
        if left == 0:
            return seconds / steps
        if reached < LASTS:
            problem, _ = simulation.trouble()
            raise RunFailure(
                f"step {reached}: {problem}; measure another configuration, or a smaller time step"
            )
        simulation.rewind()


def step_lines(costs: dict[str, Any]) -> list[str]:
    step = costs["step"]
    limits = costs["limits"]

    def ms(seconds: float) -> str:
        return f"{1e3 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"

    rates = f"{limits['bandwidth'] / 1e9:.3g} GB/s copied, {limits['rate'] / 1e9:.3g} GFlop/s"
    exchanges = costs["exchanges"]
    sent = f"{exchanges['count']} all-to-all ({size(exchanges['bytes'])})"
    resident = costs["resident"]
    points = prod(costs["shape"])
    joules = [
        f"{'energy':18}{energy.with_prefix(value):>10}   by {source}; "
        f"{energy.with_prefix(value / points)} per point and step"
        for source, value in costs.get("joules", {}).items()
    ]
    temporary = costs["temporary"]
    return [
        f"{costs['name']}: {costs['model']}, {' x '.join(map(str, costs['shape']))}, {costs['integrator']}, "
        f"{costs['precision']} precision, {counted(costs['devices'], costs['device'] + ' device')} of "
        f"{counted(costs['threads'], 'thread')} in {counted(costs['processes'], 'process')}, "
        f"{costs['transform']}, kernels {costs['kernels']}, on {costs['host']}",
        f"{'step':18}{ms(step):>10}          median of {len(costs['rounds'])}, "
        f"{ms(costs['fastest'])} to {ms(costs['slowest'])}; "
        f"{costs['points_per_second'] / 1e6:.3g} million points per second and device",
        f"  {'limit':16}{ms(limits['seconds']):>10} {limits['seconds'] / step:>6.0%}   of the transforms: {rates}",
        f"{'memory':18}{size(costs['memory_bytes']):>10}   on each device; words per grid point: "
        f"{resident + temporary:.2f} = state {resident:.2f} + temporary {temporary:.2f}",
        f"{'sends':18}{sent if exchanges['count'] else 'nothing'}",
        *joules,
    ]
