"""Gradients through a run, in reverse mode and in bounded memory.

    from simulator import differentiate

    gradient = differentiate(simulation, loss, steps=50, dt=0.01)
    value, slopes = gradient({"fields": simulation.state.fields, "model.viscosity": 0.01})

`loss(state)` is any real function of the last state, written with jax.numpy. JAX differentiates the step, every array
stays sharded, and physical space is visited in blocks as in a run.

A step's reverse needs the state that it began with. `kept` states are held; the reverse computes the others again
from the nearest one that is held, in the order that needs the fewest steps, and the stages of a step as well.
Griewank & Walther, ACM Trans. Math. Softw. 26, 19 (2000), algorithm 799. With `kept` = sqrt(steps) this takes two to
three more runs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import pairwise
from math import comb, isqrt
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from simulator.errors import UserError
from simulator.measure.budget import RESIDUAL
from simulator.physics.models import State
from simulator.simulation import start
from simulator.simulation.advance import step_of
from simulator.simulation.simulation import Simulation

Tree = Any


class ReversalSchedule(NamedTuple):
    """The order of all operations, in slots that hold a state each; slot 0 holds the beginning.

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


@dataclass(frozen=True)
class _Held:
    """The states that a reverse holds, in slots along a leading axis of each array.

    `one` is a step of (constants, leaves of a state). The slots keep `places`, the shardings of the leaves: left to
    itself XLA gathers some of them.
    """

    one: Callable[[Tree, Tree], Tree]
    plan: ReversalSchedule
    places: tuple[NamedSharding, ...]

    def first(self, leaves: Tree) -> Tree:
        """The slots at the beginning."""
        used = 1 + int(self.plan.stores[:, 2].max(initial=0))
        empty = ((f, jnp.zeros((used - 1, *f.shape), f.dtype)) for f in leaves)
        return self._placed(tuple(jnp.concatenate([f[None], zeros]) for f, zeros in empty))

    def ahead(self, constants: Tree, slots: Tree, slot: Any, steps: Any) -> Tree:
        """The state so many steps after that in a slot."""
        state = jax.tree.map(lambda s: lax.dynamic_index_in_dim(s, slot, keepdims=False), slots)
        state = lax.with_sharding_constraint(state, self.places)
        return lax.fori_loop(0, steps, lambda _, s: self.one(constants, s), state)

    def stored(self, constants: Tree, slots: Tree, first: Any, last: Any) -> Tree:
        """The slots after the operations from `first` up to `last` of the schedule."""
        if not len(self.plan.stores):
            return slots
        table = jnp.asarray(self.plan.stores)

        def store(i: Any, slots: Tree) -> Tree:
            state = self.ahead(constants, slots, table[i, 0], table[i, 1])
            put = partial(lax.dynamic_update_index_in_dim, index=table[i, 2], axis=0)
            return self._placed(jax.tree.map(put, slots, state))

        return lax.fori_loop(first, last, store, slots)

    def _placed(self, slots: Tree) -> Tree:
        along = tuple(NamedSharding(s.mesh, PartitionSpec(None, *s.spec)) for s in self.places)
        return lax.with_sharding_constraint(slots, along)


