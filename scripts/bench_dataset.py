"""Times `simulator dataset` (program start and compilation included), the steps alone, and `stream` (both compiled):

python scripts/bench_dataset.py planes | mhd [--runs N]     50 runs of 32^2, 21 frames | 10 of 64^3, 100 frames

Of runs that are stepped one after another, two are stepped alone and streamed; their time, on one device, counts for
each run. The processes of `simulator dataset` divide the runs: so do they with the steps alone.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from simulator import Simulation, open_sweep, stream
from simulator.simulation.advance import Until
from simulator.study.batch import NO_STEPS, BatchedStep, groups, numbers, on_one_device
from simulator.study.dataset import frame_times
from simulator.study.runner import usual_jobs

COMMON = "initial: {kind: random, peak: 4, seed: 1%s}\nprecision: single\noutput: {directory: out, "
FLOW = "model: {kind: navier_stokes, viscosity: 0.005}\ngrid: {shape: [32, 32]}\ntime: {stop: 2, cfl: 0.8}\n"
MHD = (
    "model: {kind: mhd, viscosity: 0.01, resistivity: 0.01}\ngrid: {shape: [64, 64, 64]}\ntime: {stop: 5, cfl: 0.8}\n"
)
CASES = {
    "planes": (50, FLOW + COMMON % "" + "snapshots: {every: 0.1}}\n"),
    "mhd": (10, MHD + COMMON % ", magnetic: {peak: 3}" + "snapshots: {every: 5/99}}\n"),
}
STUDY = """\
base: base.yaml
name: bench
sweep: {{sample: {{n: {n}, parameters: {{
  initial.seed: {{seeds: [1, 99999]}}, model.viscosity: {{uniform: [0.005, 0.01]}}}}}}}}
dataset: {{split: [1, 0, 0]}}
"""


SAMPLE = 2  # The runs that are timed, of runs that are stepped one after another.


def steps_alone(sweep) -> tuple[float, int]:
    """Seconds of the steps of the timed runs, which pause at the times of the frames, without compilation, and the
    number of these runs."""
    (group,) = groups(sweep.runs, most=len(sweep.runs))
    simulation = Simulation(on_one_device(sweep.runs[0].config), report=lambda line: None)
    step, begin = BatchedStep(simulation, group.keys), simulation.state
    timed = group.runs[:SAMPLE] if step.in_turn else group.runs
    values = tuple(step.values(numbers(run.config)) for run in timed)
    runs = range(len(values))
    states = [jax.tree.map(jnp.copy, begin) for _ in runs]

    def stepped(untils: list[Until]) -> None:
        if step.in_turn:
            for i, until in product(runs, untils):
                states[i] = jax.block_until_ready(step.alone(values[i], states[i], until))
            return
        for until in untils:
            states[:] = jax.block_until_ready(step.together(values, tuple(states), (until,) * len(values)))

    stepped([NO_STEPS])
    began = time.perf_counter()
    stepped([Until(np.float64(end), np.float64(np.inf), np.int64(1 << 40)) for end in frame_times(sweep)[1:]])
    return time.perf_counter() - began, len(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--runs", type=int)
    args = parser.parse_args()
    number, base = args.runs or CASES[args.case][0], CASES[args.case][1]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("base.yaml").write_text(base)
        Path("study.yaml").write_text(STUDY.format(n=number))
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "simulator", "dataset", "study.yaml"], check=True, stdout=subprocess.DEVNULL
        )
        whole = time.perf_counter() - began
        os.sync()  # so that the disk is idle in what follows
        sweep = open_sweep("study.yaml")
        seconds, timed = steps_alone(sweep)
        shared = usual_jobs(sweep.runs) if timed < number else 1
        alone = seconds * number / timed / shared
        Path("study.yaml").write_text(STUDY.format(n=2 * timed))
        parts, ends = stream("study.yaml", batch=timed), []
        for part in parts:
            jax.block_until_ready(part.fields)
            ends.append(time.perf_counter())
        streamed = ends[1] - ends[0]
        print(f"{number} runs: data set {whole:.1f} s, steps {alone:.1f} s in {shared} processes")
        print(f"{timed} runs: steps {seconds:.1f} s, stream {streamed:.1f} s")
        print(f"data set / steps {whole / alone:.2f}, steps / stream {seconds / streamed:.2f}")


if __name__ == "__main__":
    main()
