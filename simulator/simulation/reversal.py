"""Reverse mode through many steps in bounded memory.

A step's reverse needs the state that it began with. `kept` states are held; the others are computed again from the
nearest one that is held, in the order that needs the fewest steps. Griewank & Walther, ACM Trans. Math. Softw. 26, 19
(2000), algorithm 799. With `kept` = sqrt(steps) this takes two to three more runs.
"""

from collections.abc import Callable
from functools import cache, partial
from math import comb
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.sharding import NamedSharding, PartitionSpec

Tree = Any


class ReversalSchedule(NamedTuple):
    """What is done in which order, in slots that hold a state each; slot 0 holds the beginning.

    `stores` (operations, 3): from the state in slot a take b steps and put the result into slot c. `reversals`
    (steps, 3): once the first c operations are done, take b steps from the state in slot a; the step after them is
    reversed.
    """

    stores: np.ndarray
    reversals: np.ndarray


@cache
def fewest(steps: int, slots: int) -> int:
    """The steps that have to be computed again to reverse so many steps with so many slots, the beginning's included.

    With r such that (slots + r - 1 choose slots) < steps <= (slots + r choose slots) each step is computed at most r
    times.
    """
    if steps < 2:
        return 0
    repeats = 1
    while comb(slots + repeats, slots) < steps:
        repeats += 1
    return repeats * steps - comb(slots + repeats, repeats - 1)


def schedule(steps: int, slots: int) -> ReversalSchedule:
    """The schedule of the fewest repeated steps."""
    stores: list[tuple[int, int, int]] = []
    reversals: list[tuple[int, int, int]] = []
    # Ranges of steps still to be reversed, the last ones on top: steps, and the slot of the state before them.
    waiting = [(steps, 0)]
    while waiting:
        count, slot = waiting.pop()
        free = slots - slot  # slots from this one on
        while count > 1 and free > 1:
            ahead = min(
                range(1, count),
                key=lambda m: m + fewest(count - m, free - 1) + fewest(m, free),
            )
            stores.append((slot, ahead, slot + 1))
            waiting.append((ahead, slot))
            count, slot, free = count - ahead, slot + 1, free - 1
        reversals += [(slot, ahead, len(stores)) for ahead in reversed(range(count))]
    return ReversalSchedule(np.array(stores, np.int32).reshape(-1, 3), np.array(reversals, np.int32))


def repeated(step: Callable[[Tree], Tree], state: Tree, count: int, kept: int, shardings: Tree) -> Tree:
    """`count` steps of a state, whose reverse holds at most `kept` states. `shardings`: of the state's arrays, which
    what is held has, too; left to itself XLA gathers some of it."""
    if count == 0:
        return state
    closed, constants = _opened(step, state)
    leaves, tree = jax.tree.flatten(state)
    varied = [jnp.issubdtype(jnp.result_type(leaf), jnp.inexact) for leaf in leaves]
    plan = schedule(count, min(kept, count))

    places = tuple(jax.tree.leaves(shardings))
    held_places = tuple(NamedSharding(s.mesh, PartitionSpec(None, *s.spec)) for s in places)

    def one(constants: Tree, leaves: Tree) -> Tree:
        return lax.with_sharding_constraint(tuple(closed(constants, *leaves)), places)

    @jax.custom_vjp
    def run(constants: Tree, leaves: Tree) -> Tree:
        return lax.fori_loop(0, count, lambda _, s: one(constants, s), leaves)

    def ahead(constants: Tree, slots: Tree, slot: Any, steps: Any) -> Tree:
        state = jax.tree.map(lambda s: lax.dynamic_index_in_dim(s, slot, keepdims=False), slots)
        state = lax.with_sharding_constraint(state, places)
        return lax.fori_loop(0, steps, lambda _, s: one(constants, s), state)

    def stored(constants: Tree, slots: Tree, first: Any, last: Any) -> Tree:
        if not len(plan.stores):
            return slots
        table = jnp.asarray(plan.stores)

        def store(i: Any, slots: Tree) -> Tree:
            found = ahead(constants, slots, table[i, 0], table[i, 1])
            slots = jax.tree.map(
                lambda s, f: lax.dynamic_update_index_in_dim(s, f, table[i, 2], 0), slots, found
            )
            return lax.with_sharding_constraint(slots, held_places)

        return lax.fori_loop(first, last, store, slots)

    def forward(constants: Tree, leaves: Tree) -> tuple[Tree, Tree]:
        used = 1 + int(plan.stores[:, 2].max(initial=0))
        slots = jax.tree.map(
            lambda f: jnp.concatenate([f[None], jnp.zeros((used - 1, *f.shape), f.dtype)]), leaves
        )
        slots = lax.with_sharding_constraint(slots, held_places)
        slot, further, before = plan.reversals[0]
        slots = stored(constants, slots, 0, before)
        return ahead(constants, slots, slot, further + 1), (constants, slots)

    def backward(held: Tree, slopes: Tree) -> Tree:
        constants, slots = held
        table = jnp.asarray(plan.reversals)

        def reverse(i: Any, carry: Tree) -> Tree:
            slots, slopes, of_constants = carry
            done = jnp.where(i == 0, table[0, 2], table[jnp.maximum(i, 1) - 1, 2])
            slots = stored(constants, slots, done, table[i, 2])
            state = ahead(constants, slots, table[i, 0], table[i, 1])

            def moving(constants: Tree, values: Tree) -> Tree:
                return _chosen(one(constants, _merged(varied, values, state)), varied)

            _, back = jax.vjp(moving, constants, _chosen(state, varied))
            found, slopes = back(slopes)
            slopes = lax.with_sharding_constraint(slopes, _chosen(places, varied))
            return slots, slopes, jax.tree.map(jnp.add, of_constants, found)

        zero = jax.tree.map(jnp.zeros_like, constants)
        carry = (slots, _chosen(slopes, varied), zero)
        _, slopes, of_constants = lax.fori_loop(0, count, reverse, carry)
        nothing = [np.zeros(jnp.shape(leaf), jax.dtypes.float0) for leaf in leaves]
        return of_constants, _merged(varied, slopes, nothing)

    run.defvjp(forward, backward)
    return jax.tree.unflatten(tree, run(constants, tuple(leaves)))