def repeated(step: Callable[[Tree], Tree], state: Tree, count: int, kept: int, shardings: Tree) -> Tree:
    """`count` steps of a state, whose reverse holds at most `kept` states. `shardings`: of the state's arrays."""
    closed, constants = _opened(step, state)
    leaves, tree = jax.tree.flatten(state)
    varied = [jnp.issubdtype(jnp.result_type(leaf), jnp.inexact) for leaf in leaves]
    plan = schedule(count, min(kept, count))
    places = tuple(jax.tree.leaves(shardings))

    def one(constants: Tree, leaves: Tree) -> Tree:
        return lax.with_sharding_constraint(tuple(closed(constants, *leaves)), places)

    held = _Held(one, plan, places)

    @jax.custom_vjp
    def run(constants: Tree, leaves: Tree) -> Tree:
        return lax.fori_loop(0, count, lambda _, s: one(constants, s), leaves)

    def forward(constants: Tree, leaves: Tree) -> tuple[Tree, Tree]:
        slot, further, before = plan.reversals[0]
        slots = held.stored(constants, held.first(leaves), 0, before)
        return held.ahead(constants, slots, slot, further + 1), (constants, slots)

    def backward(residuals: Tree, slopes: Tree) -> Tree:
        constants, slots = residuals
        table = jnp.asarray(plan.reversals)

        def reverse(i: Any, carry: Tree) -> Tree:
            slots, slopes, of_constants = carry
            done = jnp.where(i == 0, table[0, 2], table[jnp.maximum(i, 1) - 1, 2])
            slots = held.stored(constants, slots, done, table[i, 2])
            state = held.ahead(constants, slots, table[i, 0], table[i, 1])

            def moving(constants: Tree, values: Tree) -> Tree:
                return _chosen(one(constants, _merged(varied, values, state)), varied)

            _, back = jax.vjp(moving, constants, _chosen(state, varied))
            found, slopes = back(slopes)
            slopes = lax.with_sharding_constraint(slopes, _chosen(places, varied))
            return slots, slopes, jax.tree.map(jnp.add, of_constants, found)

        carry = (slots, _chosen(slopes, varied), jax.tree.map(jnp.zeros_like, constants))
        _, slopes, of_constants = lax.fori_loop(0, count, reverse, carry)
        return of_constants, _merged(varied, slopes, _nothing(leaves))

    run.defvjp(forward, backward)
    return jax.tree.unflatten(tree, run(constants, tuple(leaves)))


def _nothing(leaves: Tree) -> list[np.ndarray]:
    """Cotangents of arrays that cannot vary."""
    return [np.zeros(jnp.shape(leaf), jax.dtypes.float0) for leaf in leaves]


def _chosen(leaves: Tree, which: list[bool]) -> Tree:
    return tuple(leaf for leaf, wanted in zip(leaves, which, strict=True) if wanted)


def _merged(which: list[bool], chosen: Tree, others: Tree) -> Tree:
    found = iter(chosen)
    return tuple(next(found) if wanted else other for wanted, other in zip(which, others, strict=True))


