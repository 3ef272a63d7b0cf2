"""Interpolation of fields at the particles' positions."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import pi
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from simulator.particles.domain import Domain
from simulator.spectral import Layout, Transform
from simulator.spectral.grid import AXES

Interpolation = Literal["cubic_spline", "linear"]
REACH = 2
"""The number of planes by which a particle may leave its device's planes within a step."""


class _Kernel(NamedTuple):
    below: int
    """Number of points used below the one at or below the particle."""
    points: int
    """Number of points along each axis."""


KERNELS: Mapping[Interpolation, _Kernel] = {"cubic_spline": _Kernel(1, 4), "linear": _Kernel(0, 2)}


def weights(kind: Interpolation, fraction: jax.Array) -> list[jax.Array]:
    """Weights of the points along one axis for a particle at the fraction `fraction` of the way to the next point.

    Those of the cubic B-spline are (1-s)^3/6, (4 - 6 s^2 + 3 s^3)/6, (1 + 3 s + 3 s^2 - 3 s^3)/6, s^3/6.
    """
    s = fraction
    if kind == "linear":
        return [1 - s, s]
    r = 1 - s
    return [
        r * r * r / 6,
        (4 - 6 * s * s + 3 * s * s * s) / 6,
        (4 - 6 * r * r + 3 * r * r * r) / 6,
        s * s * s / 6,
    ]


def spline_response(layout: Layout) -> jax.Array:
    """The factor by which the cubic B-spline at the grid points changes a mode: the product of (2 + cos k_i dx_i) / 3
    over the axes. With coefficients divided by it, the spline passes through the field's values at the points.

    van Hinsberg et al., SIAM J. Sci. Comput. 34, B479 (2012), section 3.
    """
    response = jnp.ones((1, 1, 1))
    for axis, n in zip(AXES, layout.grid.shape, strict=True):
        response = response * (2 + jnp.cos(2 * pi * layout.integers(axis) / n)) / 3
    return response


@dataclass(frozen=True, eq=False)
class Sampler:
    """Interpolates fields of one transform: by cubic B-splines through the values at the grid points, which are twice
    continuously differentiable with an error of order dx^4, or linearly, with an error of order dx^2."""

    transform: Transform
    kind: Interpolation

    @property
    def domain(self) -> Domain:
        return Domain(self.transform.physical)

    def __call__(self, modes: jax.Array, position: jax.Array) -> jax.Array:
        """Values (components, entries) of the fields with coefficients (components, *order) at positions (3,
        entries).

        A position may lie up to `REACH` planes outside its device's part of the box, and outside the box; beyond that
        the values are NaN.
        """
        if self.kind == "cubic_spline":
            response = spline_response(self.transform.layout).astype(modes.real.dtype)
            modes = self.transform.layout.constrain(modes / response)
        return self.of_values(self.transform.inverse(modes), position)

    def of_values(self, values: jax.Array, position: jax.Array) -> jax.Array:
        """The same, from spline coefficients or values (components, x, y, z) on the grid."""
        domain = self.domain
        physical, kernel = domain.physical, KERNELS[self.kind]
        if not domain.cuts:
            return self._local(values, position, {})

        def local(block: jax.Array, position: jax.Array) -> jax.Array:
            below, above = kernel.below + REACH, kernel.points - 1 - kernel.below + REACH
            starts = {cut.axis: jax.lax.axis_index(cut.name) * cut.extent - below for cut in domain.cuts}
            return self._local(domain.extended(block, below, above, position), position, starts)

        return jax.shard_map(
            local,
            mesh=physical.mesh,
            in_specs=(physical.spec_of(4), domain.spec(2)),
            out_specs=domain.spec(2),
            check_vma=False,
        )(values, position)

    def _local(self, block: jax.Array, position: jax.Array, starts: Mapping[int, jax.Array]) -> jax.Array:
        """Values at positions (3, n) from one device's block (components, x, y, z). `starts` gives its first plane
        along each cut axis."""
        grid, kernel = self.transform.grid, KERNELS[self.kind]
        extents = block.shape[1:]
        strides = (extents[1] * extents[2], extents[2], 1)
        offsets, factors = [], []
        inside = jnp.ones(position.shape[1:], bool)
        for axis in range(3):
            scaled = position[axis] / grid.spacing[axis]
            base = jnp.floor(scaled)
            factors.append(jnp.stack(weights(self.kind, scaled - base)).astype(block.dtype))
            first = base.astype(jnp.int32) - kernel.below
            points = jnp.arange(kernel.points, dtype=jnp.int32)[:, None]
            if axis in starts:
                first = first - starts[axis]
                inside &= (first >= 0) & (first + kernel.points <= extents[axis])
                index = jnp.clip(first + points, 0, extents[axis] - 1)
            else:
                index = (first + points) % grid.shape[axis]
            offsets.append(index * strides[axis])
        flat = block.reshape(block.shape[0], -1)
        total = jnp.zeros((block.shape[0], *position.shape[1:]), block.dtype)

        def line(number: jax.Array, total: jax.Array) -> jax.Array:
            i, j = number // kernel.points, number % kernel.points
            start, factor = offsets[0][i] + offsets[1][j], factors[0][i] * factors[1][j]
            along = jnp.zeros_like(total)
            for k in range(kernel.points):
                along += factors[2][k] * jnp.take(flat, start + offsets[2][k], axis=1, mode="clip")
            return total + factor * along

        total = jax.lax.fori_loop(0, kernel.points**2, line, total)
        return jnp.where(inside & jnp.isfinite(position).all(0), total, jnp.nan)
