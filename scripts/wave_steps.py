#!/usr/bin/env python3
"""The error of strongly rotating, stratified or magnetised turbulence after one turnover time, over
the number of steps, with `time.waves: exact` and `explicit`.

    .venv/bin/python scripts/wave_steps.py [CASE ...] [--points 32] [--steps 20 40 80]
        [--integrator etdrk4] [--out FOLDER]

Every run begins with the same random flow; the reference is the run of `exact` with --reference
steps. Prints the relative error of the energy and that of E(k), the sum over shells of the
deviations over the sum of E(k); `explicit` without a line was unstable. Draws
FOLDER/wave_steps.png."""

import argparse
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax import lax
from matplotlib.ticker import NullFormatter

from simulator import Simulation, load_config
from simulator.physics.models import State, outputs
from simulator.spectral.arrays import Number, Whole

FLOW = """\
model: {{kind: {kind}, viscosity: 0.02, {model}}}
grid: {{shape: [{points}, {points}, {points}]}}
initial: {{kind: random, peak: 3, energy: 1.5, seed: 1{initial}}}
time: {{stop: 1.0, dt: 0.001}}
devices: {{platform: cpu, count: 1}}
"""
TURNOVER = 0.85
# u' = 1 and the integral scale L = 0.85: 2 Omega and N are u' / (0.01 L), B is 30 u'.
CASES = {
    "rotating": ("navier_stokes", "rotation: [0, 0, 59]", ""),
    "stratified": ("boussinesq", "diffusivity: 0.02, stratification: 13900", ""),
    "magnetised": ("mhd", "resistivity: 0.02", ", magnetic: {energy: 1.5, mean_field: [0, 0, 30]}"),
}


Curves = dict[str, list[tuple[int, float]]]
"""(steps, error) by `time.waves`."""


class Marched:
    """Runs of one configuration, which share a program."""

    def __init__(self, path: Path, waves: str, integrator: str):
        config = load_config(path, [f"time.waves={waves}", f"time.integrator={integrator}"])
        self.run = Simulation(config, report=lambda _: None)
        self.start = self.run.state
        self.spectra = jax.jit(partial(outputs.spectra, self.run.model))

        def march(state: State, dt: Number, steps: Whole) -> State:
            return lax.fori_loop(0, steps, lambda _, s: self.run.step(s, dt), state)

        self.march = jax.jit(march)

    def spectrum(self, steps: int) -> np.ndarray:
        """The energy in each shell after a turnover time, without that of the means."""
        end = self.march(self.start, jnp.float64(TURNOVER / steps), jnp.int64(steps))
        spectra = self.spectra(outputs.contents(self.run.model, end))
        return np.asarray(sum(spectra[n] for n in spectra if n.endswith("_energy")))[1:]


def errors(found: np.ndarray, wanted: np.ndarray) -> tuple[float, float]:
    """Relative errors of the energy and of E(k)."""
    total = wanted.sum()
    return abs(found.sum() - total) / total, abs(found - wanted).sum() / total


def measured(path: Path, integrator: str, steps: list[int], reference: int) -> Curves:
    """(steps, the larger of both errors) of stable runs, by `time.waves`."""
    runs = {waves: Marched(path, waves, integrator) for waves in ("exact", "explicit")}
    wanted = runs["exact"].spectrum(reference)
    curves: Curves = {}
    for waves, run in runs.items():
        for count in steps:
            energy, shells = errors(run.spectrum(count), wanted)
            if max(energy, shells) < 1:
                print(
                    f"{path.stem} {waves} {count} steps: energy {energy:.2e}, E(k) {shells:.2e}",
                    flush=True,
                )
                curves.setdefault(waves, []).append((count, max(energy, shells)))
    return curves


def draw(cases: dict[str, Curves], path: Path) -> None:
    """The errors over dt, a panel for each case."""
    figure, axes = plt.subplots(
        1, len(cases), sharey=True, figsize=(3.6 * len(cases), 3.2), squeeze=False
    )
    for (name, curves), axis in zip(cases.items(), axes[0], strict=True):
        for waves, curve in curves.items():
            counts, worst = zip(*curve, strict=True)
            axis.loglog([TURNOVER / n for n in counts], worst, "o-", label=waves)
        axis.axhline(1e-4, color="0.7", lw=0.8)
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set(title=name, xlabel="dt")
    axes[0, 0].set(ylabel="relative error after a turnover")
    axes[0, 0].legend()
    figure.savefig(path, bbox_inches="tight", dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", default=[*CASES], metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--points", type=int, default=32)
    parser.add_argument("--steps", type=int, nargs="*", default=[20, 40, 80, 160, 320, 640, 1280])
    parser.add_argument("--reference", type=int, default=2560)
    parser.add_argument("--integrator", default="rk4")
    parser.add_argument("--out", type=Path, default=Path("outputs/wave_steps"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    curves = {}
    for name in given.cases:
        kind, model, initial = CASES[name]
        path = given.out / f"{name}.yaml"
        path.write_text(FLOW.format(kind=kind, model=model, initial=initial, points=given.points))
        curves[name] = measured(path, given.integrator, given.steps, given.reference)
    draw(curves, given.out / "wave_steps.png")
    print(given.out / "wave_steps.png")


if __name__ == "__main__":
    main()
