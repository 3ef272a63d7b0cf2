"""Differential operators on spectral arrays and Poisson's equation, for any layout.

A vector has one component for each of the grid's d axes. In a plane, d = 2, a vector along the
normal is a scalar field: the curl of a vector in the plane, or the field whose curl lies in the
plane. Every operator but `hermitian` acts on each mode alone, without communication."""

from collections.abc import Sequence
from functools import cache, reduce
from itertools import combinations
from operator import add, mul
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Complex, Float, Inexact

from simulator.spectral.arrays import (
    Number,
    OfModes,
    OverModes,
    SpectralField,
    SpectralScalar,
    SpectralVector,
    quotient,
)
from simulator.spectral.grid import AXES
from simulator.spectral.layout import Layout


def wavenumbers(layout: Layout, dtype: DTypeLike = jnp.float64) -> tuple[OverModes, ...]:
    """The wavenumber (1/length) along each axis of the grid: two in a plane."""
    return layout.grid.seen(layout.wavenumbers(dtype))


def _k(layout: Layout, field: Complex[Array, "... ka kb kc"]) -> tuple[OverModes, ...]:
    return wavenumbers(layout, field.real.dtype)


def gradient(layout: Layout, field: SpectralScalar) -> SpectralVector:
    """i k f."""
    # One product for all components: XLA would compute `field` anew for each one of a stack, and
    # store a stack of k.
    k, *others = _k(layout, field)
    k = k[None]
    for i, other in enumerate(others, start=1):
        k = jnp.where(jnp.arange(len(others) + 1).reshape(-1, 1, 1, 1) == i, other, k)
    return lax.complex(-k * field.imag, k * field.real)


def divergence(layout: Layout, field: SpectralVector) -> SpectralScalar:
    """i k . v."""
    return 1j * _along(_k(layout, field), field)


def _along(k: Sequence[OverModes], field: SpectralVector) -> SpectralScalar:
    return reduce(add, map(mul, k, jnp.unstack(field)))


@cache
def symmetric_pairs(dimensions: int) -> tuple[tuple[int, int], ...]:
    """The components (i, j) of a symmetric tensor, the diagonal first: xx, yy, zz, xy, xz, yz, or
    xx, yy, xy."""
    axes = range(dimensions)
    return (*((i, i) for i in axes), *combinations(axes, 2))


def cross(a: jax.Array | Sequence[jax.Array], b: jax.Array) -> jax.Array:
    """a x b of vectors (3, ...) at points or modes (three last axes). In a plane the product of two
    vectors (2, ...) is a scalar, the component along the normal; the product of a vector and a
    scalar, which stands for a vector along the normal, is a vector (2, ...)."""
    parts = _cross(a, b)
    return jnp.stack(parts) if isinstance(parts, list) else parts


def _cross(a: jax.Array | Sequence[jax.Array], b: jax.Array) -> list[jax.Array] | jax.Array:
    # The reverse of an index is an array of all components with zeros, that of `unstack` is a
    # stack.
    if not isinstance(a, Sequence):
        if a.ndim == 3:
            return [-a * b[1], a * b[0]]
        a = jnp.unstack(a)
    if b.ndim == 3:
        return [a[1] * b, -a[0] * b]
    p, q = a, jnp.unstack(b)
    if len(q) == 2:
        return p[0] * q[1] - p[1] * q[0]
    return [p[1] * q[2] - p[2] * q[1], p[2] * q[0] - p[0] * q[2], p[0] * q[1] - p[1] * q[0]]


def curl(layout: Layout, field: Complex[Array, "... ka kb kc"]) -> Complex[Array, "... ka kb kc"]:
    """i k x v of a vector. In a plane the scalar d_x v_y - d_y v_x of a vector, and the vector (d_y
    f, -d_x f) of a scalar f."""
    parts = _cross(_k(layout, field), field)
    return jnp.stack([1j * part for part in parts]) if isinstance(parts, list) else 1j * parts


def dot(a: Inexact[Array, "d *shape"], b: Inexact[Array, "d *shape"]) -> Inexact[Array, "*shape"]:
    """a . b, summed over the first axis.

    The sum is written out, because XLA's CPU code takes ten times as long for a sum over a short
    first axis."""
    return reduce(add, jnp.unstack(a * b))


def squared(a: Inexact[Array, "*shape"]) -> Float[Array, "..."]:
    """|a|^2 of a scalar (three axes), or of a vector (four axes), summed over the components along
    the first axis."""
    if a.ndim == 3:
        return a.real**2 + a.imag**2
    return dot(a, a) if jnp.isrealobj(a) else dot(a.real, a.real) + dot(a.imag, a.imag)


def inverse_square(k: Sequence[OverModes]) -> OverModes:
    """1 / |k|^2 of the derivative's wavenumbers, and 0 where they vanish: at k = 0 and at pure
    Nyquist modes."""
    return quotient(1, reduce(add, map(mul, k, k)))


