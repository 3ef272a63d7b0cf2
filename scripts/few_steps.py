#!/usr/bin/env python3
"""The matter power spectrum at a = 1 after few steps, over that after 200 steps, for the
integrators of particles.

    .venv/bin/python scripts/few_steps.py [--points 64] [--box 128] [--start 0.05] [--steps 6 12 20] [--out FOLDER]

Every run begins with the same second-order displacements and takes steps that are equal in the
growth factor. Prints the largest deviations up to k = 0.2 and 0.5 h/Mpc and the time of each run;
draws FOLDER/few_steps.png."""

import argparse
import time
from functools import partial
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

from simulator import Simulation, load_config
from simulator.physics.models import outputs
from simulator.simulation.advance import Until

CASE = """\
model:
  kind: composite
  units: mpc_h_km_s_msun_h
  cosmology: {{start: {start}, matter: 0.31, hubble: 100}}
  components: [{{kind: particles, name: matter, count: {count}}}]
grid: {{shape: [{grid}, {grid}, {grid}], box: [{box}, {box}, {box}]}}
initial:
  kind: composite
  components:
    matter: {{kind: cosmological, transfer: eisenstein_hu, sigma8: 0.81, h: 0.68, seed: 1}}
time: {{stop: {{scale_factor: 1}}, steps: 200}}
"""


def spectrum(path: Path, integrator: str, steps: int) -> tuple[np.ndarray, float]:
    """P(k) of each shell at a = 1, and the seconds of the steps without their compilation."""
    config = load_config(path, [f"time.integrator={integrator}", f"time.steps={steps}"])
    run = Simulation(config, report=lambda _: None)
    state = run.state
    until = Until(run.config.time.stop, np.inf, np.int64(10**6))
    advance = run.compiled_loop()
    began = time.perf_counter()
    state = jax.block_until_ready(advance(state, until))
    seconds = time.perf_counter() - began
    assert int(state.step) == steps, "buffers of particles were too small"
    return np.asarray(
        jax.jit(partial(outputs.spectra, run.model))(outputs.contents(run.model, state))[
            "density_power"
        ]
    ), seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("points", 64), ("grid", 0), ("box", 128.0), ("start", 0.05)):
        parser.add_argument(f"--{name}", type=type(default), default=default)
    parser.add_argument("--steps", type=int, nargs="*", default=[6, 12, 20])
    parser.add_argument("--reference", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("outputs/few_steps"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "few_steps.yaml"
    path.write_text(
        CASE.format(**vars(given) | {"count": given.points**3, "grid": given.grid or given.points})
    )
    wanted, seconds = spectrum(path, "kick_drift_kick", given.reference)
    print("Deviations are the largest up to k = 0.2 and up to k = 0.5 h/Mpc.")
    print(f"kick_drift_kick {given.reference:4d} steps: {seconds:.1f} s")
    k = 2 * np.pi / given.box * np.arange(len(wanted))
    used = (k > 0) & (k < np.pi * given.points / given.box)
    figure, axes = plt.subplots(
        1, len(given.steps), sharey=True, figsize=(4 * len(given.steps), 3.2), squeeze=False
    )
    for steps, axis in zip(given.steps, axes[0], strict=True):
        for integrator in ("bullfrog", "fastpm", "kick_drift_kick"):
            found, seconds = spectrum(path, integrator, steps)
            off = found[used] / wanted[used] - 1
            worst = [f"{abs(off[k[used] <= limit]).max():.4f}" for limit in (0.2, 0.5)]
            print(
                f"{integrator:15s} {steps:4d} steps: {seconds:.1f} s; off by {' and '.join(worst)}",
                flush=True,
            )
            axis.semilogx(k[used], 100 * off, label=integrator)
        axis.set(title=f"{steps} steps", xlabel="k (h/Mpc)", ylim=(-10, 10))
        axis.axhspan(-1, 1, color="0.9", zorder=0)
    axes[0, 0].set_ylabel(f"P(k) / P(k) of {given.reference} steps - 1 (%)")
    axes[0, 0].legend(frameon=False)
    figure.savefig(given.out / "few_steps.png", dpi=150, bbox_inches="tight")


main()
