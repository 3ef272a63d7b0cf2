"""The flow on which grids of equal k_max are compared: its start, and what is read from it. Every
contender calls the same functions."""

from typing import Any

import numpy as np

REYNOLDS = (400, 32)
"""At this Reynolds number, a sphere of modes up to this wavenumber has k_max eta = 1.1 at t = 6."""


def viscosity(k_max: int) -> float:
    """The viscosity at which k_max eta is the same for every k_max: eta grows with its 3/4th
    power."""
    reynolds, k = REYNOLDS
    return (k / k_max) ** (4 / 3) / reynolds


def start(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """A Taylor-Green vortex, and waves that break its symmetries: without them most modes and half
    of the shells stay empty."""
    velocity = (
        np.sin(x) * np.cos(y) * np.cos(z) + 0.1 * np.sin(z + 1),
        -np.cos(x) * np.sin(y) * np.cos(z) + 0.1 * np.sin(x + 2),
        0.1 * np.sin(y + 3) + 0 * x * z,
    )
    return np.stack(velocity)


def read(velocity: np.ndarray, nu: float) -> dict[str, Any]:
    """Energy, dissipation and the energy of the shells |k| = 0, 1, 2 ... from values on the
    grid."""
    n = len(velocity[0])
    k = np.fft.fftfreq(n, 1 / n)
    squares = k[:, None, None] ** 2 + k[:, None] ** 2 + np.arange(n // 2 + 1) ** 2
    twice = np.where(np.arange(n // 2 + 1) > 0, 1.0, 0.5)  # a real field's other half
    modes = np.fft.rfftn(velocity, axes=(1, 2, 3)) / n**3
    energies = twice * (abs(modes) ** 2).sum(axis=0)
    shells = np.rint(np.sqrt(squares)).astype(int)
    return {
        "energy": float(energies.sum()),
        "dissipation": float(2 * nu * (squares * energies).sum()),
        "spectrum": np.bincount(shells.ravel(), energies.ravel()).tolist(),
    }
