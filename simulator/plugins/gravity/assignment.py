"""Mass of particles on the points of the grid, and the window that this puts on its modes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import ceil, log2
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Complex, Float

from simulator.physics.particles.domain import Cut, Domain
from simulator.physics.particles.interpolation import KERNELS, Count, Sampler, Weights, within
from simulator.plugins.gravity.matter_kernels import deposit
from simulator.spectral import Layout, Transform
from simulator.spectral.arrays import OfModes, ParticleScalars, ParticleVectors, PhysicalScalar
from simulator.spectral.collectives import after
from simulator.spectral.grid import AXES

Scheme = Literal["cic", "tsc", "pcs"]
_WEIGHTS: dict[Scheme, Weights] = {
    "cic": "linear",
    "tsc": "quadratic_spline",
    "pcs": "cubic_spline",
}


@dataclass(frozen=True, eq=False)
class Assignment:
    """Cloud in cell, triangular shaped cloud or piecewise cubic spline: B-splines over 2, 3 or 4
    points of an axis.

    Hockney & Eastwood, Computer Simulation Using Particles (1988), section 5-3. Every particle has
    to be on the device that owns its place."""

    transform: Transform
    scheme: Scheme
    total: int | None = None
    """The number of particles for whose masses sums are sums of whole numbers, the same on any
    number of devices; None: sums of floating-point numbers."""
    interlaced: bool = False
    """Mass is also assigned to a second grid, shifted by half a cell along every axis, and forces
    are means over both grids. Aliases by n_i times the grid's wavenumber along the axes then cancel
    if the sum of the n_i is odd."""

    @property
    def kind(self) -> Weights:
        return _WEIGHTS[self.scheme]

    @cached_property
    def sampler(self) -> Sampler:
        """The interpolation with the weights of the assignment."""
        return Sampler(self.transform, self.kind, reach=1 if self.interlaced else 0)

    @property
    def domain(self) -> Domain:
        return self.sampler.domain

    def window(self, layout: Layout, dtype: DTypeLike = jnp.float64, sign: int = 1) -> OfModes:
        """The factor prod_i sinc(k_i dx_i / 2)^p by which the assignment changes each mode, p = 2,
        3, 4; its inverse with the sign -1."""
        window = jnp.ones((1, 1, 1), dtype)
        power = sign * KERNELS[self.kind].points
        for axis, n in zip(AXES, layout.grid.shape, strict=True):
            cycles = layout.padded_mode_numbers(axis) / n
            window = window * layout.along(
                axis, np.sinc(np.where(abs(cycles) > 0.5, 0, cycles)) ** power, dtype
            )
        return window

    def density(
        self, position: ParticleVectors, mass: ParticleScalars, count: Count = None
    ) -> PhysicalScalar:
        """Mass per cell, the result of `deposit` or, with interlacing, the mean over both grids.

        The phases of the second grid's modes are shifted back by half a cell: Sefusatti et al.,
        Mon. Not. R. Astron. Soc. 460, 3624 (2016)."""
        first = self.deposit(position, mass, count)
        if not self.interlaced:
            return first
        second = self.deposit(self.domain.after(position + self._half_cell, first), mass, count)
        one, other = self.transform.forward(jnp.stack([first, second]))
        unshifted, shifted = self._shares()
        mean = one * unshifted + other * shifted.conj().astype(other.dtype)
        return self.transform.inverse(self.transform.layout.constrain(mean))

    def interpolated(
        self,
        modes: Complex[Array, "component ka kb kc"],
        position: ParticleVectors,
        count: Count = None,
    ) -> Float[Array, "component particle"]:
        """Values of a field at positions, 0 beyond the first `count` entries of a device, by the
        weights with which `density` assigns mass to the grids, so that forces between particles are
        equal and opposite."""
        if not self.interlaced:
            return _interpolate(self, self.transform.inverse(modes), position, count)
        unshifted, shifted = self._shares()
        both = jnp.concatenate([modes * unshifted, modes * shifted.astype(modes.dtype)])
        values = self.transform.inverse(self.transform.layout.constrain(both))
        n = modes.shape[0]
        first: Any = _interpolate(self, values[:n], position, count)
        moved = self.domain.after(position + self._half_cell, first)
        second: Any = _interpolate(self, values[n:], moved, count)
        return first + second

    def slopes(
        self,
        values: Float[Array, "component pa pb pc"],
        position: ParticleVectors,
        shares: Float[Array, "component n"],
        count: Count,
    ) -> ParticleVectors:
        """The gradient with respect to positions of the sum over components of `shares` times the
        interpolated values; 0 for particles whose shares are 0."""
        parts = []
        before = position
        for axis in range(3):
            at = self.domain.after(position, before)
            before = replace(self.sampler, sloped=axis).of_values(values, at, count)
            parts.append(jnp.where(shares != 0, shares * before, 0).sum(0))
        return jnp.stack(parts).astype(position.dtype)

    @property
    def _half_cell(self) -> np.ndarray:
        return 0.5 * np.asarray(self.transform.grid.spacing)[:, None]

    def _shares(self) -> tuple[jax.Array, jax.Array]:
        """The factors of both grids in a mode: 1/2, and exp(-i k . dx / 2) / 2, which translates
        the mode by half a cell along every axis. Nyquist modes, which stand for two signs of k and
        have no such phase, come from the first grid alone."""
        layout = self.transform.layout
        angle = jnp.zeros((1, 1, 1))
        for axis in AXES:
            angle = angle + layout.cycles(axis)
        nyquist = layout.nyquist
        turned = jnp.where(nyquist, 0, 0.5 * jnp.exp(-1j * jnp.pi * angle))
        return jnp.where(nyquist, 1, 0.5).astype(self.transform.dtype), turned

    def deposit(
        self, position: ParticleVectors, mass: ParticleScalars, count: Count = None
    ) -> PhysicalScalar:
        """Mass per cell of particles at positions, zero in padding; of the first `count` entries of
        a device."""
        return _deposit(self, position, mass, count)

    def _deposited(
        self, position: ParticleVectors, mass: ParticleScalars, count: Count
    ) -> PhysicalScalar:
        domain = self.domain
        if count is None:
            count = jnp.full(domain.devices, mass.shape[0] // domain.devices, jnp.int32)
        if self.total is not None or self.transform.kernels != "native":
            mass = domain.on_devices(within, mass, count)
        scale = None if self.total is None else _scale(mass, self.total)
        if not domain.cuts:
            return self._unscaled(self._on_device(position, mass, count, scale, (0, 0)), scale)
        below, above = self.sampler.ghosts

        def local(
            position: jax.Array, mass: jax.Array, count: jax.Array, scale: jax.Array | None
        ) -> jax.Array:
            return folded(
                domain,
                self._on_device(position, mass, count, scale, (below, above)),
                below,
                above,
            )

        specs = domain.spec(2), domain.spec(1), domain.spec(1), jax.sharding.PartitionSpec()
        values = domain.mapped(local, specs, domain.physical.spec)(position, mass, count, scale)
        return self._unscaled(values, scale)

    def _block(self, ghosts: tuple[int, int]) -> tuple[list[int], Mapping[int, jax.Array]]:
        """The extents of one device's block with its ghost planes, and its first planes along cut
        axes."""
        domain = self.domain
        extents = [
            n // domain.physical.parts(a) for n, a in zip(domain.physical.shape, AXES, strict=True)
        ]
        for cut in domain.cuts:
            extents[cut.axis] += sum(ghosts)
        return extents, domain.starts(ghosts[0])

    def _unscaled(self, values: jax.Array, scale: jax.Array | None) -> jax.Array:
        return values if scale is None else (values / scale).astype(self.transform.dtype)

    def _on_device(
        self,
        position: jax.Array,
        mass: jax.Array,
        count: jax.Array,
        scale: jax.Array | None,
        ghosts: tuple[int, int],
    ) -> jax.Array:
        """The mass per cell of one device's block with its ghost planes; with a `scale` multiplied
        by it."""
        extents, starts = self._block(ghosts)
        if self.transform.kernels == "native":
            block = jax.ShapeDtypeStruct(
                tuple(extents), self.transform.dtype if scale is None else np.dtype(np.int64)
            )
            support = self.sampler.block_points(AXES, starts)
            return deposit(position, mass, count, 1.0 if scale is None else scale, block, support)
        dtype = self.transform.dtype if scale is None else np.dtype(np.float64)
        offsets, factors, inside = self.sampler.neighbours(position, extents, starts, dtype)
        masses = jnp.where(inside, mass, 0).astype(dtype)
        points = KERNELS[self.kind].points
        sums = dtype
        if scale is not None:
            masses = masses * scale
            sums = np.dtype(np.int64)

        def line(number: jax.Array, flat: jax.Array) -> jax.Array:
            i = number // points
            j = number % points
            start = offsets[0][i] + offsets[1][j]
            part = factors[0][i] * factors[1][j] * masses
            for k in range(points):
                share = part * factors[2][k]
                share = share if scale is None else jnp.rint(share).astype(sums)
                flat = flat.at[start + offsets[2][k]].add(share, mode="drop")
            return flat

        flat = jnp.zeros(extents[0] * extents[1] * extents[2], sums)
        return jax.lax.fori_loop(0, points**2, line, flat).reshape(extents)


# The transpose of a deposit is an interpolation with the same weights, and the other way round;
# derivatives by positions are interpolations with the derivatives of the weights. Rounding to whole
# numbers is left out.


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _deposit(
    assignment: Assignment, position: jax.Array, mass: jax.Array, count: Count
) -> jax.Array:
    return assignment._deposited(position, mass, count)


def _deposit_reverse(
    assignment: Assignment, residuals: tuple[jax.Array, jax.Array, Count], slope: jax.Array
) -> Any:
    position, mass, count = residuals
    by_mass = assignment.sampler.of_values(slope[None], position, count)[0]
    moved = assignment.slopes(
        slope[None], assignment.domain.after(position, by_mass), mass[None], count
    )
    # Particles outside of a device's planes, whose mass is left out, have no interpolated value.
    left_out = jnp.isnan(by_mass)
    return jnp.where(left_out, 0, moved), jnp.where(left_out, 0, by_mass).astype(mass.dtype), None


_deposit.defvjp(
    lambda assignment, *arguments: (_deposit(assignment, *arguments), arguments), _deposit_reverse
)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _interpolate(
    assignment: Assignment, values: jax.Array, position: jax.Array, count: Count
) -> jax.Array:
    return assignment.sampler.of_values(values, position, count)


def _interpolate_reverse(
    assignment: Assignment, residuals: tuple[jax.Array, jax.Array, Count], slope: jax.Array
) -> Any:
    (values, position, count), parts = residuals, []
    moved = assignment.slopes(values, position, slope, count)
    before: Any = moved
    plain = replace(assignment, total=None)
    for component in slope:
        before = _deposit(plain, plain.domain.after(position, before), component, count)
        parts.append(before)
    return jnp.stack(parts), moved, None


_interpolate.defvjp(
    lambda assignment, *arguments: (_interpolate(assignment, *arguments), arguments),
    _interpolate_reverse,
)


def _scale(mass: jax.Array, total: int) -> jax.Array:
    """The power of two by which masses are multiplied such that they are at most 2^51, which sums
    of double precision round to whole numbers, and the sum of all `total` masses is a 64-bit
    integer."""
    room = min(51, 62 - ceil(log2(max(total, 2))))
    return 2.0 ** (
        room - jnp.ceil(jnp.log2(jnp.maximum(abs(mass).max(), jnp.finfo(jnp.float64).tiny)))
    )


def cloud(layout: Layout, diameter: float, dtype: DTypeLike) -> OfModes:
    """The transform of a sphere with the diameter a whose density falls linearly from its centre to
    0 at its edge, 12 / x^4 (2 - 2 cos x - x sin x) with x = k a / 2: Hockney & Eastwood's S2, eq.
    8-3. Such spheres attract each other like points if they do not overlap."""
    x = jnp.sqrt(layout.k_squared()) * diameter / 2
    small = x < 0.1
    y = jnp.where(small, 1.0, x)
    shape = 12 / y**4 * (2 - 2 * jnp.cos(y) - y * jnp.sin(y))
    return jnp.where(small, 1 - x**2 / 15 + x**4 / 560, shape).astype(dtype)


def compensated_cloud(layout: Layout, width: float, dtype: DTypeLike) -> OfModes:
    """The transform S of a cloud for which S^2, the attraction of two clouds at each k relative to
    points, is exp(-x^2) (1 + x^2 + x^4/2 + x^6/6 + x^8/24) with x = k width: 1 - x^10/120 for long
    waves. In space S^2 is a Gaussian times a polynomial whose moments of order 2 to 8 vanish."""
    x2 = layout.k_squared(dtype) * width**2
    shape = jnp.sqrt(1 + x2 * (1 + x2 / 2 * (1 + x2 / 3 * (1 + x2 / 4))))
    for axis, unit in zip(AXES, layout.grid.fundamental, strict=True):
        shape = shape * layout.along(
            axis, np.exp(-((layout.padded_mode_numbers(axis) * unit * width) ** 2) / 2), dtype
        )
    return shape


def folded(domain: Domain, block: jax.Array, below: int, above: int) -> jax.Array:
    """The device's own planes of a block with ghost planes, plus the sums that the neighbours
    hold in their ghost planes: the transpose of `Domain.extended`. To be called inside shard_map."""
    for cut in reversed(domain.cuts):
        block = _folded(block, cut, block.ndim - 3 + cut.axis, below, above)
    return block


def _folded(block: jax.Array, cut: Cut, axis: int, below: int, above: int) -> jax.Array:
    owned = jax.lax.slice_in_dim(block, below, below + cut.extent, axis=axis)
    here = jax.lax.axis_index(cut.name)
    before = block
    if cut.planes < cut.parts * cut.extent:  # no device owns the planes of padding
        plane = jnp.arange(cut.extent).reshape([-1 if i == axis else 1 for i in range(block.ndim)])
        owned = jnp.where(plane < cut.planes - here * cut.extent, owned, 0)
    for pairs, first, planes, _ in cut.rounds(below, above):
        start = below + first
        sent = jax.lax.slice_in_dim(block, start, start + planes.shape[1], axis=axis)
        back = [(device, source) for source, device in pairs]
        got = before = jax.lax.ppermute(after(sent, before), cut.name, back)
        index = jnp.asarray(planes)[here]
        owned = owned.at[(slice(None),) * axis + (index,)].add(got)
    return owned
