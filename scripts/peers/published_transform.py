"""The distributed transform as published for JAX: z, all-to-all, x and y, all-to-all back.

A complex transform of the full grid, back to the input layout, in slabs along y (P. Mocz's
distributed FFT in JAX and the solvers that use it), written with `shard_map`. The benchmarks
compare with this transform; `simulator` does not use it."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Transforms = tuple[
    Callable[[jax.Array], jax.Array], Callable[[jax.Array], jax.Array], NamedSharding
]


def published_transform(mesh: Mesh) -> Transforms:
    """Forward and inverse transform of complex arrays (component, x, y, z), and their sharding:
    over y.

    The mesh is one-dimensional; y and z must be divisible by the number of devices.
    """
    (name,) = mesh.axis_names
    spec = PartitionSpec(None, None, name, None)

    def planes(array: jax.Array, transform) -> jax.Array:
        array = lax.all_to_all(array, name, 3, 2, tiled=True)
        array = transform(array)
        return lax.all_to_all(array, name, 2, 3, tiled=True)

    def forward(array: jax.Array) -> jax.Array:
        return planes(jnp.fft.fft(array), lambda a: jnp.fft.fft2(a, axes=(1, 2)))

    def inverse(array: jax.Array) -> jax.Array:
        return jnp.fft.ifft(planes(array, lambda a: jnp.fft.ifft2(a, axes=(1, 2))))

    def sharded(local):
        return jax.shard_map(local, mesh=mesh, in_specs=spec, out_specs=spec)

    return sharded(forward), sharded(inverse), NamedSharding(mesh, spec)
