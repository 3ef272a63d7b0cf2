"""Interpolation of fields at the particles' positions: the velocity of the fluid, its acceleration,
gradient and scalars."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import pi
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Complex, Float, Int

from simulator.physics.particles.domain import Domain
from simulator.spectral import Fields, Layout, Transform
from simulator.spectral.arrays import (
    Combination,
    OfModes,
    ParticleScalars,
    ParticleVectors,
    SpectralVector,
    computed,
    latest,
)
from simulator.spectral.grid import AXES
from simulator.spectral.native.particles import Held, gather, woven
from simulator.spectral.operators import gradient

Interpolation = Literal["cubic_spline", "linear"]
"""Between points of the grid, for particles that move with a fluid."""
Weights = Literal["cubic_spline", "quadratic_spline", "linear"]
Count = Int[Array, "device"] | None
"""The number of particles on each device; None: as many as entries."""
REACH = 2  # The number of planes by which a particle may move away from the planes of its device within a step.


def within(values: jax.Array, count: jax.Array) -> jax.Array:
    """One device's values of its first `count` entries, 0 in others."""
    return jnp.where(jnp.arange(values.shape[-1]) < count[0], values, 0)


class _Kernel(NamedTuple):
    below: int  # Points used below the base point.
    points: int  # Along each axis.
    # The base point is the nearest one, else the one at or below the particle.
    nearest: bool = False


KERNELS: Mapping[Weights, _Kernel] = {
    "cubic_spline": _Kernel(1, 4),
    "quadratic_spline": _Kernel(1, 3, nearest=True),
    "linear": _Kernel(0, 2),
}


def weights(kind: Weights, fraction: ParticleScalars) -> list[ParticleScalars]:
    """Weights of the points along one axis for a particle at `fraction` spacings after the base
    point.

    The cubic B-spline's are (1-s)^3/6, (4 - 6 s^2 + 3 s^3)/6, (1 + 3 s + 3 s^2 - 3 s^3)/6, s^3/6;
    the quadratic one's, with s between -1/2 and 1/2, (1/2 - s)^2/2, 3/4 - s^2, (1/2 + s)^2/2."""
    s = fraction
    if kind == "linear":
        return [1 - s, s]
    if kind == "quadratic_spline":
        return [0.5 * (0.5 - s) ** 2, 0.75 - s * s, 0.5 * (0.5 + s) ** 2]
    r = 1 - s
    return [
        r * r * r / 6,
        (4 - 6 * s * s + 3 * s * s * s) / 6,
        (4 - 6 * r * r + 3 * r * r * r) / 6,
        s * s * s / 6,
    ]


def slopes(kind: Weights, fraction: ParticleScalars) -> list[ParticleScalars]:
    """The derivatives of `weights` with respect to `fraction`."""
    s = fraction
    r = 1 - fraction
    if kind == "linear":
        return [-jnp.ones_like(s), jnp.ones_like(s)]
    if kind == "quadratic_spline":
        return [s - 0.5, -2 * s, s + 0.5]
    return [-0.5 * r * r, s * (1.5 * s - 2), r * (2 - 1.5 * r), 0.5 * s * s]


def spline_sharpening(layout: Layout, dtype: DTypeLike) -> OfModes:
    """The inverse of the factor by which the cubic B-spline at the grid points changes a mode: the
    product of 3 / (2 + cos k_i dx_i) over the axes. With coefficients times this product, the
    spline passes through the field's values at the points.

    van Hinsberg et al., SIAM J. Sci. Comput. 34, B479 (2012), section 3."""
    product = jnp.ones((1, 1, 1), dtype)
    for axis, n in zip(AXES, layout.grid.shape, strict=True):
        angle = 2 * pi * layout.padded_mode_numbers(axis) / n
        product = product * layout.along(axis, 3 / (2 + np.cos(angle)), dtype)
    return product


