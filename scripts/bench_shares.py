#!/usr/bin/env python3
"""Divides the time of a step on processors among native kernels, exchanges, and XLA's own loops and
copies.

    .venv/bin/python scripts/bench_shares.py [--shape 128] [--steps 4] [--devices 2] [--only mhd,gas] [--json FILE]
    .venv/bin/python scripts/bench_shares.py --only particles [--shape 128] [--steps 9] [--json FILE]

The times of all operations of a compiled step are taken from JAX's profiler and summed over the
devices; exchanges include the time that a device waits for another one.

`particles`: the time that a core takes to put one particle's mass on the grid, and to
interpolate three components of a field at its place, in single precision, on one thread, for each
assignment, with as many particles as points at random places: sorted by their cells and in no order.
The shortest of `--steps` calls in turns count."""

import argparse
import glob
import gzip
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simulator import Simulation
from simulator.config import run_config_class
from simulator.plugins.gravity.assignment import Assignment
from simulator.plugins.validation.benchmark_record import benchmark_record
from simulator.simulation.advance import Until
from simulator.spectral import Grid, make_transform

FLOW = {"viscosity": 0.01}
RANDOM = {"kind": "random", "peak": 4.0, "energy": 0.5, "seed": 1}
SCALARS = [{"name": "dye", "diffusivity": 0.01, "mean_gradient": [0, 0, 1]}]
GAS = {
    "kind": "self_gravitating_gas",
    "sound_speed": 1.0,
    "gravitational_constant": 0.01,
    "viscosity": 0.01,
}
CASES = {
    "navier_stokes": ({"kind": "navier_stokes", **FLOW}, RANDOM),
    "scalars": ({"kind": "navier_stokes", **FLOW, "scalars": SCALARS}, RANDOM),
    "boussinesq": (
        {"kind": "boussinesq", **FLOW, "diffusivity": 0.01, "stratification": 1.0},
        RANDOM,
    ),
    "mhd": ({"kind": "mhd", **FLOW, "resistivity": 0.01}, RANDOM),
    "gas": (GAS, {"kind": "jeans_wave", "amplitude": 0.01}),
}
PARTICLES = "particles"
PARTS = ("native kernels", "exchanges", "XLA's loops and copies")


def part_of(operation: str) -> str | None:
    """The part that an operation, a line of a compiled program, belongs to; None if it only
    contains others."""
    kind = re.search(r"[\])}] ([a-z-]+)\(", operation)
    name = kind[1] if kind else ""
    if name in ("while", "conditional", "call"):
        return None
    if name == "custom-call":
        return PARTS[0]
    return PARTS[1] if name.startswith(("all-", "collective-", "reduce-scatter")) else PARTS[2]


def shares(case: str, shape: int, steps: int, devices: int) -> dict[str, float]:
    """Seconds of a step in each of PARTS, all devices together."""
    model, initial = CASES[case]
    run = {
        "model": model,
        "initial": initial,
        "grid": {"shape": [shape] * 3},
        "time": {"stop": 1.0, "dt": 1e-4},
    }
    run["devices"] = {"platform": "cpu", "count": devices}
    simulation = Simulation(run_config_class().model_validate(run))
    until = Until(np.float64(np.inf), np.float64(np.inf), np.int64(steps))
    state = jax.block_until_ready(simulation.advance(simulation.state, until))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(simulation.advance(state, until))
        (file,) = glob.glob(f"{folder}/**/*.trace.json.gz", recursive=True)
        with gzip.open(file) as opened:
            events = json.load(opened)["traceEvents"]
    found = re.findall(
        r"^\s*(?:ROOT )?%(\S+) = (.*)$", simulation.compiled_loop().as_text(), re.MULTILINE
    )
    program = dict(found)
    total: dict[str, float] = dict.fromkeys(PARTS, 0.0)
    for event in events:
        name = event.get("args", {}).get("hlo_op", event.get("name"))
        if event.get("ph") == "X" and name in program and (part := part_of(program[name])):
            total[part] += 1e-6 * event["dur"] / steps
    return total


def places(order: str, shape: int) -> jax.Array:
    """As many particles as points, at random places in a box of cells of length 1."""
    found = np.random.default_rng(1).random((3, shape**3)) * shape
    sort = np.lexsort(np.floor(found)[::-1]) if order == "sorted" else np.arange(shape**3)
    return jnp.asarray(found[:, sort])


def particle_rows(shape: int, calls: int) -> list[dict[str, Any]]:
    """Seconds of a core for each particle, by order, assignment and pass."""
    jax.config.update("jax_enable_x64", True)
    length = float(shape)
    grid = Grid((shape, shape, shape), (length, length, length))
    transform = make_transform(grid, jax.devices("cpu")[:1], np.float32, threads=1)
    mass = jnp.ones(shape**3)
    field = jnp.asarray(np.random.default_rng(2).random((3, *grid.shape)), jnp.float32)
    rows = []
    for order in ("sorted", "random"):
        position = places(order, shape)
        for scheme in ("cic", "tsc", "pcs"):
            assignment = Assignment(transform, scheme)
            deposit = jax.jit(assignment.deposit)
            interpolation = jax.jit(assignment.sampler.of_values)
            passes = {
                "deposit": partial(deposit, position, mass),
                "interpolation": partial(interpolation, field, position),
            }
            seconds = {name: time / shape**3 for name, time in in_turns(passes, calls).items()}
            rows.append({"order": order, "assignment": scheme, "seconds": seconds})
            times = (f"{name} {1e9 * spent:.1f} ns" for name, spent in seconds.items())
            print(f"{order:8} {scheme}: {', '.join(times)}", flush=True)
    return rows


def in_turns(passes: Mapping[str, Callable[[], jax.Array]], calls: int) -> dict[str, float]:
    """The shortest times in seconds, without the first calls, which compile."""
    times = dict.fromkeys(passes, float("inf"))
    for call in range(calls + 1):
        for name, run in passes.items():
            began = time.perf_counter()
            jax.block_until_ready(run())
            if call:
                times[name] = min(times[name], time.perf_counter() - began)
    return times


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", type=int, default=128)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--only", default=",".join(CASES), help="e.g. mhd,gas or particles")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    args = parser.parse_args()
    rows = []
    for case in args.only.split(","):
        if case == PARTICLES:
            rows += particle_rows(args.shape, args.steps)
            continue
        seconds = shares(case, args.shape, args.steps, args.devices)
        rows.append({"step": f"{case}, {args.shape}^3", "seconds": seconds})
        whole = sum(seconds.values())
        parts = ", ".join(f"{part} {seconds[part] / whole:.0%}" for part in PARTS)
        print(f"{case:16} {1e3 * whole / args.devices:6.0f} ms of each device: {parts}", flush=True)
    if args.json is not None:
        measured = benchmark_record(sys.argv[1:], "scripts/bench_shares.py")
        args.json.write_text(json.dumps({"measured": measured, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