def inverse_curl(
    layout: Layout, field: Complex[Array, "... ka kb kc"]
) -> Complex[Array, "... ka kb kc"]:
    """The solenoidal vector without mean whose curl is the solenoidal part of `field`: i k x v /
    |k|^2. For a vector in a plane the result lies along the normal and is a scalar."""
    return curl(layout, field) * inverse_square(_k(layout, field))


def project(layout: Layout, field: SpectralVector) -> SpectralVector:
    """Solenoidal part of a vector, its mean included: v - k (k . v) / |k|^2."""
    return project_with(_k(layout, field), field)


def project_with(k: Sequence[OverModes], field: SpectralVector) -> SpectralVector:
    """`project` with the wavenumbers `k`, one for each component."""
    along = _along(k, field) * inverse_square(k)
    return jnp.stack([part - q * along for q, part in zip(k, jnp.unstack(field), strict=True)])


def fluctuation(layout: Layout, field: SpectralField) -> SpectralField:
    """The field without its box mean, the mode k = 0."""
    return jnp.where(layout.zero, 0, field)


def hermitian(layout: Layout, field: SpectralField) -> SpectralField:
    """The coefficients of the real field that `field` represents in physical space.

    The Hermitian part of the modes k and -k remains where both are stored (in a half spectrum, on
    the plane kz = 0). The anti-Hermitian part is invisible on the grid, and equations with growing
    waves would let it grow."""
    if not layout.half:
        return 0.5 * (field + jnp.conj(_mirrored(layout, field, AXES)))
    # Only the planes that are their own mirror images are gathered from the devices, not the whole
    # field.
    at, nz = layout.order.index("z") - 3, layout.grid.shape[2]
    result = field
    for place, k in enumerate(map(int, layout.mode_numbers["z"])):
        if k == 0 or 2 * abs(k) == nz:
            plane = lax.index_in_dim(field, place, axis=field.ndim + at, keepdims=True)
            symmetric = 0.5 * (plane + jnp.conj(_mirrored(layout, plane, "xy")))
            result = jnp.where(layout.integers("z") == k, symmetric, result)
    return result


def _mirrored(layout: Layout, field: jax.Array, axes: str) -> jax.Array:
    """An array with the coefficient of -k at the position of each mode k, mirrored along `axes`."""
    for axis in axes:
        mode_numbers, n = layout.padded_mode_numbers(axis), layout.grid.shape[AXES.index(axis)]
        places = {int(k): i for i, k in enumerate(mode_numbers)}
        # On an even grid -n/2 is its own partner; entries of padding are zero and stay in place.
        partner = [
            places.get(-int(k), places.get(int(k) - n, i)) for i, k in enumerate(mode_numbers)
        ]
        field = jnp.take(field, jnp.asarray(partner), axis=layout.order.index(axis) - 3)
    return field


def translate(
    layout: Layout,
    field: SpectralField,
    shift: tuple[float | Number, float | Number, float | Number],
) -> SpectralField:
    """The field f(x + shift), `shift` in units of length: coefficients times exp(i k . shift), one
    factor per axis."""
    for k, length in zip(layout.wavenumbers(), shift, strict=True):
        if isinstance(length, float) and not length:
            continue
        # XLA would compute a cosine anew for every mode that uses it, but not a quotient.
        phase = 1 / jax.lax.complex(jnp.cos(k * length), -jnp.sin(k * length))
        field = field * phase.astype(field.dtype)
    return field


Green = Literal["exact", "finite_difference"]


def laplacian_symbol(
    layout: Layout, green: Green = "exact", dtype: DTypeLike = jnp.float64
) -> OfModes:
    """The factor of -lap for each mode (1/length^2): |k|^2, or for the second-order difference
    formula

        sum_i (2 / dx_i sin(k_i dx_i / 2))^2,

    see Hockney & Eastwood, Computer Simulation Using Particles (1988), section 6-5-2."""
    if green == "exact":
        return layout.k_squared(dtype)
    total = jnp.zeros((1, 1, 1), dtype)
    for axis, unit, spacing in zip(AXES, layout.grid.fundamental, layout.grid.spacing, strict=True):
        along = 2 / spacing * np.sin(layout.padded_mode_numbers(axis) * unit * spacing / 2)
        total = total + layout.along(axis, along**2, dtype)
    return total


def solve_poisson(layout: Layout, source: SpectralField, green: Green = "exact") -> SpectralField:
    """The solution without mean of lap Phi = S, from the coefficients of the source S, whose mean
    is ignored."""
    k2 = laplacian_symbol(layout, green, source.real.dtype)
    usable = (k2 > 0) & layout.mask
    return -jnp.where(usable, 1 / jnp.where(usable, k2, 1), 0) * source
