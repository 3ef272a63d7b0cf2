#!/usr/bin/env python
"""Compares the spectral code with sixth-order finite differences: error against processor time.

    python scripts/finite_differences.py PICTURE.png

The Taylor-Green vortex at Re = 1600 is followed while its vortex sheets form, and a random flow
decays. Both codes take RK4 steps in double precision with the CFL number 1; the reference is the
spectral code on a finer grid. Time is that of the processor, of all threads, without compilation."""

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

from simulator import Simulation, load_config
from simulator.physics.models import State
from simulator.plugins.datasets.other_grid import distance, resampled
from simulator.simulation.advance import Until

matplotlib.use("Agg")
import matplotlib.pyplot as plt

T = TypeVar("T")
FIRST = (3 / 4, -3 / 20, 1 / 60)  # Of (f(x + j h) - f(x - j h)) / h, j = 1, 2, 3.
SECOND = (3 / 2, -3 / 20, 1 / 90)  # Of (f(x + j h) - 2 f(x) + f(x - j h)) / h^2.
CONFIG = """\
model: {{kind: navier_stokes, viscosity: {viscosity}}}
grid: {{shape: [{n}, {n}, {n}]}}
initial: {start}
time: {{stop: {stop}, integrator: rk4, cfl: 1}}
devices: {{platform: cpu, count: 1}}
"""


@dataclass(frozen=True)
class Case:
    """A flow from its start to the time `stop`, on grids of `sizes` and on the finer `reference`."""

    name: str
    start: str
    viscosity: float
    stop: float
    sizes: tuple[int, ...]
    reference: int

    def spectral(self, n: int) -> Simulation:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.yaml"
            path.write_text(
                CONFIG.format(n=n, start=self.start, viscosity=self.viscosity, stop=self.stop)
            )
            return Simulation(load_config(path), report=lambda _: None)


CASES = (
    Case(
        name="Taylor-Green, Re = 1600",
        start="{kind: taylor_green}",
        viscosity=1 / 1600,
        stop=4.0,
        sizes=(32, 48, 64, 96),
        reference=160,
    ),
    Case(
        name="random flow",
        start="{kind: random, peak: 2, energy: 0.5, seed: 1}",
        viscosity=0.02,
        stop=2.0,
        sizes=(16, 24, 32, 48),
        reference=64,
    ),
)


