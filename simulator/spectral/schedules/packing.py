"""Arrays between the stages of a transform: transposed, cut into messages and joined, truncated and
padded."""

import jax
import jax.numpy as jnp
from jax import lax

from simulator.spectral.layout import padded


def take(array: jax.Array, source: str, target: str) -> jax.Array:
    """Transposes the last three axes from the order `source` to the order `target`."""
    if source == target:
        return array
    lead = array.ndim - 3
    return jnp.transpose(array, (*range(lead), *(lead + source.index(a) for a in target)))


def pack(array: jax.Array, source: str, axis: str, messages: int, target: str) -> jax.Array:
    """Cuts an array (component, *source) along `axis`, which is padded first: (message, component,
    *target)."""
    at = 1 + source.index(axis)
    array = fit(array, at, padded(array.shape[at], messages))
    array = array.reshape(*array.shape[:at], messages, -1, *array.shape[at + 1 :])
    where = {a: 1 + i + (1 + i >= at) for i, a in enumerate(source)}
    return array.transpose(at, 0, *(where[a] for a in target))


def unpack(array: jax.Array, source: str, axis: str, extent: int, target: str) -> jax.Array:
    """Joins messages (message, component, *source) along `axis`, cut to `extent`: (component,
    *target)."""
    order: list[int] = [1]
    for a in target:
        order += [0, 2 + source.index(a)] if a == axis else [2 + source.index(a)]
    at = 1 + target.index(axis)
    array = array.transpose(order)
    return fit(array.reshape(*array.shape[:at], -1, *array.shape[at + 2 :]), at, extent)


def fit(array: jax.Array, axis: int, extent: int) -> jax.Array:
    """Cuts or zero-pads the end of an axis to `extent`."""
    have = array.shape[axis]
    if have > extent:
        return lax.slice_in_dim(array, 0, extent, axis=axis)
    return _pad(array, axis, 0, extent - have) if have < extent else array


def fit_modes(array: jax.Array, axis: int, extent: int) -> jax.Array:
    """Truncates an axis of modes (0, 1, ..., -1) to the `extent` lowest wavenumbers, or inserts
    zeros between the positive and the negative ones."""
    have = array.shape[axis]
    if have == extent:
        return array
    low, high = (min(have, extent) + 1) // 2, min(have, extent) // 2
    fitted = _pad(lax.slice_in_dim(array, 0, low, axis=axis), axis, 0, extent - low)
    if high:
        # XLA fuses a sum of padded parts with neighbouring operations, but not a concatenation.
        fitted = fitted + _pad(
            lax.slice_in_dim(array, have - high, have, axis=axis), axis, extent - high, 0
        )
    return fitted


def _pad(array: jax.Array, axis: int, before: int, after: int) -> jax.Array:
    config = [(before, after, 0) if i == axis else (0, 0, 0) for i in range(array.ndim)]
    return lax.pad(array, jnp.zeros((), array.dtype), config)
