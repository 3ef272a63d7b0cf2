#!/usr/bin/env python
"""Recovers the start of forced turbulence from sparse observations, and compares it with the true
one.

    python scripts/assimilate_turbulence.py [--size 64] [--devices 2] [--iterations 20] [--output DIR]

The truth is the flow of configs/assimilation/flow.yaml at t = 8, with seed 1; observed is its
velocity at every fourth point along each axis, 1/64 of all points, at 21 times in the following 3.2
(two turnover times), with noise of 1 % of the rms velocity. The prior has the spectrum of the flow
with seed 2. Smaller sizes have a larger viscosity and time step. Everything is written to
DIR, by default outputs/assimilate."""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np

from simulator import Simulation, load_config
from simulator.archive.snapshot_reader import open_snapshot
from simulator.archive.stored_state import RunInputs

ROOT = Path(__file__).parents[1]
BASE = ROOT / "configs/assimilation/flow.yaml"
WINDOW = 3.2
TIMES = 20


def command(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "simulator", *arguments], check=True, cwd=ROOT)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--output", type=Path, default=ROOT / "outputs/assimilate", metavar="DIR")
    args = parser.parse_args()
    out = args.output.absolute()
    ratio = 64 / args.size
    smaller = [
        f"grid.shape={args.size},{args.size},{args.size}",
        f"model.viscosity={0.016 * ratio ** (4 / 3):.4g}",
        f"time.dt={0.008 * ratio:g}",
    ]
    last = round(8.0 / (0.008 * ratio))
    for name, seed in (("truth", 1), ("other", 2)):
        command("run", str(BASE), *smaller, f"initial.seed={seed}", "--output", str(out / name))
    start = out / f"truth/snapshots/{last:08d}"
    begin = ["time.stop=3.2", "initial={kind: snapshot, path: " + str(start) + "}"]
    truth = Simulation(load_config(BASE, [*smaller, *begin]), inputs=RunInputs(None))
    every = round(WINDOW / TIMES / (0.008 * ratio))
    dt = truth.config.time.dt
    run = jax.jit(lambda state: jax.lax.fori_loop(0, every, lambda _, s: truth.step(s, dt), state))
    true = np.asarray(truth.fields["velocity"])
    seen = []
    for _ in range(TIMES + 1):
        seen.append(np.asarray(truth.fields["velocity"])[:, ::4, ::4, ::4])
        truth.state = run(truth.state)
    error = 0.01 * np.sqrt((true**2).mean())
    noise = error * np.random.default_rng(0).standard_normal(np.shape(seen))
    x = np.arange(0, args.size, 4) * 2 * np.pi / args.size
    places = {"x": x[:, None, None], "y": x[:, None], "z": x}
    times = np.arange(TIMES + 1) * every * dt
    np.savez(out / "observed.npz", time=times, **places, velocity=seen + noise, error=error)

    began = time.monotonic()
    target = out / f"recovered_{args.size}_{args.devices}"
    text = (
        (ROOT / "configs/assimilation/turbulence.yaml")
        .read_text()
        .replace("/00001000", f"/{last:08d}")
        .replace("../../outputs/assimilate", str(out))
        .replace("iterations: 20", f"iterations: {args.iterations}")
    )
    (out / "assimilate.yaml").write_text(text.replace("base: ", f"base: {BASE.parent}/"))
    command(
        "assimilate",
        str(out / "assimilate.yaml"),
        *smaller,
        "time.stop=3.2",
        "devices.platform=cpu",
        f"devices.count={args.devices}",
        "--output",
        str(target),
        "--overwrite",
    )
    found = np.asarray(open_snapshot(target / "snapshots/00000000")["velocity"][...])
    left = np.sqrt(((found - true) ** 2).sum() / (true**2).sum())
    print(
        f"error of the start: {left:.4f} of that of the prior's mean, after {time.monotonic() - began:.0f} s"
    )


if __name__ == "__main__":
    main()
