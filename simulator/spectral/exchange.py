"""The messages of an all-to-all: full numbers, or narrower ones.

Only the nonlinear term uses narrow exchanges: everything else is computed and stored in full precision. The error is
about a digit smaller than that of computing in the narrow precision, and the time is proportional to the bytes.
Cayrols et al., Mixed precision and approximate 3D FFTs, CLUSTER 2022.
"""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Kind = Literal["full", "single", "half_scaled"]

_TOP = 15
"""The largest number of a plane is scaled to below 2^15; half precision is fully accurate down to 2^-14."""


def all_to_all(messages: jax.Array, over: str, kind: Kind) -> jax.Array:
    """Sends message i (message, component, a, b, c) of complex numbers to device i of the mesh axis `over`."""
    if kind == "single":
        return _plain(messages.astype(np.complex64), over).astype(messages.dtype)
    return _scaled(messages, over) if kind == "half_scaled" else _plain(messages, over)


def _plain(messages: jax.Array, over: str) -> jax.Array:
    return lax.all_to_all(messages, over, 0, 0, tiled=True)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _scaled(messages: jax.Array, over: str) -> jax.Array:
    """Sends half precision numbers; every plane (b, c) is scaled by its own power of two, which is sent too."""
    parts = jnp.stack([messages.real, messages.imag], -1)
    largest = jnp.max(abs(parts), (-3, -2, -1), keepdims=True)
    _, exponent = jnp.frexp(largest)
    sent = _plain(jnp.ldexp(parts, _TOP - exponent).astype(jnp.float16), over)
    exponents = _plain(exponent.astype(jnp.int16), over).astype(jnp.int32)
    received = jnp.ldexp(sent.astype(parts.dtype), exponents - _TOP)
    return lax.complex(received[..., 0], received[..., 1])


@_scaled.defjvp
def _(over, primals, tangents):
    # The derivative is that of the exact exchange: rounding has no derivative.
    return _scaled(primals[0], over), _plain(tangents[0], over)
