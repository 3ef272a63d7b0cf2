"""Quantum vortices: where the phase of a wave function winds."""

import itertools
from functools import reduce

import jax
import jax.numpy as jnp

from simulator.spectral import Local, Points, Transform
from simulator.spectral.operators import translate

EMPTY = 1e-8
"""Density, relative to the mean, below which a phase is round-off."""


def pierced_faces(transform: Transform, psi: jax.Array) -> jax.Array:
    """How many faces of grid cells a vortex line pierces, each as often as the phase winds around it.

    `psi`: coefficients. The winding around a face is the sum of the phase differences along its four edges, each
    taken between -pi and pi: the number of times that the four straight lines from value to value go around 0.
    A straight vortex line along an axis pierces one face for each grid plane it crosses; one of any direction about
    3/2 of its length over the spacing, on average.
    """
    layout, spacing = transform.layout, transform.grid.spacing
    corners: list[tuple[int, ...]] = [c for c in itertools.product((0, 1), repeat=3) if sum(c) < 3]
    shifted = [
        translate(layout, psi, (c[0] * spacing[0], c[1] * spacing[1], c[2] * spacing[2])) for c in corners
    ]
    mean = layout.inner(psi, psi)

    def local(values, points: Points, parameters) -> Local:
        wave = dict(zip(corners, values["psi"], strict=True))
        total = jnp.zeros(values["psi"].shape[1:], mean.dtype)
        for a, b in ((0, 1), (1, 2), (2, 0)):
            one, both, other = (tuple(int(i in axes) for i in range(3)) for axes in ((a,), (a, b), (b,)))
            around = [wave[0, 0, 0], wave[one], wave[both], wave[other]]
            windings = sum(_crossing(p, q) for p, q in zip(around, [*around[1:], around[0]], strict=True))
            filled = reduce(jnp.minimum, [p.real**2 + p.imag**2 for p in around]) > EMPTY * parameters
            total = total + jnp.where(filled, abs(windings), 0)
        return Local({}, {}, {"faces": total})

    found = transform.evaluate({"psi": jnp.stack(shifted)}, local, mean)
    return found.means["faces"] * transform.grid.points


def _crossing(p: jax.Array, q: jax.Array) -> jax.Array:
    """1 where the line from p to q crosses the positive real axis upwards, -1 downwards, else 0."""
    left = p.real * q.imag - p.imag * q.real > 0  # 0 lies on the left of the line
    up, down = (p.imag <= 0) & (q.imag > 0), (q.imag <= 0) & (p.imag > 0)
    return (up & left).astype(p.real.dtype) - (down & ~left).astype(p.real.dtype)
