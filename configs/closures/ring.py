"""Velocities in a plane whose stream function has energy in a ring of wavenumbers and random
phases."""

import jax.numpy as jnp
import numpy as np


def velocity(x, y, seed, wavenumber=4.0, width=0.75, largest=0.5):
    """|psi_k| = exp(-(|k| - wavenumber)^2 / (2 width^2)), scaled so that the largest speed is about
    `largest`; the scale is that on 64^2 points, so that grids of all sizes start from the same
    field."""
    reach = int(wavenumber + 5 * width)
    modes = [(m, n) for m in range(-reach, reach + 1) for n in range(reach + 1) if n > 0 or m > 0]
    size = [np.exp(-0.5 * ((np.hypot(m, n) - wavenumber) / width) ** 2) for m, n in modes]
    phases = np.random.default_rng(seed).uniform(0, 2 * np.pi, len(modes))

    def field(x, y, lib):
        u = v = 0.0
        for (m, n), a, phase in zip(modes, size, phases, strict=True):
            wave = a * lib.sin(m * x + n * y + phase)
            u, v = u + n * wave, v - m * wave
        return u, v

    line = 2 * np.pi * np.arange(64) / 64
    u, v = field(line[:, None], line[None, :], np)
    scale = largest / np.hypot(u, v).max()
    return {"velocity": [scale * part for part in field(x, y, jnp)]}
