"""The published complex recipe, as the yardstick of the benchmark: z, all-to-all, x and y, all-to-all back.

A complex transform of the full grid that returns to its input layout, slabs along y (Mocz's fft in JAX and its
descendants). Written with `shard_map`; nothing in the program uses it.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Transforms = tuple[Callable[[jax.Array], jax.Array], Callable[[jax.Array], jax.Array], NamedSharding]


def recipe(mesh: Mesh) -> Transforms:
    """Forward and inverse of complex arrays (component, x, y, z), and how they are sharded: over y.

    The mesh is one-dimensional; y and z have to be divisible by the number of devices.
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

    def shared(local):
        return jax.shard_map(local, mesh=mesh, in_specs=spec, out_specs=spec)

    return shared(forward), shared(inverse), NamedSharding(mesh, spec)
