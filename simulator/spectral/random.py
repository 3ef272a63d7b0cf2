"""Random fields that depend only on a seed.

Every mode has its own random stream, keyed by its signed integers (kx, ky, kz): one seed gives one
field on any number of devices and in any layout, and a finer grid keeps the large scales of a
coarser one."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, Int

from simulator.spectral.arrays import Whole
from simulator.spectral.layout import Layout

_OFFSET = (
    1 << 20
)  # Makes signed wavenumbers positive; grids have fewer points than this along an axis.


def _mode_key(seed: jax.Array, x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
    counter = jnp.stack([x * (1 << 11) + (z >> 10), y * (1 << 11) + (z & 1023)])
    return jax.random.fold_in(jax.random.wrap_key_data(counter), seed)


def gaussian(
    layout: Layout, seed: int | Whole, components: int = 1, dtype=jnp.float64
) -> Complex[Array, "component ka kb kc"]:
    """Complex Gaussian coefficients: mean |f(k)|^2 = 1, independent modes.

    In the layout of a real field the modes k and -k share one stream and have conjugate
    coefficients; the coefficient of (0, 0, 0) is real. The numbers are drawn in double precision,
    whatever `dtype` is. `seed` may be a traced integer, such as a step number."""
    x, y, z = (layout.integers(a) for a in "xyz")
    shape = jnp.broadcast_shapes(x.shape, y.shape, z.shape)
    conjugate = jnp.zeros((1, 1, 1), bool)
    if layout.real:
        conjugate = (z < 0) | ((z == 0) & ((y < 0) | ((y == 0) & (x < 0))))
        x, y, z = (jnp.where(conjugate, -i, i) for i in (x, y, z))
    integers = [jnp.broadcast_to((i + _OFFSET).astype(jnp.uint32), shape) for i in (x, y, z)]

    def draw(*k):
        return jax.random.normal(
            _mode_key(jnp.asarray(seed, jnp.uint32), *k), (components, 2), jnp.float64
        )

    for _ in range(3):
        draw = jax.vmap(draw)
    normal = jnp.moveaxis(draw(*integers), (-2, -1), (0, 1)) * 0.5**0.5
    real, imaginary = normal[:, 0], normal[:, 1]
    if layout.real:
        imaginary = jnp.where(conjugate, -imaginary, imaginary)
        itself = (x == 0) & (y == 0) & (z == 0)
        real = jnp.where(itself, real * 2**0.5, real)
        imaginary = jnp.where(itself, 0, imaginary)
    field = jnp.where(layout.mask, real + 1j * imaginary, 0)
    return layout.constrain(field.astype(jnp.result_type(dtype, jnp.complex64)))


def mode_normals(
    modes: Int[np.ndarray, "mode 3"], seed: int, step: Whole | int, components: int
) -> Float[Array, "mode component 2"]:
    """Standard normal numbers in double precision for a list of modes, given by their signed
    integer wavenumbers.

    The numbers of a mode depend only on the mode, the seed and the step, not on the other modes in
    the list."""
    kx, ky, kz = (jnp.asarray(k + _OFFSET, jnp.uint32) for k in np.asarray(modes).T)

    def draw(x, y, z):
        key = jax.random.fold_in(
            _mode_key(jnp.uint32(seed), x, y, z), jnp.asarray(step, jnp.uint32)
        )
        return jax.random.normal(key, (components, 2), jnp.float64)

    return jax.vmap(draw)(kx, ky, kz)