def _opened(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function of flat arrays that takes the traced real or complex values over which it closes as its first
    argument, and these values."""
    closed, constants = jax.closure_convert(function, *arguments)
    tree = jax.tree.structure(arguments)

    def opened(constants: Tree, *leaves: Any) -> Any:
        return jax.tree.leaves(closed(*jax.tree.unflatten(tree, leaves), *constants))

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
    return of_constants, _merged(varied, found, _nothing(leaves))


FIELDS = "fields"
VARIED = ("model.", "forcing.", "initial.")
"""Blocks of a configuration whose numbers may be variables."""

Loss = Callable[..., jax.Array]


class Gradient:
    """The value of a loss after a run and its gradient, as a function of the run's variables.

    Variables are a mapping: `fields` are the spectral fields at the beginning, by name; `model.viscosity`,
    `forcing.amplitude`, `initial.energy` and so on are numbers of the configuration. Everything else is as in the
    configuration. `fields` and `initial` exclude each other.

    The gradient has the same keys. For complex arrays it is the direction of ascent: fields - rate * gradient lowers
    the loss. Functions are compiled once for each set of keys.
    """

    def __init__(
        self,
        simulation: Simulation,
        loss: Loss,
        *,
        steps: int | Sequence[int],
        dt: float,
        kept: int | None = None,
    ):
        """`steps`: the number of steps, or the rising step numbers after which `loss` gets a state each. `kept`: the
        largest number of states that the reverse holds; by default, with the state that is being reversed, the square
        root of the number of steps. With fewer, more steps are computed again."""
        ends = (steps,) if isinstance(steps, int) else tuple(steps)
        if not ends or ends[0] < 1 or any(b <= a for a, b in pairwise(ends)):
            raise UserError(f"steps: whole numbers from 1 on, rising, are needed, not {steps}")
        if kept is not None and kept < 1:
            raise UserError(f"kept: a number of states, 1 or more, is needed, not {kept}")
        if simulation.populations:
            raise UserError(
                f"particles: gradients do not go through particles ({', '.join(simulation.populations)})"
            )
        self._simulation, self._loss, self._ends, self._dt = simulation, loss, ends, dt
        self._kept = kept

    def __call__(self, variables: Mapping[str, Any]) -> tuple[jax.Array, dict[str, Any]]:
        """The loss and its gradient."""
        return self._compiled(self._checked(variables), self._simulation.state)

    def value(self, variables: Mapping[str, Any]) -> jax.Array:
        """The loss alone."""
        return self._forward(self._checked(variables), self._simulation.state)

    def lower(self, variables: Mapping[str, Any]) -> Any:
        """The program of value and gradient, lowered, to inspect its memory or communication."""
        return self._compiled.lower(self._checked(variables), self._simulation.state)

    def states(self, variables: Mapping[str, Any], begin: State) -> tuple[State, ...]:
        """The states that `loss` gets. The run starts from `begin` unless a variable defines the start. Pure."""
        numbers = {key: value for key, value in variables.items() if key != FIELDS}
        simulation = self._simulation.varied(numbers) if numbers else self._simulation
        state = begin
        if FIELDS in variables:
            state = simulation.begin({**begin.fields, **variables[FIELDS]})
        elif any(key.startswith("initial.") for key in numbers):
            state = simulation.begin(
                start.traced_fields(simulation.config, simulation.model, simulation.inputs)
            )
        # How well a step closes the energy budget influences nothing, and its reverse would hold several fields.
        state = replace(state, memory={n: v for n, v in state.memory.items() if n != RESIDUAL})
        step = step_of(
            simulation.model, simulation.integrator, simulation.forcing, simulation.swarm, computed_again
        )
        found, shardings = [], start.shardings(simulation.model, simulation.populations, state)
        for before, end in pairwise((0, *self._ends)):
            count = end - before
            kept = self._kept or max(1, isqrt(count) - 1)
            state = repeated(lambda s: step(s, self._dt), state, count, kept, shardings)
            found.append(state)
        return tuple(found)

    def _total(self, variables: Mapping[str, Any], begin: State) -> jax.Array:
        return self._loss(*self.states(variables, begin))

    @cached_property
    def _forward(self) -> Any:
        return jax.jit(self._total)

    @cached_property
    def _compiled(self) -> Any:
        def value_and_gradient(variables: Mapping[str, Any], begin: State) -> tuple[jax.Array, Any]:
            value, slopes = jax.value_and_grad(self._total)(variables, begin)
            return value, jax.tree.map(jnp.conj, slopes)

        return jax.jit(value_and_gradient)

    def _checked(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        simulation = self._simulation
        for key, value in variables.items():
            if key == FIELDS:
                if unknown := value.keys() - simulation.model.fields.keys():
                    known = ", ".join(simulation.model.fields)
                    raise UserError(
                        f"variables: {unknown.pop()!r} is not a field of the model, which has {known}"
                    )
            elif not key.startswith(VARIED):
                raise UserError(
                    f"variables: {key!r}; fields, and numbers of model, forcing and initial, can vary"
                )
        if FIELDS in variables and any(key.startswith("initial.") for key in variables):
            raise UserError("variables: fields and initial exclude each other; both give the start")
        dtype = simulation.dtype
        return {k: v if k == FIELDS else jnp.asarray(v, dtype) for k, v in variables.items()}


def differentiate(
    simulation: Simulation,
    loss: Loss,
    *,
    steps: int | Sequence[int],
    dt: float,
    kept: int | None = None,
) -> Gradient:
    """The gradient of `loss` after a run of `steps` steps of dt: see `Gradient`."""
    return Gradient(simulation, loss, steps=steps, dt=dt, kept=kept)
