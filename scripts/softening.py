#!/usr/bin/env python
"""Compares softening lengths of particles: linear growth by wavenumber, and the force between two
particles.

    python scripts/softening.py PICTURE.png

16^3 particles on as many cells grow from a = 0.02 to 1. Forces at random positions and in random
directions are compared with Ewald's sum (Ann. Phys. 369, 253 (1921))."""

import sys
import tempfile
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from scipy.special import erfc

from simulator import Simulation, load_config
from simulator.physics.models.split_equation import background_of
from simulator.plugins.gravity.cosmology import Background

matplotlib.use("Agg")
import matplotlib.pyplot as plt

SIDE = 16
DISTANCES = np.arange(0.5, 6.6, 0.25)
SOFTENINGS = {"compensated": "compensated (default)", "3.6": "3.6"}
CASE = f"""\
model:
  kind: composite
  cosmology: {{start: 0.02, matter: 0.3, hubble: 1.0}}
  components: [{{kind: particles, name: dark, count: {SIDE**3}}}]
grid: {{shape: [{SIDE}, {SIDE}, {SIDE}], box: [{SIDE}, {SIDE}, {SIDE}]}}
initial: {{kind: composite, components: {{dark: {{kind: cosmological, amplitude: 1e-8, index: -1.5, seed: 1}}}}}}
time: {{stop: 21.6388, dt: 0.25}}
devices: {{platform: cpu, count: 1}}
"""


def simulation(softening: str) -> Simulation:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.yaml"
        path.write_text(CASE)
        config = load_config(path, [f"model.components.0.softening={softening}"])
    return Simulation(config, report=lambda _: None)


def expanding(run: Simulation) -> Background:
    background = background_of(run.model)
    assert isinstance(background, Background)
    return background


def growth(run: Simulation) -> np.ndarray:
    """Growth of the density in shells below the Nyquist wavenumber, divided by the growth of linear
    theory."""
    background = expanding(run)
    stop = background.time_of(1.0)
    end = jax.jit(lambda s: jax.lax.fori_loop(0, 87, lambda i, s: run.step(s, stop / 87), s))
    begun, grown = (
        np.asarray(run.spectra(s)["dark_density_power"]) for s in (run.state, end(run.state))
    )
    shells = slice(1, SIDE // 2)
    return np.sqrt(grown[shells] / begun[shells]) * background.growth(0.02) / background.growth(1.0)


def ewald(away: np.ndarray) -> np.ndarray:
    """Acceleration (n, 3) at `away` from a unit mass and its images, G = 1."""
    alpha = 6 / SIDE
    force = np.zeros_like(away)
    for cell in np.stack(np.meshgrid(*[np.arange(-2, 3)] * 3), -1).reshape(-1, 3):
        d = away + cell * SIDE
        s = np.sqrt((d**2).sum(1))
        near = erfc(alpha * s) + 2 * alpha * s / np.sqrt(np.pi) * np.exp(-((alpha * s) ** 2))
        force -= d * (near / s**3)[:, None]
    modes = np.stack(np.meshgrid(*[np.arange(-10, 11)] * 3), -1).reshape(-1, 3)
    k = 2 * np.pi / SIDE * modes[(modes**2).sum(1) > 0]
    k2 = (k**2).sum(1)
    return force - 4 * np.pi / SIDE**3 * np.sin(away @ k.T) @ (
        k * (np.exp(-k2 / (4 * alpha**2)) / k2)[:, None]
    )


def forces(run: Simulation, repeats: int = 4) -> np.ndarray:
    """Root mean square of the relative error of the force, for each distance."""
    rng = np.random.default_rng(0)
    begun = run.state.particles["dark"]
    count = begun.records["mass"].size
    mass = jnp.full(count, 1e-30).at[0].set(1 / float(expanding(run).settings.start))

    @jax.jit
    def pulled(places: jax.Array) -> jax.Array:
        records = {"position": places, "velocity": jnp.zeros_like(places), "mass": mass}
        kicked, _ = cast(Any, run.model).kick(
            {"dark": begun.with_records(records)}, jnp.float64(0), jnp.float64(1)
        )
        return kicked["dark"].records["velocity"]

    each = (count - 1) // len(DISTANCES)
    squares = []
    for _ in range(repeats):
        first = rng.uniform(0, SIDE, 3)
        ways = rng.normal(size=(each * len(DISTANCES), 3))
        ways *= (np.repeat(DISTANCES, each) / np.linalg.norm(ways, axis=1))[:, None]
        places = np.tile(first, (count, 1))
        places[1 : len(ways) + 1] += ways
        found = np.asarray(pulled(jnp.asarray(places.T % SIDE))).T[1 : len(ways) + 1]
        exact = ewald(ways)
        squares.append(
            (((found - exact) ** 2).sum(1) / (exact**2).sum(1)).reshape(-1, each).mean(1)
        )
    return np.sqrt(np.mean(squares, 0))


def main(path: str) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    k = np.arange(1, SIDE // 2) / (SIDE // 2)
    for softening, label in SOFTENINGS.items():
        run = simulation(softening)
        grown = growth(run)
        errors = forces(run)
        print(softening, "growth", grown.round(3), "force errors", errors.round(3))
        left.plot(k, grown, "o-", ms=3, label=label)
        right.semilogy(DISTANCES, errors, "o-", ms=3)
    for reach, part in ((0.25, 0.03), (0.5, 0.1)):
        left.fill_between([0, reach], 1 - part, 1 + part, color="0.5", alpha=0.2, lw=0)
    left.set(
        xlabel="k / Nyquist wavenumber",
        ylabel="growth / linear theory",
        xlim=(0, 0.9),
        ylim=(0, 1.25),
    )
    left.legend(title="softening", frameon=False)
    right.set(xlabel="distance / grid spacing", ylabel="error of the force between two")
    right.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main(sys.argv[1])
