"""The order of the collective operations in a program, and the number format of messages.

No collective stands inside a conditional (`lax.cond`, `lax.switch`), or
inside a loop whose trip count depends on the data of one device; and between a loop with
collectives and every other collective of its computation there is a data dependence, in one
direction or the other (`after` adds one). All processes must issue the same collectives in the same
order, or they wait for one another for ever. XLA orders the collectives of a computation by a
resource that all of them write; but on processors a collective inside a conditional or a loop
starts before or after an independent collective outside, differently on each process: runs with
tracers hung in their first step, and runs with `run.memory: low` in their first slices. `jnp.where`
on reduced values replaces a branch. `tests/spectral/test_collectives.py` checks the rule in
compiled programs."""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def after(array: jax.Array, before: jax.Array) -> jax.Array:
    """`array`, with a data dependence on `before`: no exchange sends the result before `before` is
    computed.

    XLA's CPU client cannot distinguish exchanges of one kind inside shard_map and confuses them if
    they run concurrently. The client drops optimization barriers, so that only a data dependence
    orders exchanges: here a selection whose outcome XLA cannot know."""
    first = jnp.real(before.ravel()[0])
    whole = jnp.issubdtype(first.dtype, jnp.integer)
    never = first == jnp.iinfo(first.dtype).min if whole else jnp.isneginf(first)
    return jnp.where(never, jnp.zeros((), array.dtype), array)


Kind = Literal["full", "single", "half_scaled"]
"""The number format of messages: full, or narrower. Only `evaluate`, the nonlinear term, sends
narrow numbers; everything is computed and stored in full precision. The error is about a digit
smaller than that of a computation in the narrow precision, and the time of an exchange is
proportional to its bytes. Cayrols et al., Mixed precision and approximate 3D FFTs, CLUSTER 2022."""

_TOP = 15
"""The numbers of a plane are scaled to below 2^15; half precision has all its digits down to
2^-14."""


def all_to_all(messages: jax.Array, over: str, kind: Kind) -> jax.Array:
    """Sends message i of complex `messages` (message, component, a, b, c) to device i of the mesh
    axis `over`."""
    if kind == "single":
        return _plain(messages.astype(np.complex64), over).astype(messages.dtype)
    return _scaled(messages, over) if kind == "half_scaled" else _plain(messages, over)


def _plain(messages: jax.Array, over: str) -> jax.Array:
    return lax.all_to_all(messages, over, 0, 0, tiled=True)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _scaled(messages: jax.Array, over: str) -> jax.Array:
    """Sends half precision numbers. Every plane (b, c) is scaled by its own power of two; the
    powers are sent too."""
    parts = jnp.stack([messages.real, messages.imag], -1)
    largest = jnp.max(abs(parts), (-3, -2, -1), keepdims=True)
    _, exponent = jnp.frexp(largest)
    sent = _plain(jnp.ldexp(parts, _TOP - exponent).astype(jnp.float16), over)
    exponents = _plain(exponent.astype(jnp.int16), over).astype(jnp.int32)
    received = jnp.ldexp(sent.astype(parts.dtype), exponents - _TOP)
    return lax.complex(received[..., 0], received[..., 1])


@_scaled.defjvp
def _(
    over: str, primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    # The derivative is that of the exchange without rounding, because rounding has none.
    return _scaled(primals[0], over), _plain(tangents[0], over)
