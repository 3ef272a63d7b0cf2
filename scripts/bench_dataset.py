"""Times `simulator dataset` (program start and compilation included), the steps alone, and `stream`
(both compiled, in turns):

python scripts/bench_dataset.py planes | mhd [--runs N] [--frames N]     50 runs of 32^2, 20 frames |
    10 of 64^3, 100 frames of 10 steps

Of runs that are stepped one after another, two are stepped alone and streamed; their time, on one
device, counts for each run. The processes of `simulator dataset` divide the runs: so do they with
the steps alone."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np

from simulator import Simulation, open_sweep, stream
from simulator.plugins.datasets.dataset import usual_jobs
from simulator.plugins.datasets.frames import frame_times
from simulator.simulation.advance import NO_STEPS, Until
from simulator.study.batch import BatchedStep, groups, on_one_device, varied_numbers

FLOW = """\
model: {kind: navier_stokes, viscosity: 0.005}
grid: {shape: [32, 32]}
initial: {kind: random, peak: 4, seed: 1}
time: {stop: %r, cfl: 0.8}
precision: single
output: {directory: out, snapshots: {every: 0.1}}
"""
MHD = """\
model: {kind: mhd, viscosity: 0.01, resistivity: 0.01}
grid: {shape: [64, 64, 64]}
initial: {kind: random, peak: 4, seed: 1, magnetic: {peak: 3}}
time: {stop: %r, dt: 0.005}
precision: single
output: {directory: out, snapshots: {every: 0.05}}
"""
# Runs, frames, interval of frames, base.
CASES = {"planes": (50, 20, 0.1, FLOW), "mhd": (10, 100, 0.05, MHD)}
STUDY = """\
base: base.yaml
name: reading
sweep: {{sample: {{n: {n}, parameters: {{
  initial.seed: {{seeds: [1, 99999]}}, model.viscosity: {{uniform: [0.005, 0.01]}}}}}}}}
dataset: {{split: [1, 0, 0]}}
"""


ROUNDS = 3
SAMPLE = 2  # The runs that are timed, of runs that are stepped one after another.


def steps_alone(sweep) -> tuple[Callable[[], float], int]:
    """A function that gives the seconds of the steps of the timed runs, which pause at the times of
    the frames, and the number of these runs."""
    (group,) = groups(sweep.runs, most=len(sweep.runs))
    simulation = Simulation(on_one_device(sweep.runs[0].config), report=lambda line: None)
    step = BatchedStep(simulation, group.keys)
    begin = simulation.state
    timed = group.runs[:SAMPLE] if step.in_turn else group.runs
    values = tuple(step.values(varied_numbers(run.config)) for run in timed)
    runs = range(len(values))
    states = [begin] * len(values)

    def stepped(untils: list[Until]) -> None:
        if step.in_turn:
            for i, until in product(runs, untils):
                states[i] = jax.block_until_ready(step.alone(values[i], states[i], until))
            return
        for until in untils:
            states[:] = jax.block_until_ready(
                step.together(values, tuple(states), (until,) * len(values))
            )

    def seconds() -> float:
        states[:] = [jax.tree.map(jnp.copy, begin) for _ in runs]
        stepped([NO_STEPS])
        began = time.perf_counter()
        stepped(
            [
                Until(np.float64(end), np.float64(np.inf), np.int64(1 << 40))
                for end in frame_times(sweep)[1:]
            ]
        )
        return time.perf_counter() - began

    return seconds, len(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--frames", type=int)
    args = parser.parse_args()
    number, frames, every, base = CASES[args.case]
    number = args.runs or number
    frames = args.frames or frames
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("base.yaml").write_text(base % (frames * every))
        Path("study.yaml").write_text(STUDY.format(n=number))
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "simulator", "dataset", "study.yaml"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        whole = time.perf_counter() - began
        os.sync()  # so that the disk is idle in what follows
        # The processes of the data set compile for the core that each is bound to, and keep their
        # programs.
        jax.config.update("jax_enable_compilation_cache", False)
        sweep = open_sweep("study.yaml")
        seconds, timed = steps_alone(sweep)
        Path("study.yaml").write_text(STUDY.format(n=(ROUNDS + 1) * timed))
        parts = stream("study.yaml", batch=timed)
        alone = []
        streamed = []
        jax.block_until_ready(next(parts).fields)
        for _ in range(ROUNDS):
            alone.append(seconds())
            began = time.perf_counter()
            jax.block_until_ready(next(parts).fields)
            streamed.append(time.perf_counter() - began)
        shared = usual_jobs(sweep.runs) if timed < number else 1
        single = median(alone)
        batch = median(streamed)
        steps = single * number / timed / shared
        print(f"{number} runs: data set {whole:.1f} s, steps {steps:.1f} s in {shared} processes")
        print(f"{timed} runs: steps {single:.2f} s, stream {batch:.2f} s")
        print(f"data set / steps {whole / steps:.2f}, steps / stream {single / batch:.2f}")


if __name__ == "__main__":
    main()
