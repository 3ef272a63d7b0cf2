"""Random fields that depend only on a seed.

Every mode has its own random stream, keyed by its signed integers (kx, ky, kz): one seed gives one
field on any number of devices and in any layout, and a finer grid keeps the large scales of a
coarser one.

Whoever draws names a stream, and the streams are apart by construction: no two share a key, whatever
their seeds are. A key is two words and the numbers that are folded into it. The words are

    START, FORCING     those of a mode; FORCING folds in a step after the seed, and then the place of
                       the force in its list unless it is the first; START nothing
    MEMBER, PROBE      those of a mode, with a bit that the words of a mode leave free
    POSITIONS ...      the stream and the seed; the first word of a mode is 2^30 or more"""

from enum import IntEnum

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Complex, Float, Int

from simulator.spectral.arrays import Whole
from simulator.spectral.layout import Layout

_OFFSET = 1 << 20
"""Makes signed wavenumbers positive; grids have fewer points than this along an axis."""


_FREE = 1 << 10  # The bit of a mode's second word that its wavenumbers leave free.
_FIELDS = 0x9E3779B9  # Distance between the seeds of fields that are drawn for the same start.


class Stream(IntEnum):
    """The uses of random numbers; each has a stream of its own."""

    POSITIONS = 0
    """Random positions of particles."""
    SEPARATIONS = 1
    """Directions from one particle of a pair to the other."""
    GLASS = 2
    """The positions from which a glass settles."""
    START = 3
    """Fields of a start."""
    FORCING = 4
    MEMBER = 5
    """Members of a filter's ensemble."""
    PROBE = 6
    """Random directions in which 4D-Var measures curvature."""


def seed_of_field(seed: int, number: int) -> int:
    """The seed of the `number`-th random field of a start with `seed`; 0 is the start's velocity."""
    return (seed + number * _FIELDS) % 2**32


def particle_key(stream: Stream, seed: int, number: jax.Array) -> jax.Array:
    """The key of the particle with this number."""
    key = jax.random.wrap_key_data(jnp.array([stream, seed], jnp.uint32))
    key = jax.random.fold_in(key, (number >> 32).astype(jnp.uint32))
    return jax.random.fold_in(key, (number & 0xFFFFFFFF).astype(jnp.uint32))


def host_generator(stream: Stream, seed: int) -> np.random.Generator:
    """The generator of random numbers on the host."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream,)))


def _mode_key(
    stream: Stream, seed: jax.Array, x: jax.Array, y: jax.Array, z: jax.Array
) -> jax.Array:
    counter = jnp.stack([x * (1 << 11) + (z >> 10), y * (1 << 11) + (z & 1023)])
    if stream in (Stream.START, Stream.FORCING):
        return jax.random.fold_in(jax.random.wrap_key_data(counter), seed)
    key = jax.random.wrap_key_data(counter.at[1].add(jnp.uint32(_FREE)))
    return jax.random.fold_in(jax.random.fold_in(key, stream), seed)


def gaussian(
    layout: Layout,
    seed: int | Whole,
    components: int = 1,
    dtype: DTypeLike = jnp.float64,
    stream: Stream = Stream.START,
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

    def draw(*k: jax.Array) -> jax.Array:
        return jax.random.normal(
            _mode_key(stream, jnp.asarray(seed, jnp.uint32), *k), (components, 2), jnp.float64
        )

    for _ in range(3):
        draw = jax.vmap(draw)
    normal = jnp.moveaxis(draw(*integers), (-2, -1), (0, 1)) * 0.5**0.5
    real = normal[:, 0]
    imaginary = normal[:, 1]
    if layout.real:
        imaginary = jnp.where(conjugate, -imaginary, imaginary)
        itself = (x == 0) & (y == 0) & (z == 0)
        real = jnp.where(itself, real * 2**0.5, real)
        imaginary = jnp.where(itself, 0, imaginary)
    field = jnp.where(layout.mask, real + 1j * imaginary, 0)
    return layout.constrain(field.astype(jnp.result_type(dtype, jnp.complex64)))


def mode_normals(
    modes: Int[np.ndarray, "mode 3"],
    seed: int,
    step: Whole | int,
    components: int,
    number: int = 0,
) -> Float[Array, "mode component 2"]:
    """Standard normal numbers of the `number`-th force of a list, in double precision, for a list of
    modes, given by their signed integer wavenumbers.

    The numbers of a mode depend only on the mode, the seed, the step and `number`, not on the other
    modes in the list."""
    kx, ky, kz = (jnp.asarray(k + _OFFSET, jnp.uint32) for k in np.asarray(modes).T)

    def draw(x: Whole, y: Whole, z: Whole) -> Float[Array, "component 2"]:
        key = _mode_key(Stream.FORCING, jnp.uint32(seed), x, y, z)
        key = jax.random.fold_in(key, jnp.asarray(step, jnp.uint32))
        key = jax.random.fold_in(key, number) if number else key
        return jax.random.normal(key, (components, 2), jnp.float64)

    return jax.vmap(draw)(kx, ky, kz)