def _chosen(leaves: Tree, which: list[bool]) -> Tree:
    return tuple(leaf for leaf, wanted in zip(leaves, which, strict=True) if wanted)


def _merged(which: list[bool], chosen: Tree, others: Tree) -> Tree:
    found = iter(chosen)
    return tuple(next(found) if wanted else other for wanted, other in zip(which, others, strict=True))


def _opened(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function of flat arrays that takes the traced real or complex values over which it closes as its first
    argument, and these values."""
    traced = jax.make_jaxpr(function)(*arguments)
    constants = [c for c in traced.consts if isinstance(c, Tracer)]
    places = [i for i, c in enumerate(traced.consts) if isinstance(c, Tracer)]

    def opened(constants: Tree, *leaves: Any) -> Any:
        whole = list(traced.consts)
        for place, value in zip(places, constants, strict=True):
            whole[place] = value
        return jaxpr_as_fun(ClosedJaxpr(traced.jaxpr, whole))(*leaves)

    return opened, tuple(constants)


def computed_again(tendency: Callable[..., Any]) -> Callable[..., Any]:
    """A tendency (fields, time, stage) -> (rates, maxima) whose reverse holds its arguments only.

    The reverse computes it again once its cotangents are there, and not before: of `jax.checkpoint` XLA computes on
    processors all that does not depend on cotangents early, and then holds it.
    """

    def again(*arguments: Any) -> Any:
        leaves, given = jax.tree.flatten(jax.tree.map(jnp.asarray, arguments))
        made = jax.tree.structure(jax.eval_shape(tendency, *arguments))
        closed, constants = _opened(tendency, *arguments)
        run = jax.custom_vjp(lambda constants, leaves: tuple(closed(constants, *leaves)))
        run.defvjp(
            lambda constants, leaves: (run(constants, leaves), (constants, leaves)),
            partial(_back, closed, given, made),
        )
        return jax.tree.unflatten(made, run(constants, tuple(leaves)))

    return again


def _back(closed: Callable[..., Any], given: Any, made: Any, held: Tree, slopes: Tree) -> Tree:
    """Cotangents of the constants and arguments of a tendency from those of its results."""
    constants, leaves = held
    _, time, *_ = jax.tree.unflatten(given, leaves)
    varied = [jnp.issubdtype(jnp.result_type(leaf), jnp.inexact) for leaf in leaves]

    def back(constants: Tree, leaves: Tree, slopes: Tree) -> Tree:
        def moving(constants: Tree, values: Tree) -> Tree:
            return tuple(closed(constants, *_merged(varied, values, leaves)))

        return jax.vjp(moving, constants, _chosen(leaves, varied))[1](tuple(slopes))

    # A loop that runs once, which XLA cannot know: without it, it mixes the reverses of all stages. It is no
    # condition, because collectives in conditions may start in another order on another process.
    zeros = jax.tree.map(jnp.zeros_like, (constants, _chosen(leaves, varied)))
    _, (of_constants, found) = lax.while_loop(
        lambda carry: carry[0],
        lambda _: (jnp.zeros((), bool), back(constants, leaves, slopes)),
        (time < jnp.inf, zeros),
    )
    none = [np.zeros(jnp.shape(leaf), jax.dtypes.float0) for leaf in leaves]
    return of_constants, _merged(varied, found, none)
