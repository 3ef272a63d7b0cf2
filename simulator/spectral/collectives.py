"""The order of the collective operations in a program.

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

import jax
import jax.numpy as jnp


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
