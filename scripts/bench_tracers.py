#!/usr/bin/env python3
"""Compares the cost of a step with tracers with the cost of the flow's step alone, in one run.

    .venv/bin/python scripts/bench_tracers.py [--shape 128] [--count 1e6] [--devices 2] [--precision double]

Both loops run the same decaying turbulence with the same choice of dt and alternate; the result is
the ratio of the smallest times, for every interpolation. Processor time excludes waiting, also for
other programs on the machine."""

import argparse
import os
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

from simulator import Simulation, load_config
from simulator.cluster import discover
from simulator.cluster.start import start
from simulator.simulation.advance import Until

RUN = """\
model: {{kind: navier_stokes, viscosity: 0.005}}
grid: {{shape: [{shape}, {shape}, {shape}]}}
initial: {{kind: random, peak: 4.0, energy: 0.5, seed: 1}}
time: {{stop: 1000, cfl: {cfl}, integrator: {integrator}}}
precision: {precision}
fft: {{kernels: {kernels}}}
"""
TRACERS = "particles: [{{name: tracers, kind: tracer, count: {count}, interpolation: {kind}}}]\n"


class Loop:
    """A simulation whose compiled loop takes a few steps at a time."""

    def __init__(self, text: str, cluster, folder: Path):
        path = folder / "run.yaml"
        path.write_text(text)
        self.run = Simulation(load_config(path), cluster=cluster)
        self.state = self.run.state
        self.seconds: list[float] = []
        self.busy: list[float] = []

    def turn(self, steps: int) -> None:
        """Take `steps` steps; record the wall time and the processor time per step."""
        limit = Until(np.float64(1e9), np.float64(1e9), np.int64(steps))
        jax.block_until_ready(self.state)
        before = int(self.state.step)
        began = time.perf_counter()
        busy = time.process_time()
        self.state = jax.block_until_ready(self.run.advance(self.state, limit))
        spent = time.perf_counter() - began
        busy = time.process_time() - busy
        if (taken := int(self.state.step) - before) != steps:
            raise SystemExit(f"the loop took {taken} steps instead of {steps}")
        self.seconds.append(spent / steps)
        self.busy.append(busy / steps)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", type=int, default=128)
    parser.add_argument("--count", type=float, default=1e6)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--precision", choices=("single", "double"), default="double")
    parser.add_argument("--integrator", default="rk4")
    parser.add_argument("--cfl", type=float, default=1.0)
    parser.add_argument("--kernels", choices=("auto", "native", "xla"), default="auto")
    parser.add_argument("--interpolation", nargs="*", default=["linear", "cubic_spline"])
    parser.add_argument("--steps", type=int, default=4, help="steps in each timed call")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    cluster = start(discover(os.environ), platform="cpu", count=options.devices)
    flow = RUN.format(**vars(options))
    with tempfile.TemporaryDirectory() as folder:
        loops = {"flow alone": Loop(flow, cluster, Path(folder))}
        for kind in options.interpolation:
            text = flow + TRACERS.format(count=int(options.count), kind=kind)
            loops[kind] = Loop(text, cluster, Path(folder))
        for _ in range(options.rounds + 1):
            for loop in loops.values():
                loop.turn(options.steps)
    print(
        f"{options.count:g} tracers at {options.shape}^3, {options.precision} precision, {options.integrator}, "
        f"{options.devices} devices, {os.cpu_count()} cores"
    )
    flow_alone = loops["flow alone"]
    print(f"{'':14} {'ms per step':>12} {'ratio':>6} {'ms of processors':>18} {'ratio':>6}")
    for name, loop in loops.items():
        # The first turn, which compiles the loop, is left out.
        wall = min(loop.seconds[1:])
        busy = min(loop.busy[1:])
        ratios = wall / min(flow_alone.seconds[1:]), busy / min(flow_alone.busy[1:])
        print(f"{name:14} {1e3 * wall:12.1f} {ratios[0]:6.2f} {1e3 * busy:18.1f} {ratios[1]:6.2f}")


if __name__ == "__main__":
    main()
