"""Quantum vortices: where the phase of a wave function winds."""

from functools import reduce

import jax
import jax.numpy as jnp

from simulator.spectral import Local, Points, Transform
from simulator.spectral.operators import translate

EMPTY = 1e-8
"""Density, relative to the mean, below which the phase is dominated by round-off."""


def pierced_faces(transform: Transform, psi: jax.Array) -> jax.Array:
    """The number of faces of grid cells that vortex lines pierce, each counted with its winding number.

    `psi`: coefficients. The winding around a face is the sum of the phase differences along its four edges, each
    taken between -pi and pi: the number of times that the four straight lines from value to value encircle 0. A
    straight vortex line along an axis pierces one face for each grid plane that it crosses; a line of arbitrary
    direction pierces about 3/2 of its length over the spacing, on average.
    """
    layout, (dx, dy, _) = transform.layout, transform.grid.spacing
    # Neighbours in x and y by translation; neighbours in z are in the same block, which holds whole lines of z.
    columns = ((0, 0), (1, 0), (0, 1), (1, 1))
    shifted = [translate(layout, psi, (x * dx, y * dy, 0.0)) for x, y in columns]
    mean = layout.inner(psi, psi)

    def local(values, points: Points, parameters) -> Local:
        waves = dict(zip(columns, values["psi"], strict=True))

        def at(x: int, y: int, z: int) -> jax.Array:
            line = points.z.size
            if z == 0 or line == 1:
                return waves[x, y]
            return jnp.roll(waves[x, y], -1, points.z.shape.index(line))

        total = jnp.zeros(values["psi"].shape[1:], mean.dtype)
        for around in (
            (at(0, 0, 0), at(1, 0, 0), at(1, 1, 0), at(0, 1, 0)),
            (at(0, 0, 0), at(0, 1, 0), at(0, 1, 1), at(0, 0, 1)),
            (at(0, 0, 0), at(0, 0, 1), at(1, 0, 1), at(1, 0, 0)),
        ):
            windings = sum(_crossing(p, q) for p, q in zip(around, [*around[1:], around[0]], strict=True))
            filled = reduce(jnp.minimum, [p.real**2 + p.imag**2 for p in around]) > EMPTY * parameters
            total = total + jnp.where(filled, abs(windings), 0)
        return Local({}, {}, {"faces": total})

    evaluated = transform.evaluate({"psi": jnp.stack(shifted)}, local, mean)
    return evaluated.means["faces"] * transform.grid.points


def _crossing(p: jax.Array, q: jax.Array) -> jax.Array:
    """1 if the line from p to q crosses the positive real axis upwards, -1 if downwards, else 0."""
    left = p.real * q.imag - p.imag * q.real > 0  # 0 lies to the left of the line
    up, down = (p.imag <= 0) & (q.imag > 0), (q.imag <= 0) & (p.imag > 0)
    return (up & left).astype(p.real.dtype) - (down & ~left).astype(p.real.dtype)