@dataclass(frozen=True, eq=False)
class Sampler:
    """Interpolates fields of one transform: by cubic B-splines through the values at the grid
    points, which are twice continuously differentiable with an error of order dx^4, or linearly,
    with an error of order dx^2."""

    transform: Transform
    kind: Weights
    # The number of planes by which a particle may lie outside the planes of its device.
    reach: int = REACH
    sloped: int = -1  # The axis along which the derivative is interpolated instead of the value.

    @property
    def domain(self) -> Domain:
        return Domain.of(self.transform)

    def __call__(
        self,
        modes: Complex[Array, "component ka kb kc"],
        position: ParticleVectors | Combination,
        count: Count = None,
    ) -> Float[Array, "component particle"]:
        """Values of a field at positions (length), an array or a combination.

        A position may lie outside the box, and up to `reach` planes outside its device's part of
        the box; farther away the values are NaN. They are 0 beyond the first `count` entries of a
        device (None: of all)."""
        if self.kind == "cubic_spline":
            sharpening = spline_sharpening(self.transform.layout, modes.real.dtype)
            modes = self.transform.layout.constrain(modes * sharpening)
        if self.transform.kept_order is None:
            return self.of_values(self.transform.inverse(modes), position, count)
        # Values along the axis along which particles are sorted are neighbours in memory.
        return self.of_values(
            self.transform.inverse_kept(modes), position, count, self.transform.kept_order
        )

    @property
    def takes_values(self) -> bool:
        """Whether `of_values` costs less than a transform of the coefficients."""
        return self.kind == "linear" and self.transform.kept_order is not None

    def of_values(
        self,
        values: Float[Array, "component pa pb pc"],
        position: ParticleVectors | Combination,
        count: Count = None,
        order: str = "xyz",
    ) -> Float[Array, "component particle"]:
        """Values of a field at positions, from the coefficients of the splines at the points of the
        grid or, for linear interpolation, from the values there: (component, *order)."""
        if count is None:
            count = jnp.full(
                self.domain.devices, position.real.shape[1] // self.domain.devices, jnp.int32
            )
        if self.transform.kernels == "native":
            return _native(self, order, values, position, count)
        return self._reference(order, values, position, count)

    def _reference(
        self,
        order: str,
        values: jax.Array,
        position: ParticleVectors | Combination,
        count: jax.Array,
    ) -> jax.Array:
        """`of_values` in XLA's operations."""
        position = computed(position)
        values = values.transpose(0, *(1 + order.index(axis) for axis in AXES))
        if not self.domain.cuts:
            return within(self._local(values, position, {}), count)
        below, above = self.ghosts

        def local(block: jax.Array, position: jax.Array, count: jax.Array) -> jax.Array:
            starts = self.domain.starts(below)
            extended = self.domain.extended(block, below, above, position)
            return within(self._local(extended, position, starts), count)

        return self._on_devices(local, AXES, values, position, count)

    def _on_devices(
        self, local: Callable[..., jax.Array], order: str, *arguments: Any
    ) -> jax.Array:
        domain = self.domain
        block = PartitionSpec(None, *map(domain.physical.sharded.get, order))
        places = jax.tree.map(lambda a: domain.spec(a.ndim), arguments[1])
        return domain.mapped(local, (block, places, domain.spec(1)), domain.spec(2))(*arguments)

    @property
    def ghosts(self) -> tuple[int, int]:
        """The numbers of neighbours' planes that a device needs before and after its own planes."""
        kernel = KERNELS[self.kind]
        above = kernel.points - 1 - kernel.below + kernel.nearest
        return kernel.below + self.reach, above + self.reach

    def neighbours(
        self,
        position: ParticleVectors,
        extents: Sequence[int],
        starts: Mapping[int, jax.Array],
        dtype: DTypeLike,
    ) -> tuple[
        list[Int[Array, "point particle"]],
        list[Float[Array, "point particle"]],
        Bool[Array, "particle"],
    ]:
        """The grid points around positions in a device's block (x, y, z) of these extents, whose
        first plane along a cut axis is `starts`: along each axis the points' offsets in the
        flattened block, and their weights; and whether the block holds all points around a
        position."""
        grid = self.transform.grid
        kernel = KERNELS[self.kind]
        strides = (extents[1] * extents[2], extents[2], 1)
        offsets = []
        factors = []
        inside = jnp.ones(position.shape[1:], bool)
        for axis in range(3):
            scaled = position[axis] / grid.spacing[axis]
            base = jnp.floor(scaled + 0.5) if kernel.nearest else jnp.floor(scaled)
            along = weights(self.kind, scaled - base)
            if axis == self.sloped:
                along = [slope / grid.spacing[axis] for slope in slopes(self.kind, scaled - base)]
            factors.append(jnp.stack(along).astype(dtype))
            first = base.astype(jnp.int32) - kernel.below
            points = jnp.arange(kernel.points, dtype=jnp.int32)[:, None]
            if axis in starts:
                first = first - starts[axis]
                inside &= (first >= 0) & (first + kernel.points <= extents[axis])
                index = jnp.clip(first + points, 0, extents[axis] - 1)
            else:
                index = (first + points) % grid.shape[axis]
            offsets.append(index * strides[axis])
        return offsets, factors, inside

    def _local(
        self, block: jax.Array, position: jax.Array, starts: Mapping[int, jax.Array]
    ) -> jax.Array:
        """Values at positions (3, n) from one device's block (components, x, y, z)."""
        kernel = KERNELS[self.kind]
        offsets, factors, inside = self.neighbours(position, block.shape[1:], starts, block.dtype)
        flat = block.reshape(block.shape[0], -1)
        total = jnp.zeros((block.shape[0], *position.shape[1:]), block.dtype)

        def line(number: jax.Array, total: jax.Array) -> jax.Array:
            i = number // kernel.points
            j = number % kernel.points
            start = offsets[0][i] + offsets[1][j]
            factor = factors[0][i] * factors[1][j]
            along = jnp.zeros_like(total)
            for k in range(kernel.points):
                along += factors[2][k] * jnp.take(flat, start + offsets[2][k], axis=1, mode="clip")
            return total + factor * along

        total = jax.lax.fori_loop(0, kernel.points**2, line, total)
        return jnp.where(inside & jnp.isfinite(position).all(0), total, jnp.nan)

    def block_points(self, order: str, starts: Mapping[int, jax.Array], before: int = 0) -> Held:
        """The points in a device's block with the axes `order`, whose first plane along a cut axis
        is `starts`. If the last axis is not cut, the block repeats `before` of its last points
        before the first one."""
        axes = [AXES.index(axis) for axis in order]
        grid = self.transform.grid
        firsts = [
            starts.get(axis, first) for axis, first in zip(axes, (0, 0, -before), strict=True)
        ]
        periods = [0 if axis in starts else grid.shape[axis] for axis in axes]
        points = KERNELS[self.kind].points
        threads = self.domain.threads
        return Held(points, order, firsts, periods, grid.spacing, self.sloped, threads)

    def _local_native(
        self,
        order: str,
        block: jax.Array,
        position: ParticleVectors | Combination,
        count: jax.Array,
    ) -> jax.Array:
        """`_local` in native code, from one device's own block (components, *order)."""
        kernel = KERNELS[self.kind]
        domain = self.domain
        ghosts = self.ghosts
        starts = domain.starts(ghosts[0])
        last = AXES.index(order[-1])
        room = {axis: ghosts for axis in starts}
        room.setdefault(last, (kernel.below, kernel.points - 1 - kernel.below))
        below, above = zip(*(room.get(AXES.index(axis), (0, 0)) for axis in order), strict=True)
        support = self.block_points(order, starts, kernel.below)

        def part(first: int, size: int) -> jax.Array:
            field = block[first : first + size]
            around = last not in starts
            array = woven(field, below, above, around=around, threads=domain.threads)
            array = domain.filled(array, order, *ghosts, before) if domain.cuts else array
            return gather(array, position, count, support)

        parts = []
        before = latest(position)
        first = 0
        while first < block.shape[0]:
            size = 3 if block.shape[0] - first >= 3 else 1
            parts.append(part(first, size))
            before = parts[-1]
            first = first + size
        return jnp.concatenate(parts) if parts[1:] else parts[0]


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _native(sampler: Sampler, order: str, *arguments: Any) -> jax.Array:
    """`Sampler.of_values` by the native kernels."""
    local = partial(sampler._local_native, order)
    return (
        sampler._on_devices(local, order, *arguments) if sampler.domain.cuts else local(*arguments)
    )


