"""Ensembles over devices: the mesh has an axis MEMBERS before those that cut space, and the members lie along it.

A function of one member becomes one of many by `jax.vmap`, whose new axis is sharded over MEMBERS: every sharding
inside gets that axis in front, and transforms and exchanges stay among the devices of one part. With a single part
the mesh has no such axis, and the new axis lies whole on every device.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from simulator.cluster.mesh import MEMBERS
from simulator.errors import UserError

Tree = Any


def check(number: int, parts: int) -> None:
    """Refuses a number of members that cannot be divided equally among the parts of the devices."""
    if number < 1 or number % parts:
        near = max(number // parts, 1) * parts
        raise UserError(f"{number} members cannot be divided among {parts} parts of the devices; {near} can")


def together(function: Callable[..., Any], mesh: Mesh, in_axes: Any = 0) -> Callable[..., Any]:
    """`function` over a leading axis of its arguments and results, laid over MEMBERS, compiled."""
    name = f"{getattr(function, '__name__', 'function')}_together"
    over = MEMBERS if MEMBERS in mesh.axis_names else None

    def laid(leaf: Any) -> jax.Array:
        """`leaf`, constrained by `vmap` alone, which shards the new axis over MEMBERS."""
        free = PartitionSpec(*(PartitionSpec.UNCONSTRAINED,) * jnp.ndim(leaf))
        return lax.with_sharding_constraint(leaf, NamedSharding(mesh, free))

    def one(*arguments: Any) -> Any:
        return jax.tree.map(laid, function(*jax.tree.map(laid, arguments)))

    batched = jax.vmap(one if over else function, in_axes, spmd_axis_name=over)
    batched.__name__ = name
    return jax.jit(batched)


def stacked(sharding: NamedSharding) -> NamedSharding:
    """The sharding of many arrays along a new leading axis, from the sharding of one array."""
    over = MEMBERS if MEMBERS in sharding.mesh.axis_names else None
    return NamedSharding(sharding.mesh, PartitionSpec(over, *sharding.spec))


def stack(states: Sequence[Tree], shardings: Tree) -> Tree:
    """One tree, whose arrays have a new leading axis, from many trees. `shardings` are those of the arrays of one
    tree."""
    places, tree = jax.tree.flatten(shardings)
    return _stacking(tuple(places), tree)(tuple(states))


@lru_cache(maxsize=32)
def _stacking(places: tuple[NamedSharding, ...], tree: Any) -> Callable[[tuple[Tree, ...]], Tree]:
    shardings = jax.tree.unflatten(tree, map(stacked, places))
    return jax.jit(lambda states: jax.tree.map(lambda *a: jnp.stack(a), *states), out_shardings=shardings)


def unstack(states: Tree, shardings: Tree) -> list[Tree]:
    """The many trees that `stack` has joined to one tree."""
    places, tree = jax.tree.flatten(shardings)
    return list(_unstacking(tuple(places), tree, len(jax.tree.leaves(states)[0]))(states))


@lru_cache(maxsize=32)
def _unstacking(places: tuple[NamedSharding, ...], tree: Any, count: int) -> Callable[[Tree], tuple[Tree, ...]]:
    def unstacking(states: Tree) -> tuple[Tree, ...]:
        return tuple(jax.tree.map(lambda leaf, i=i: leaf[i], states) for i in range(count))

    return jax.jit(unstacking, out_shardings=(jax.tree.unflatten(tree, places),) * count)
