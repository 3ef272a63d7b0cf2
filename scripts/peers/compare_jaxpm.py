"""Compares second-order displacements and particle-mesh motion with JaxPM: 32^3 particles, 256
Mpc/h.

    python scripts/peers/compare_jaxpm.py PYTHON-WITH-JAXPM [steps]

prints the largest relative difference of P(k) at the start (a = 0.1) and at a = 1. Both programs
assign mass to the grid by CIC and divide by its window function; JaxPM chooses its time steps
adaptively."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from simulator import Simulation, load_config
from simulator.physics.models.split_equation import background_of
from simulator.plugins.cosmology.cosmological import linear_power
from simulator.plugins.gravity.composite import Composite
from simulator.plugins.gravity.cosmology import Background
from simulator.simulation.advance import Until
from simulator.spectral.random import gaussian

N = 32
BOX = 256.0
START = 0.1
STOP = 1.0
MATTER = 0.3
SEED = 1
CONFIG = f"""\
model:
  kind: composite
  cosmology: {{start: {START}, matter: {MATTER}, hubble: 1.0}}
  components: [{{kind: particles, name: dark, count: {N**3}, assignment: cic, softening: 0}}]
grid: {{shape: [{N}, {N}, {N}], box: [{BOX}, {BOX}, {BOX}]}}
initial:
  kind: composite
  components: {{dark: {{kind: cosmological, amplitude: 158, index: -1.5, seed: {SEED}, order: 2}}}}
time: {{stop: STOP, dt: DT}}
devices: {{platform: cpu, count: 2}}
"""


def contrast(run: Simulation) -> np.ndarray:
    """The linear density contrast at a = 1 on the points of the particles' lattice, (N, N, N)."""
    transform = run.model.transform
    layout = transform.layout
    settings = run.config.initial.components["dark"]
    k = jnp.sqrt(layout.k_squared())
    inside = k > 0
    for axis in "xyz":
        inside = inside & (2 * abs(layout.integers(axis)) < N)
    power = linear_power(settings, cast(Composite, run.model).parts["dark"], cast(Any, run.inputs))
    size = jnp.where(inside & layout.mask, jnp.sqrt(power(jnp.maximum(k, 1e-9)) / BOX**3), 0)
    half = 0.5 * BOX / N
    phase = jnp.exp(1j * half * sum(layout.wavenumbers()))
    return np.asarray(transform.inverse(layout.constrain(size * gaussian(layout, SEED)[0] * phase)))


def power_of(position: np.ndarray) -> np.ndarray:
    """P(k) of positions (3, n; grid spacings) in shells up to the Nyquist wavenumber, by CIC
    without its window."""
    mesh = np.zeros((N, N, N))
    base = np.floor(position).astype(int)
    part = position - base
    for corner in np.ndindex(2, 2, 2):
        weight = np.prod([p if c else 1 - p for c, p in zip(corner, part, strict=True)], axis=0)
        np.add.at(mesh, tuple((b + c) % N for b, c in zip(base, corner, strict=True)), weight)
    k = np.fft.fftfreq(N)
    window = np.sinc(k)[:, None, None] ** 2 * np.sinc(k)[:, None] ** 2 * np.sinc(k) ** 2
    square = np.abs(np.fft.fftn(mesh) / mesh.sum() / window) ** 2
    k = N * np.sqrt(k[:, None, None] ** 2 + k[:, None] ** 2 + k**2)
    shell = np.floor(k + 0.5 + 1e-9).astype(int)
    counts = np.bincount(shell.ravel())
    sums = np.bincount(shell.ravel(), square.ravel())
    return (BOX**3 * sums / counts)[1 : N // 2]


def main(python: str, steps: int) -> None:
    with TemporaryDirectory() as folder:
        path, given, found = (
            Path(folder) / name for name in ("run.yaml", "given.npz", "found.npz")
        )
        path.write_text(CONFIG.replace("STOP", "1").replace("DT", "1"))
        background = background_of(Simulation(load_config(path)).model)
        assert isinstance(background, Background)
        stop = background.time_of(STOP)
        path.write_text(CONFIG.replace("STOP", str(stop)).replace("DT", str(stop / steps)))
        run = Simulation(load_config(path))
        # JaxPM normalizes this growth factor, -7/3 D_2 with D = 1 at a = 1, to 1 at a = 1.
        second = -7 / 3 * background.grown(START).second / background.growth(1.0) ** 2
        np.savez(
            given, contrast=contrast(run), start=START, stop=STOP, matter=MATTER, second=second
        )
        here = Path(__file__).with_name("jaxpm_particles.py")
        subprocess.run([python, str(here), str(given), str(found)], check=True)
        theirs = np.load(found)

        def ours(state) -> np.ndarray:
            particles = state.particles["dark"]
            ids = np.asarray(particles.id)
            position = np.asarray(particles.records["position"])[:, ids >= 0]
            return position[:, np.argsort(ids[ids >= 0])] * N / BOX

        state = run.state
        names = ("displaced", "moved")
        places = [ours(state)]
        places.append(ours(run.advance(state, Until(stop, np.inf, 10 * steps))))
        for name, mine in zip(names, places, strict=True):
            other = theirs[name].reshape(-1, 3).T
            away = np.abs(mine - other) % N
            away = np.minimum(away, N - away)
            ratio = power_of(mine) / power_of(other) - 1
            print(
                f"{name}: positions differ by up to {away.max():.2e} grid spacings "
                f"(rms {np.sqrt((away**2).mean()):.2e}), "
                f"P(k) by up to {np.abs(ratio).max():.2e}, up to half the Nyquist wavenumber "
                f"{np.abs(ratio[: N // 4]).max():.2e}"
            )
        print(
            f"JaxPM: {float(theirs['seconds']):.3f} s for one evaluation of its forces, one device"
        )


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 2)
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 128)
