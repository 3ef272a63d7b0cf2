"""A linear Gaussian problem with a known answer: damped Rossby waves in a plane, a scalar observed at
points.

Every mode obeys q_t = L q, L = -viscosity k^2 + i beta k_x / k^2, so that prior, observations and
posterior are Gaussian. The answer is computed here with numpy alone, in the basis of the cosines and
sines of the half of the modes."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

EQUATION = """
from simulator.equations import Equation


class RossbyWaves(Equation):
    evolved = ("vorticity",)
    viscosity: float = VISCOSITY
    beta: float = BETA

    def linear(self):
        rate = 1j * self.beta * self.k[0] * self.inverse_k_squared
        return {"vorticity": rate - self.viscosity * self.k_squared}

    def products(self, values):
        return {}

    def combine(self, products, fields):
        return {}
"""
FLOW = """
model: {kind: python, path: waves.py, equation: RossbyWaves}
grid: {shape: [16, 16]}
initial: {kind: random, fields: {vorticity: {variance: 1, peak: 3, seed: 5}}}
time: {stop: 1.0, dt: 0.25}
devices: {platform: cpu, count: DEVICES}
"""
VISCOSITY = 0.02
BETA = 2.0
POINTS = 16
TIMES = np.array([0.0, 0.5, 1.0])


def energy(k: np.ndarray) -> np.ndarray:
    """E(k) of the prior."""
    return 5 * k**3 / (1 + k**2) ** 2


@dataclass(frozen=True)
class LinearGaussian:
    """The numbers of the problem in the basis of real functions; `shells` are those of the basis."""

    basis: np.ndarray  # (function, 3): k_x, k_y, and 0 for a cosine, 1 for a sine
    variance: np.ndarray  # of the prior
    observation: np.ndarray  # the matrix of the observations
    values: np.ndarray
    error: float

    @property
    def shells(self) -> np.ndarray:
        return np.rint(np.hypot(self.basis[:, 0], self.basis[:, 1])).astype(int)

    @property
    def covariance(self) -> np.ndarray:
        """The covariance of the start after the observations."""
        precision = self.observation.T @ self.observation / self.error**2
        return np.linalg.inv(precision + np.diag(1 / self.variance))

    @property
    def mean(self) -> np.ndarray:
        return self.covariance @ self.observation.T @ self.values / self.error**2

    def at(self, time: float, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The matrix from the coefficients of the start to the values at points at a time."""
        kx, ky, sine = self.basis.T
        square = kx**2 + ky**2
        decay = np.exp(-VISCOSITY * square * time)
        phase = np.outer(x, kx) + np.outer(y, ky) + BETA * kx / square * time
        return decay * np.where(sine > 0, np.sin(phase), np.cos(phase))

    def spectrum(self, covariance: np.ndarray) -> np.ndarray:
        """Half the box mean of the variance in each shell: a function has the mean square 1/2."""
        return np.bincount(self.shells, covariance.diagonal() / 4)


def grid_points() -> tuple[np.ndarray, np.ndarray]:
    x = np.arange(POINTS) * 2 * np.pi / POINTS
    x, y = np.meshgrid(x, x, indexing="ij")
    return x.ravel(), y.ravel()


def problem(
    folder: Path, *, observed: int, error: float, seed: int, devices: int = 1
) -> LinearGaussian:
    """Writes flow.yaml, table.npz with `observed` random places, and the prior's e.txt, and gives the
    exact numbers. The truth is drawn from the prior."""
    largest = (POINTS - 1) // 3
    both = range(-largest, largest + 1)
    half = [(kx, ky) for kx in both for ky in both if (kx, ky) > (0, 0)]
    basis = np.array([(kx, ky, sine) for kx, ky in half for sine in (0, 1)])
    shell = np.rint(np.hypot(basis[:, 0], basis[:, 1])).astype(int)
    # E(k) dk is half the mean square of a shell, in which every function has as much, and a function
    # has the mean square 1/2.
    variance = 4 * energy(shell.astype(float)) / np.bincount(shell)[shell]

    random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(100,)))
    x, y = random.uniform(0, 2 * np.pi, (2, observed))
    empty = LinearGaussian(basis, variance, np.empty(0), np.empty(0), error)
    matrix = np.concatenate([empty.at(time, x, y) for time in TIMES])
    truth = np.sqrt(variance) * random.standard_normal(len(variance))
    values = matrix @ truth + error * random.standard_normal(len(matrix))

    waves = np.arange(1, shell.max() + 2)
    np.savetxt(folder / "e.txt", np.stack([waves, energy(waves.astype(float))], 1))
    text = EQUATION.replace("VISCOSITY", str(VISCOSITY)).replace("BETA", str(BETA))
    (folder / "waves.py").write_text(text)
    (folder / "flow.yaml").write_text(FLOW.replace("DEVICES", str(devices)))
    table = {"time": TIMES, "x": x, "y": y, "vorticity": values.reshape(len(TIMES), -1)}
    np.savez(folder / "table.npz", error=error, **table)
    return LinearGaussian(basis, variance, matrix, values, error)
