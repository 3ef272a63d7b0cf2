"""Differential operators on spectral arrays, for any layout.

Vector fields are (3, *layout.order). Coefficients stay in the layout and need no communication.
"""

from functools import reduce
from operator import add

import jax
import jax.numpy as jnp
from jax import lax

from simulator.spectral.grid import AXES
from simulator.spectral.layout import Layout


def _k(layout: Layout, field: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    return layout.wavenumbers(field.real.dtype)


def gradient(layout: Layout, field: jax.Array) -> jax.Array:
    """i k f of a scalar: (3, *order)."""
    return jnp.stack([1j * k * field for k in _k(layout, field)])


def divergence(layout: Layout, field: jax.Array) -> jax.Array:
    """i k . v of a vector."""
    kx, ky, kz = _k(layout, field)
    return 1j * (kx * field[0] + ky * field[1] + kz * field[2])


def curl(layout: Layout, field: jax.Array) -> jax.Array:
    """i k x v of a vector: (3, *order)."""
    kx, ky, kz = _k(layout, field)
    x, y, z = field[0], field[1], field[2]
    return jnp.stack([1j * (ky * z - kz * y), 1j * (kz * x - kx * z), 1j * (kx * y - ky * x)])


def dot(a: jax.Array, b: jax.Array) -> jax.Array:
    """a . b, summed over the first axis.

    Written out, because XLA's CPU code takes ten times as long for a sum over a short first axis.
    """
    return reduce(add, a * b)


def squared(a: jax.Array) -> jax.Array:
    """|a|^2 of vectors of real or complex components along the first axis."""
    return dot(a, a) if jnp.isrealobj(a) else dot(a.real, a.real) + dot(a.imag, a.imag)


def _inverse_square(k: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
    """1 / |k|^2 of the derivative's wavenumbers, and 0 where they vanish: at k = 0 and at pure Nyquist modes."""
    k2 = k[0] * k[0] + k[1] * k[1] + k[2] * k[2]
    return jnp.where(k2 == 0, 0, 1 / jnp.where(k2 == 0, 1, k2))


def inverse_curl(layout: Layout, field: jax.Array) -> jax.Array:
    """The solenoidal vector without mean whose curl is the solenoidal part of `field`: i k x v / |k|^2."""
    return curl(layout, field) * _inverse_square(_k(layout, field))


def project(layout: Layout, field: jax.Array) -> jax.Array:
    """Solenoidal part of a vector, its mean included: v - k (k . v) / |k|^2."""
    k = _k(layout, field)
    along = k[0] * field[0] + k[1] * field[1] + k[2] * field[2]
    along = along * _inverse_square(k)
    return jnp.stack([field[i] - k[i] * along for i in range(3)])


def fluctuation(layout: Layout, field: jax.Array) -> jax.Array:
    """The field (..., *order) without its box mean, the mode k = 0."""
    zero = (layout.integers("x") == 0) & (layout.integers("y") == 0) & (layout.integers("z") == 0)
    return jnp.where(zero, 0, field)


def hermitian(layout: Layout, field: jax.Array) -> jax.Array:
    """The coefficients of the real field that `field` (..., *order) represents in physical space.

    Where modes k and -k are both stored (in a half spectrum on the plane kz = 0), this is their Hermitian part. The
    anti-Hermitian part is invisible on the grid, and equations with growing waves would let it grow.
    """
    if not layout.half:
        return 0.5 * (field + jnp.conj(_mirrored(layout, field, AXES)))
    # Only the planes that are their own mirror images are gathered if they are cut over devices, not the field.
    at, nz = layout.order.index("z") - 3, layout.grid.shape[2]
    result = field
    for place, k in enumerate(map(int, layout.mode_numbers["z"])):
        if k == 0 or 2 * abs(k) == nz:
            plane = lax.index_in_dim(field, place, axis=field.ndim + at, keepdims=True)
            symmetric = 0.5 * (plane + jnp.conj(_mirrored(layout, plane, "xy")))
            result = jnp.where(layout.integers("z") == k, symmetric, result)
    return result


def _mirrored(layout: Layout, field: jax.Array, axes: str) -> jax.Array:
    """The modes -k at the positions of the modes k, along some axes."""
    for axis in axes:
        mode_numbers, n = layout.padded_mode_numbers(axis), layout.grid.shape[AXES.index(axis)]
        places = {int(k): i for i, k in enumerate(mode_numbers)}
        # On an even grid -n/2 is its own partner; entries of padding are zero and stay in place.
        partner = [places.get(-int(k), places.get(int(k) - n, i)) for i, k in enumerate(mode_numbers)]
        field = jnp.take(field, jnp.asarray(partner), axis=layout.order.index(axis) - 3)
    return field


def translate(
    layout: Layout, field: jax.Array, shift: tuple[float | jax.Array, float | jax.Array, float | jax.Array]
) -> jax.Array:
    """The field f(x + shift): coefficients times exp(i k . shift), a product of one factor for each axis."""
    for k, length in zip(layout.wavenumbers(), shift, strict=True):
        field = field * jnp.exp(1j * k * length).astype(field.dtype)
    return field
