#!/usr/bin/env python3
"""Milliseconds per step of Navier-Stokes RK4, and the share of its transforms, as medians.

    python scripts/bench_step.py [--shapes 64,128] [--devices 1,2] [--rounds 9] [--platform cpu]

Each row is one process of its own, with the settings that a run makes (allocator, one virtual device per core).
Within a row, steps and transforms are timed in turn, so that a busy moment of the machine meets both alike. The
transforms of a step are those of its four right-hand sides: six fields to physical space, three products back,
with nothing computed in between but what keeps them apart.
"""

import argparse
import json
import subprocess
import sys
from statistics import median
from time import perf_counter
from typing import Any

RIGHT_HAND_SIDES = 4  # of RK4


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", default="64,128", help="points along each side")
    parser.add_argument("--devices", default="1,2")
    parser.add_argument("--precisions", default="double,single")
    parser.add_argument("--rounds", type=int, default=9, help="of which the median is taken")
    parser.add_argument("--platform", default="auto", choices=("auto", "cpu", "gpu"))
    parser.add_argument("--row", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.row:
        print(json.dumps(_measure(**json.loads(args.row))))
        return 0
    print(f"{'grid':>6} {'precision':>9} {'devices':>7} {'ms/step':>8} {'ns/point':>8} {'transforms':>10}")
    for n in map(int, args.shapes.split(",")):
        for precision in args.precisions.split(","):
            base = None
            for count in map(int, args.devices.split(",")):
                row = {"n": n, "precision": precision, "count": count}
                found = _in_a_process(row | {"rounds": args.rounds, "platform": args.platform})
                base = base or found["step"]
                print(
                    f"{n:>4}^3 {precision:>9} {count:>7} {found['step']:>8.1f} {found['step'] * 1e6 / n**3:>8.0f} "
                    f"{found['transforms'] / found['step']:>10.0%}  {base / found['step']:.2f} times the first",
                    flush=True,
                )
    return 0


def _in_a_process(row: dict[str, Any]) -> dict[str, float]:
    ended = subprocess.run(
        [sys.executable, __file__, "--row", json.dumps(row)], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(ended.stdout.splitlines()[-1])


def _measure(n: int, precision: str, count: int, rounds: int, platform: str) -> dict[str, float]:
    """Medians in ms of one step and of the transforms in it."""
    import jax
    import numpy as np

    from simulator import Simulation
    from simulator.config import run_config_class
    from simulator.spectral import Local
    from simulator.stepping import Until

    config = run_config_class().model_validate(
        {
            "model": {"kind": "navier_stokes", "viscosity": 1 / 1600},
            "initial": {"kind": "taylor_green"},
            "grid": {"shape": [n, n, n]},
            "time": {"stop": 1e9, "dt": 0.1 / n},
            "precision": precision,
            "devices": {"platform": platform, "count": count},
        }
    )
    simulation = Simulation(config)
    steps = max(1, round(64**3 * 4 / n**3))
    until = Until(np.float64(np.inf), np.float64(np.inf), np.int64(steps))

    def pointwise(values, points, parameters):
        return Local({"lamb": values["velocity"] * values["vorticity"]})

    # As in the loop over steps: each round of transforms needs the one before.
    def transforms(fields):
        def one(_, f):
            found = simulation.transform.evaluate(simulation.model.inputs(f), pointwise).products["lamb"]
            return {"velocity": f["velocity"] + 0 * found}

        return jax.lax.fori_loop(0, RIGHT_HAND_SIDES * steps, one, fields)

    transform_loop = jax.jit(transforms)
    fields = jax.tree.map(jax.numpy.copy, simulation.state.fields)

    def step() -> None:
        simulation.state = jax.block_until_ready(simulation.advance(simulation.state, until))

    def transform() -> None:
        jax.block_until_ready(transform_loop(fields))

    times: dict[str, list[float]] = {"step": [], "transforms": []}
    for measured in range(rounds + 1):
        for name, work in (("step", step), ("transforms", transform)):
            began = perf_counter()
            work()
            if measured:  # the first round compiles
                times[name].append(1e3 * (perf_counter() - began) / steps)
    return {name: median(values) for name, values in times.items()}


if __name__ == "__main__":
    sys.exit(main())
