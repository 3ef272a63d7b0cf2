"""The positions of points in physical and of modes in spectral arrays, and their distribution over
devices.

Operators are written against layouts, not against an axis order: the wavenumbers are arrays that
broadcast against a spectral array, whatever the order of its axes."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, reduce
from operator import or_
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Complex, Float, Inexact, Int, Num

from simulator.cluster.environment import UNOPTIMIZED
from simulator.cluster.mesh import spatial
from simulator.spectral.arrays import (
    OfModes,
    OverModes,
    OverPoints,
    PhysicalField,
    SpectralField,
    Spectrum,
    quotient,
    root,
)
from simulator.spectral.grid import AXES, Grid, shell_at
from simulator.spectral.program import Program

FEW = 1 << 21  # Grid points on which a program runs faster than it is optimized.


def padded(extent: int, parts: int) -> int:
    """The next multiple of `parts`: the length of an axis of `extent` entries when it is sharded
    over them."""
    return -(-extent // parts) * parts


@dataclass(frozen=True, eq=False)
class Arrangement:
    """The order of an array's axes, and their distribution over the devices of a mesh."""

    grid: Grid
    mesh: Mesh
    order: str  # The last three axes of the array, e.g. "zyx".
    sharded: Mapping[str, str]  # The mesh axis over which an axis is sharded, e.g. {"z": "slab"}.

    @cached_property
    def spec(self) -> PartitionSpec:
        return PartitionSpec(*(self.sharded.get(a) for a in self.order))

    def spec_of(self, rank: int) -> PartitionSpec:
        """Partition of an array with `rank - 3` leading axes, which are never sharded."""
        return PartitionSpec(*(None,) * (rank - 3), *self.spec)

    def sharding(self, rank: int = 3) -> NamedSharding:
        return NamedSharding(self.mesh, self.spec_of(rank))

    def constrain(self, array: jax.Array) -> jax.Array:
        """`array`, constrained to this layout's distribution over the devices."""
        if self.mesh.size == 1:
            return array
        return lax.with_sharding_constraint(array, self.sharding(array.ndim))

    @property
    def everywhere(self) -> NamedSharding:
        """The sharding of an array that every device holds whole."""
        return NamedSharding(self.mesh, PartitionSpec())

    def replicated(self, array: jax.Array) -> jax.Array:
        """`array`, constrained to be whole on every device."""
        if self.mesh.size == 1:
            return array
        return lax.with_sharding_constraint(array, self.everywhere)

    @property
    def devices(self) -> int:
        """The number of devices over which one field is cut; each member of an ensemble has this
        many devices."""
        return math.prod(spatial(self.mesh).values())

    @property
    def on_gpu(self) -> bool:
        return self.mesh.devices.flat[0].platform != "cpu"

    def parts(self, axis: str) -> int:
        return self.mesh.shape[self.sharded[axis]] if axis in self.sharded else 1

    def once(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a function that runs once: on processors and few points it is not
        optimized."""
        few = not self.on_gpu and self.grid.points <= FEW
        quick = few and not any(isinstance(a, Tracer) for a in jax.tree.leaves(arguments))
        return jax.jit(function, compiler_options=UNOPTIMIZED if quick else {})(*arguments)

    def _extent(self, axis: str) -> int:
        raise NotImplementedError

    # ---- axes as the user sees them: without the axes of one point of a plane or a line
    # -------------------

    @property
    def seen_order(self) -> str:
        """The axes that the user sees, in the order of the array."""
        return "".join(axis for axis in self.order if axis in self.grid.axes)

    @property
    def seen_shape(self) -> tuple[int, ...]:
        """The extents of the axes in `seen_order`, padding included."""
        return tuple(
            n for n, axis in zip(self.shape, self.order, strict=True) if axis in self.grid.axes
        )

    def seen_sharding(self, rank: int) -> NamedSharding:
        """The sharding of an array (..., *seen_order) of this rank."""
        spec = (self.sharded.get(a) for a in self.seen_order)
        return NamedSharding(
            self.mesh, PartitionSpec(*(None,) * (rank - len(self.seen_order)), *spec)
        )

    def as_seen(self, array: jax.Array) -> jax.Array:
        """An array (..., *order) as (..., *seen_order)."""
        return array.reshape(*array.shape[:-3], *self.seen_shape)

    def from_seen(self, array: jax.Array) -> jax.Array:
        """An array (..., *seen_order) as (..., *order)."""
        lead = array.shape[: array.ndim - len(self.seen_order)]
        return array.reshape(*lead, *self.shape)

    def whole(self, array: jax.Array, taker: str) -> jax.Array:
        """An array (..., *order) or (..., *seen_order) as (..., *order). Raises ValueError, which
        names the function `taker`, if the array has another shape."""
        if array.shape[-3:] == self.shape:
            return array
        if array.shape[array.ndim - len(self.seen_order) :] == self.seen_shape:
            return self.from_seen(array)
        needed = ", ".join(map(str, self.seen_shape))
        raise ValueError(f"{taker} takes arrays of shape (..., {needed}), not {array.shape}")

    @cached_property
    def valid(self) -> tuple[int, int, int]:
        """Extents without padding, in the order of the array's axes."""
        a, b, c = (self._extent(axis) for axis in self.order)
        return (a, b, c)

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Extents of the array, padding at the end of sharded axes included."""
        a, b, c = (
            padded(n, self.parts(axis)) for n, axis in zip(self.valid, self.order, strict=True)
        )
        return (a, b, c)

    def summed(
        self,
        local: Callable[..., Any],
        inputs: Sequence[PartitionSpec],
        outputs: int = 1,
        *,
        name: str,
    ) -> Program:
        """A program with `outputs` results: `local` is applied to each device's part of arrays with
        these partitions, and its results are summed over all devices."""
        axes = tuple(dict.fromkeys(self.sharded.values()))

        def total(*values: jax.Array) -> tuple[jax.Array, ...]:
            return tuple(
                lax.psum(part, axes) if self.devices > 1 else part for part in local(*values)
            )

        return Program(total, self.mesh, inputs, [PartitionSpec()] * outputs, name=name)

    def binned(
        self, index: Int[Array, "#a #b #c"], values: Float[Array, "component a b c"], count: int
    ) -> Float[Array, "component bin"]:
        """The sums of values with the same index below `count`; all others are left out."""
        index = self.constrain(jnp.broadcast_to(index, self.shape))
        (sums,) = _binning(self, count)(index, self.constrain(values))
        return sums

    def along(self, axis: str, values: np.ndarray, dtype: DTypeLike) -> jax.Array:
        shape = [1, 1, 1]
        shape[self.order.index(axis)] = len(values)
        return jnp.asarray(values, dtype).reshape(shape)


@lru_cache(maxsize=64)
def _binning(layout: Arrangement, count: int) -> Program:
    def local(index: jax.Array, values: jax.Array) -> tuple[jax.Array]:
        def sums(component: jax.Array) -> jax.Array:
            zeros = jnp.zeros(count, component.dtype)
            return zeros.at[index.ravel()].add(component.ravel())

        return (jax.vmap(sums)(values),)

    return layout.summed(local, [layout.spec, layout.spec_of(4)], name="bin_sum")


@dataclass(frozen=True, eq=False)
class PhysicalLayout(Arrangement):
    """Layout of physical arrays (..., x, y, z)."""

    def _extent(self, axis: str) -> int:
        return self.grid.shape[AXES.index(axis)]

    def coordinates(
        self, dtype: DTypeLike = jnp.float64
    ) -> tuple[OverPoints, OverPoints, OverPoints]:
        """x, y, z (length); the coordinates in padding continue the grid.

        A coordinate is the index of a plane times the spacing, bit for bit the same on any number
        of devices."""
        spacing = self.grid.spacing
        x, y, z = (
            self.along(a, np.arange(n) * h, dtype)
            for a, n, h in zip(AXES, self.shape, spacing, strict=True)
        )
        return x, y, z

    def seen_coordinates(self, dtype: DTypeLike = jnp.float64) -> tuple[jax.Array, ...]:
        """The coordinates of the axes that the user sees, which broadcast against their points."""
        hidden = tuple(range(3 - self.grid.dimensions))
        return tuple(x.squeeze(hidden) for x in self.grid.seen(self.coordinates(dtype)))

    def inside(self) -> Bool[Array, "#x #y #z"]:
        """True at grid points, False in padding."""
        mask = jnp.ones((1, 1, 1), bool)
        for axis, n, m in zip(self.order, self.valid, self.shape, strict=True):
            if m > n:
                mask = mask & self.along(axis, np.arange(m) < n, bool)
        return mask

    def mean(self, values: PhysicalField) -> Inexact[Array, "*component"]:
        """The box mean of each component."""
        return jnp.where(self.inside(), values, 0).sum((-3, -2, -1)) / self.grid.points

    def max(self, values: Num[Array, "*component x y z"]) -> Num[Array, "*component"]:
        """The maximum of each component over the points of the grid."""
        lowest = (
            -jnp.inf if jnp.issubdtype(values.dtype, jnp.floating) else jnp.iinfo(values.dtype).min
        )
        return jnp.where(self.inside(), values, lowest).max((-3, -2, -1))

    def min(self, values: Num[Array, "*component x y z"]) -> Num[Array, "*component"]:
        """The minimum of each component over the points of the grid."""
        return -self.max(-values)


@dataclass(frozen=True, eq=False)
class Layout(Arrangement):
    """Layout of spectral arrays (..., *order) of one transform.

    A spectral array holds the Fourier coefficients u(k) = mean of u(x) exp(-i k . x), which do not
    depend on the resolution; the box mean of |u(x)|^2 is the sum of `weight` |u(k)|^2. Padding is
    zero."""

    mode_numbers: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Signed integer wavenumbers along each axis, without padding."""
    half: bool = True
    """Only kz >= 0 is stored: the coefficients of the other half are conjugates (real fields)."""
    real: bool = True
    """The fields are real: u(-k) is the conjugate of u(k)."""

    def _extent(self, axis: str) -> int:
        return len(self.mode_numbers[axis])

    def padded_mode_numbers(self, axis: str) -> np.ndarray:
        """Wavenumbers of all entries along an axis; those of padding are larger than those of any
        mode."""
        mode_numbers = self.mode_numbers[axis]
        extent = self.shape[self.order.index(axis)]
        largest = int(np.abs(mode_numbers).max())
        return np.concatenate([mode_numbers, largest + 1 + np.arange(extent - len(mode_numbers))])

    def integers(self, axis: str) -> Int[Array, "#ka #kb #kc"]:
        """Signed integer wavenumbers along `axis`."""
        return self.along(axis, self.padded_mode_numbers(axis), jnp.int32)

    def cycles(self, axis: str, dtype: DTypeLike = jnp.float64) -> OverModes:
        """k dx / (2 pi) along `axis`, the cycles of a mode in a grid spacing. (NumPy divides,
        because in JAX the quotient of 32-bit integers is a single-precision number.)"""
        n = self.grid.shape[AXES.index(axis)]
        return self.along(axis, self.padded_mode_numbers(axis) / n, dtype)

    def wavenumbers(self, dtype: DTypeLike = jnp.float64) -> tuple[OverModes, OverModes, OverModes]:
        """kx, ky, kz (1/length) of first derivatives; for real fields 0 on the Nyquist plane of
        each even axis, if the layout holds that plane."""
        wavenumbers = []
        for axis, n, unit in zip(AXES, self.grid.shape, self.grid.fundamental, strict=True):
            mode_numbers = self.padded_mode_numbers(axis)
            if self.real:
                mode_numbers = np.where(2 * np.abs(mode_numbers) == n, 0, mode_numbers)
            wavenumbers.append(self.along(axis, mode_numbers * unit, dtype))
        return wavenumbers[0], wavenumbers[1], wavenumbers[2]

    def k_squared(self, dtype: DTypeLike = jnp.float64) -> OfModes:
        """|k|^2 (1/length^2).

        Second derivatives do not depend on the sign of k: modes on a Nyquist plane have their full
        wavenumber here."""
        total = jnp.zeros((1, 1, 1), dtype)
        for axis, unit in zip(AXES, self.grid.fundamental, strict=True):
            total = total + self.along(axis, (self.padded_mode_numbers(axis) * unit) ** 2, dtype)
        return total

    def inverse_k_squared(self, dtype: DTypeLike = jnp.float64) -> OfModes:
        """1 / |k|^2, and 0 at k = 0."""
        return quotient(1, self.k_squared(dtype))

    @property
    def mask(self) -> Bool[Array, "#ka #kb #kc"]:
        """True at the modes that belong to the state."""
        mask = jnp.ones((1, 1, 1), bool)
        for axis, n, m in zip(self.order, self.valid, self.shape, strict=True):
            keep = np.arange(m) < n
            if self.truncated:
                kept = self.grid.kept[AXES.index(axis)]
                keep &= np.abs(self.padded_mode_numbers(axis)) <= kept
            if not keep.all():
                mask = mask & self.along(axis, keep, bool)
        if self.grid.spherical and self.truncated:
            squares = (
                self.along(a, (2 * self.padded_mode_numbers(a) / n) ** 2, float)
                for a, n in zip(AXES, self.grid.shape, strict=True)
            )
            # Modes on the sphere itself are left out: (N/3, N/3, 0) times itself is aliased to
            # minus itself. Python's float is single in programs without `jax_enable_x64`.
            margin = max(1e-12, 8 * float(jnp.finfo(float).eps))
            mask = mask & (sum(squares) < 8 / 9 - margin)
        return mask

    truncated: bool = True  # Modes beyond `grid.kept` are not part of the state.

    def weight(self, dtype: DTypeLike = jnp.float64) -> OverModes:
        """The number of modes that an entry represents in a sum: 2 if the entry represents its
        conjugate too; 0 in padding and at modes that are not part of the state."""
        return jnp.where(self.mask, self.along("z", self._conjugates, dtype), 0)

    @property
    def _conjugates(self) -> np.ndarray:
        """Along z: 2 for entries that stand for their conjugates too, else 1."""
        mode_numbers = self.padded_mode_numbers("z")
        paired = (mode_numbers > 0) & (2 * mode_numbers != self.grid.shape[2])
        return np.where(self.half & paired, 2, 1)

    def phases(
        self, axis: str, positions: Float[Array, "n"] | Float[np.ndarray, "n"], dtype: DTypeLike
    ) -> Complex[Array, "n modes"]:
        """exp(i k x) along an axis at positions (length). A field's value is the real part of the
        sum over all modes of its coefficients times the phases of the three axes. In a half layout
        the phases along z are doubled where an entry represents its conjugate too."""
        unit = self.grid.fundamental[AXES.index(axis)]
        turns = jnp.asarray(positions)[:, None] * (self.padded_mode_numbers(axis) * unit)
        weight = jnp.asarray(self._conjugates if axis == "z" else 1)
        return (weight * jnp.exp(1j * turns)).astype(dtype)

    def sum(self, values: Float[Array, "*component ka kb kc"]) -> Float[Array, "*component"]:
        """The sum of real `values` over all modes, conjugate modes included."""
        weight = self.weight(values.dtype)
        # Axes along which the weight is constant are summed first, else XLA would store a weight
        # for every mode.
        constant = tuple(axis for axis in (-3, -2, -1) if weight.shape[axis] == 1)
        return (weight * values.sum(constant, keepdims=True)).sum((-3, -2, -1))

    def inner(self, a: SpectralField, b: SpectralField) -> Float[Array, "*component"]:
        """Box mean of the product of two fields, component by component: the sum of weight Re(a*
        b)."""
        return self.sum(a.real * b.real + a.imag * b.imag)

    def at_zero(self, array: SpectralField) -> Complex[Array, "*component"]:
        """The coefficients at k = 0, which are box means."""
        return jnp.where(self.zero, array, 0).sum((-3, -2, -1))

    @property
    def zero(self) -> Bool[Array, "ka kb kc"]:
        """True at k = 0."""
        return (self.integers("x") == 0) & (self.integers("y") == 0) & (self.integers("z") == 0)

    @property
    def nyquist(self) -> Bool[Array, "ka kb kc"]:
        """True at the modes of Nyquist planes, which stand for two signs of k."""
        axes = zip(AXES, self.grid.shape, strict=True)
        return reduce(or_, (2 * abs(self.integers(axis)) == n for axis, n in axes))

    @property
    def largest_wavenumber(self) -> float:
        """The radius of the largest sphere of modes of the state."""
        axes = zip(AXES, self.grid.shape, strict=True)
        return min((self.reach(axis) for axis, n in axes if n > 1), default=0.0)

    # ---- shells
    # ------------------------------------------------------------------------------------------

    @property
    def shell_width(self) -> float:
        """dk (1/length), as in the grid."""
        return self.grid.shell_width

    @cached_property
    def shells(self) -> int:
        """Number of shells that hold the modes of the state."""
        corner = sum(self.reach(axis) ** 2 for axis in AXES)
        return int(shell_at(corner**0.5 / self.shell_width)) + 1

    def reach(self, axis: str) -> float:
        """The largest wavenumber (1/length) of a mode of the state along an axis."""
        i = AXES.index(axis)
        largest = int(np.abs(self.mode_numbers[axis]).max())
        if self.truncated:  # a layout may store more modes than belong to the state
            largest = min(largest, self.grid.kept[i])
        return largest * self.grid.fundamental[i]

    def shell_numbers(self) -> Int[Array, "ka kb kc"]:
        """The shell of every mode; modes beyond the last shell, and padding, are assigned to the
        last shell."""
        n = shell_at(jnp.sqrt(self.k_squared()) / self.shell_width).astype(jnp.int32)
        return self.constrain(jnp.minimum(jnp.broadcast_to(n, self.shape), self.shells - 1))

    def shell_sum(
        self, values: Float[Array, "*component ka kb kc"]
    ) -> Float[Array, "*component shell"]:
        """The sum of real `values` over the modes of each shell.

        The sum of the result over the shells is `sum`, up to round-off."""
        flat = (self.weight(values.dtype) * values).reshape(-1, *self.shape)
        sums = self.binned(self.shell_numbers(), flat, self.shells)
        return sums.reshape(*values.shape[:-3], self.shells)

    def shell_modes(self) -> tuple[Spectrum, Spectrum]:
        """The number of modes in each shell, conjugates included, and the mean of their |k|
        (1/length).

        The mean leaves k = 0 out. In shells without other modes (narrow shells, or the corners that
        spherical dealiasing removes) the mean is n dk."""
        k = root(jnp.broadcast_to(self.k_squared(), self.shape))
        modes, waves, total = self.shell_sum(
            jnp.stack([jnp.ones_like(k), jnp.where(k > 0, 1.0, 0.0), k])
        )
        return modes, jnp.where(waves > 0, total / jnp.maximum(waves, 1), self.shell_wavenumbers())

    def shell_wavenumbers(self) -> Float[np.ndarray, "shell"]:
        """Central wavenumber n dk (1/length) of each shell."""
        return np.arange(self.shells) * self.shell_width