class FiniteDifferences:
    """du/dt = -P[(u . grad) u + div(u u)] / 2 + nu lap u by central differences of sixth order, the
    skew-symmetric form, on n^3 points of a box with side 2 pi. P removes the divergence, as these
    differences see it, by a Fourier transform."""

    def __init__(self, n: int, viscosity: float):
        self.h = 2 * np.pi / n
        self.viscosity = viscosity
        # The wavenumbers of the differences: of sin(k x), their derivative is k' cos(k x).
        k = np.fft.fftfreq(n, 1 / n), np.fft.fftfreq(n, 1 / n), np.fft.rfftfreq(n, 1 / n)
        seen = [
            2 / self.h * sum(c * np.sin(j * q * self.h) for j, c in enumerate(FIRST, 1)) for q in k
        ]
        self.k = [
            np.reshape(q, [-1 if i == a else 1 for i in range(3)]) for a, q in enumerate(seen)
        ]
        self.k_squared = sum(q**2 for q in self.k)

    def along(self, f: jax.Array, axis: int) -> jax.Array:
        pairs = (jnp.roll(f, -j, axis - 3) - jnp.roll(f, j, axis - 3) for j in (1, 2, 3))
        return jnp.asarray(sum(c * pair for c, pair in zip(FIRST, pairs, strict=True)) / self.h)

    def laplacian(self, f: jax.Array) -> jax.Array:
        terms = (
            c * (jnp.roll(f, -j, a) + jnp.roll(f, j, a) - 2 * f)
            for a in (-3, -2, -1)
            for j, c in enumerate(SECOND, 1)
        )
        return jnp.asarray(sum(terms) / self.h**2)

    def solenoidal(self, u: jax.Array) -> jax.Array:
        modes = jnp.fft.rfftn(u, axes=(1, 2, 3))
        along = sum(k * component for k, component in zip(self.k, modes, strict=True))
        along = jnp.where(self.k_squared > 1e-9, along / np.maximum(self.k_squared, 1e-9), 0)
        modes = modes - jnp.stack([k * along for k in self.k])
        return jnp.fft.irfftn(modes, u.shape[1:], axes=(1, 2, 3))

    def rate(self, u: jax.Array) -> jax.Array:
        advected = sum(u[j] * self.along(u, j) + self.along(u[j] * u, j) for j in range(3)) / 2
        return self.solenoidal(self.viscosity * self.laplacian(u) - advected)

    def step(self, u: jax.Array, dt: jax.Array) -> jax.Array:
        a = self.rate(u)
        b = self.rate(u + dt / 2 * a)
        c = self.rate(u + dt / 2 * b)
        d = self.rate(u + dt * c)
        return u + dt / 6 * (a + 2 * b + 2 * c + d)

    @partial(jax.jit, static_argnums=0)
    def advance(self, u: jax.Array, stop: float) -> jax.Array:
        def step(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            t, u = state
            stable = 2.7 / (3 * self.viscosity * (272 / 45) / self.h**2)
            dt = jnp.minimum(self.h / abs(u).sum(0).max(), stable)
            dt = jnp.minimum(dt, stop - t)
            return t + dt, self.step(u, dt)

        return jax.lax.while_loop(lambda s: s[0] < stop * (1 - 1e-12), step, (jnp.zeros(()), u))[1]


def timed(begin: Callable[[], T], advance: Callable[[T, float], T], stop: float) -> tuple[T, float]:
    """The end of a run, and the seconds of all threads in its steps; a call without steps
    compiles."""
    jax.block_until_ready(advance(begin(), 0.0))
    state = jax.block_until_ready(begin())
    began = time.process_time()
    end = jax.block_until_ready(advance(state, stop))
    return end, time.process_time() - began


def by_spectra(run: Simulation, begun: np.ndarray, stop: float) -> tuple[np.ndarray, float]:
    def advance(state: State, stop: float) -> State:
        return run.advance(state, Until(np.float64(stop), np.float64(np.inf), np.int64(1 << 40)))

    end, seconds = timed(lambda: run.state_from({"velocity": jnp.asarray(begun)}), advance, stop)
    run.state = end
    return np.asarray(run.values("velocity")), seconds


def by_differences(
    code: FiniteDifferences, begun: np.ndarray, stop: float
) -> tuple[np.ndarray, float]:
    end, seconds = timed(lambda: jnp.asarray(begun), code.advance, stop)
    return np.asarray(end), seconds


def curves(case: Case) -> dict[str, list[tuple[float, float]]]:
    """Core-seconds and error of the velocity for each size, by the name of the code."""
    fine = case.spectral(case.reference)
    begun = np.asarray(fine.values("velocity"))
    truth, _ = by_spectra(fine, begun, case.stop)
    points: dict[str, list[tuple[float, float]]] = {"spectral": [], "6th-order differences": []}
    for n in case.sizes:
        coarse = resampled(begun, (n,) * 3)
        code = FiniteDifferences(n, case.viscosity)
        ends = (
            by_spectra(case.spectral(n), coarse, case.stop),
            by_differences(code, coarse, case.stop),
        )
        for (label, curve), (end, seconds) in zip(points.items(), ends, strict=True):
            error = distance(
                {"u": np.stack([end] * 2)}, {"u": np.stack([truth] * 2)}, truth.shape[1:]
            )
            curve.append((seconds, error))
            print(
                f"{case.name}, {label}, {n}^3: {seconds:.3g} core-seconds, error {error:.3g}",
                flush=True,
            )
    return points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--small", action="store_true", help="tiny grids and times, as a try")
    args = parser.parse_args()
    small = [replace(case, sizes=(8,), reference=12, stop=0.1) for case in CASES]
    cases = small if args.small else CASES
    figure, panels = plt.subplots(1, 2, figsize=(6.4, 3.4), layout="constrained")
    for axes, case in zip(panels, cases, strict=True):
        for label, curve in curves(case).items():
            axes.loglog(*zip(*curve, strict=True), "o-", label=label)
        axes.set(title=f"{case.name}, t = {case.stop:g}", xlabel="core-seconds")
    panels[0].set_ylabel("error of velocity (VRMSE)")
    panels[0].legend()
    figure.savefig(args.picture, dpi=144)


if __name__ == "__main__":
    main()
