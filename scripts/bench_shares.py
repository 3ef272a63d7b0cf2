#!/usr/bin/env python3
"""Divides the time of a step on processors among native kernels, exchanges, and XLA's own loops and
copies.

    .venv/bin/python scripts/bench_shares.py [--shape 128] [--steps 4] [--devices 2] [--only mhd,gas] [--json FILE]

The times of all operations of a compiled step are taken from JAX's profiler and summed over the
devices; exchanges include the time that a device waits for another one."""

import argparse
import glob
import gzip
import json
import re
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np

from simulator import Simulation
from simulator.config import run_config_class
from simulator.plan.benchmark_record import benchmark_record
from simulator.simulation.advance import Until

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


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", type=int, default=128)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--only", default=",".join(CASES), help="e.g. mhd,gas")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    args = parser.parse_args()
    rows = []
    for case in args.only.split(","):
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
