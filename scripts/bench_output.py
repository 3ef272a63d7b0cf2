#!/usr/bin/env python3
"""Measures the cost of output: the time per step with a checkpoint every N steps and with none, in
one run.

    scripts/bench_output.py [--size 128] [--every 20] [--rounds 5] [--devices 2] [--folder /scratch/me]

The same simulation takes blocks of N steps in turns: without output, with a checkpoint written in
the background (as in a run), and with a checkpoint written synchronously. The fastest block of each
is printed, because other load on the machine only adds time. `copied`: the time for which the
computation waits for the copy to the host."""

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

from simulator import Simulation, load_config
from simulator.archive.snapshot_writer import Options, Writer
from simulator.archive.stored_state import datasets
from simulator.simulation.advance import Until

MODES = ("without", "background", "waiting")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--precision", default="double", choices=("single", "double"))
    parser.add_argument(
        "--folder", type=Path, help="where to write; by default the system's temporary folder"
    )
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    try:
        _measure(arguments, folder)
    finally:
        shutil.rmtree(folder)


def _measure(arguments: argparse.Namespace, folder: Path) -> None:
    simulation = _simulation(arguments, folder)
    writer = Writer(simulation.cluster)
    times: dict[str, list[float]] = {mode: [] for mode in MODES}
    copies: list[float] = []
    _advance(simulation, 1)
    for _ in range(arguments.rounds):
        for mode in MODES:
            began = time.perf_counter()
            if mode != "without":
                _submit(simulation, writer, folder)
                copies.append(time.perf_counter() - began)
            if mode == "waiting":
                writer.wait()
            # A run polls its writer about once a second, this loop after each quarter of the steps.
            for _ in range(4):
                _advance(simulation, arguments.every // 4)
                writer.poll()
            writer.wait()
            times[mode].append(time.perf_counter() - began)
    writer.close()
    size = sum(p.stat().st_size for p in (folder / "checkpoints").rglob("*")) / len(copies)
    grid = "x".join(map(str, simulation.grid.shape))
    steps = arguments.every // 4 * 4
    kind = simulation.cluster.devices[0].device_kind
    print(
        f"{grid}, {arguments.precision}, {arguments.devices} {kind} devices, a checkpoint every {steps} steps"
    )
    print(f"{size / 1e6:.1f} MB each, copied in {statistics.median(copies) * 1e3:.0f} ms")
    print(
        f"{'checkpoints':12} {'ms per step':>12} {'of the time without':>20} {'share of the run':>17}"
    )
    plain = min(times["without"])
    for mode in MODES:
        taken = min(times[mode])
        share = max(1 - plain / taken, 0.0)
        print(f"{mode:12} {1e3 * taken / steps:12.1f} {taken / plain:20.3f} {share:17.1%}")


def _simulation(arguments: argparse.Namespace, folder: Path) -> Simulation:
    path = folder / "bench.yaml"
    path.write_text(
        f"model: {{kind: navier_stokes, viscosity: 1.0e-3}}\n"
        f"grid: {{shape: [{arguments.size}, {arguments.size}, {arguments.size}]}}\n"
        f"initial: {{kind: taylor_green}}\ntime: {{stop: 1000, dt: 1.0e-3}}\n"
        f"precision: {arguments.precision}\ndevices: {{count: {arguments.devices}}}\n"
    )
    return Simulation(load_config(path))


def _advance(simulation: Simulation, steps: int) -> None:
    until = Until(np.float64(np.inf), np.float64(np.inf), np.int64(steps))
    simulation.state = jax.block_until_ready(simulation.advance(simulation.state, until))


def _submit(simulation: Simulation, writer: Writer, folder: Path) -> None:
    state = simulation.state
    writer.submit(
        folder / "checkpoints",
        int(state.step),
        datasets(state, simulation.model),
        {"time": float(state.time)},
        options=Options(index=False),
    )


if __name__ == "__main__":
    main()