@_native.defjvp
def _(sampler: Sampler, order: str, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
    # The derivatives are those of XLA's operations.
    reference = partial(sampler._reference, order)
    return _native(sampler, order, *primals), jax.jvp(reference, primals, tangents)[1]


VELOCITY = "velocity"
ACCELERATION = "acceleration"
GRADIENT = "gradient"
COMPONENTS: Mapping[str, int] = {VELOCITY: 3, ACCELERATION: 3, GRADIENT: 9}
"""The quantities that can be sampled besides scalar fields. `gradient` is du_i/dx_j, with j running
faster."""


class Fluid(NamedTuple):
    """The fluid of a state; `rate` is the partial time derivative of the velocity."""

    sampler: Sampler
    velocity: SpectralVector
    rate: SpectralVector
    fields: Fields  # Number fields by name.
    # Values (3, *kept_order) of the velocity on the grid, if they are known.
    values: jax.Array | None = None
    number: Count = None  # The number of positions on each device.

    def __call__(
        self, names: Collection[str], position: ParticleVectors | Combination
    ) -> dict[str, Float[Array, "_ particle"]]:
        """The quantities `names` at positions, an array or a combination: (components, entries);
        scalars have one component. Arrays are double; a velocity alone has the transform's
        precision."""
        if tuple(names) == (VELOCITY,):
            if self.values is None or not self.sampler.takes_values:
                return {VELOCITY: self.sampler(self.velocity, position, self.number)}
            order = self.sampler.transform.kept_order or ""
            return {VELOCITY: self.sampler.of_values(self.values, position, self.number, order)}
        layout = self.sampler.transform.layout
        modes: dict[str, jax.Array] = {}
        if VELOCITY in names or ACCELERATION in names:
            modes[VELOCITY] = self.velocity
        if GRADIENT in names or ACCELERATION in names:
            modes[GRADIENT] = jnp.concatenate(
                [gradient(layout, self.velocity[i]) for i in range(3)]
            )
        if ACCELERATION in names:
            modes["rate"] = self.rate
        modes |= {name: self.fields[name][None] for name in names if name not in COMPONENTS}
        joined = jnp.concatenate(list(modes.values()))
        values = self.sampler(joined, position, self.number).astype(jnp.float64)
        sampled = {}
        at = 0
        for name, part in modes.items():
            sampled[name], at = values[at : at + len(part)], at + len(part)
        if ACCELERATION in names:
            # Du/Dt = du/dt + (u . grad) u, all three interpolated.
            slope = sampled[GRADIENT].reshape(3, 3, -1)
            u = sampled[VELOCITY]
            advection = slope[:, 0] * u[0] + slope[:, 1] * u[1] + slope[:, 2] * u[2]
            sampled[ACCELERATION] = sampled.pop("rate") + advection
        return {name: sampled[name] for name in names}
