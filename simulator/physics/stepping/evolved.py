"""The unknowns of an equation as one vector, so that a stage of an integrator is one line."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from simulator.spectral.arrays import Combination, Number, computed


class Evolved(dict[str, Any]):
    """Arrays by name: coefficients of fields, records of particles, or factors of these.

    Sums, products and quotients are taken name by name; a number acts on all arrays. `L`, `E` and
    `h` of an integrator have the names of the unknowns `u`."""

    def __add__(self, other: "Evolved") -> "Evolved":
        return Evolved({name: array + other[name] for name, array in self.items()})

    def __sub__(self, other: "Evolved") -> "Evolved":
        return Evolved({name: array - other[name] for name, array in self.items()})

    def __mul__(self, other: "Evolved") -> "Evolved":
        return Evolved({name: array * other[name] for name, array in self.items()})

    def __truediv__(self, number: float) -> "Evolved":
        return Evolved({name: array / number for name, array in self.items()})

    def __rmul__(self, factor: Number | float) -> "Evolved":
        if isinstance(factor, jax.Array):
            return self.number(factor) * self
        return Evolved({name: factor * array for name, array in self.items()})

    def exponential(self, duration: Number) -> "Evolved":
        """exp(L duration), where the vector is L."""
        exponents = self.number(duration) * self
        return Evolved({name: jnp.exp(z) for name, z in exponents.items()})

    def number(self, value: Number) -> "Evolved":
        """A number in the precision of each array."""
        return Evolved({n: value.astype(array.real.dtype) for n, array in self.items()})

    def without_combinations(self) -> "Evolved":
        """The arrays that are computed at once."""
        return Evolved({n: a for n, a in self.items() if not isinstance(a, Combination)})

    def computed(self) -> "Evolved":
        """The vector without combinations that are still to be computed."""
        return Evolved({name: computed(array) for name, array in self.items()})


def _flattened(u: Evolved) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    names = tuple(sorted(u))
    return tuple(map(u.__getitem__, names)), names


def _flattened_with_keys(u: Evolved) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    arrays, names = _flattened(u)
    return tuple(zip(map(jax.tree_util.DictKey, names), arrays, strict=True)), names


def _unflattened(names: tuple[str, ...], arrays: Iterable[Any]) -> Evolved:
    return Evolved(zip(names, arrays, strict=True))


jax.tree_util.register_pytree_with_keys(Evolved, _flattened_with_keys, _unflattened, _flattened)

Registers = tuple[Evolved, Evolved]


def growth(L: Evolved, duration: Number) -> Evolved:
    """exp(L duration)."""
    return L.exponential(duration)


def now(dt: Number, formulas: Callable[[], Registers], spent: Registers) -> Registers:
    """Two vectors, computed before all later operations; on GPUs in the memory of two others, which
    the formulas use and nothing uses after them.

    Otherwise XLA would postpone sums whose result only the end of a step uses, and keep every
    tendency in these sums until then. XLA drops optimization barriers before it decides; it has to
    obey a condition whose value it cannot know. Combinations are left as they are."""

    def arrays() -> tuple[Evolved, ...]:
        return tuple(register.without_combinations() for register in formulas())

    function, operands = jax.closure_convert(arrays)
    first, second = formulas()
    places: list[int] = []
    for register, memory in zip((first, second), spent, strict=True):
        replaced = [memory[name] for name in sorted(register.without_combinations())]
        places += [i for a in replaced for i, operand in enumerate(operands) if operand is a]
    known, also_known = _computed(function, tuple(places), dt, *operands)
    return Evolved(first | known), Evolved(second | also_known)


def once(dt: Number, formulas: Callable[[], Any]) -> Any:
    """A tree of arrays, computed before all operations that use it, and not anew for each.

    For gradients the formulas may use floating-point arrays of their caller only, no booleans."""
    function, operands = jax.closure_convert(formulas)
    return _computed(function, (), dt, *operands)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _computed(
    function: Callable[..., Any], places: tuple[int, ...], dt: Number, *operands: jax.Array
) -> Any:
    """The function of the operands. `places`: the operands in whose memory a GPU computes the
    results."""
    results = jax.tree.leaves(jax.eval_shape(function, *operands))
    conditionally = partial(_conditionally, function)
    if [(a.shape, a.dtype) for a in results] != [
        (operands[i].shape, operands[i].dtype) for i in places
    ]:
        return conditionally(dt, *operands)
    in_place = partial(_in_place, function, places)
    return lax.platform_dependent(dt, *operands, cpu=conditionally, default=in_place)


def _conditionally(function: Callable[..., Any], dt: Number, *operands: jax.Array) -> Any:
    def operands_again(*operands: jax.Array) -> Any:
        """Operands in place of the results: on GPUs zeros would keep two to three more states."""
        spare = list(operands)

        def alike(result: Any) -> jax.Array:
            for i, operand in enumerate(spare):
                if (operand.shape, operand.dtype) == (result.shape, result.dtype):
                    return spare.pop(i)
            return jnp.zeros(result.shape, result.dtype)

        return jax.tree.map(alike, jax.eval_shape(function, *operands))

    return lax.cond(dt < jnp.inf, function, operands_again, *operands)


def _in_place(
    function: Callable[..., Any], places: tuple[int, ...], dt: Number, *operands: jax.Array
) -> Any:
    """The function of the operands, in a loop of one turn, which computes where it reads; the
    results of a condition would have memory of their own."""
    tree = jax.tree.structure(jax.eval_shape(function, *operands))

    def turn(carry: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
        count, registers = carry
        given = list(operands)
        for place, register in zip(places, jax.tree.leaves(registers), strict=True):
            given[place] = register
        return count + 1, function(*given)

    turns = jnp.where(dt < jnp.inf, 1, 0)
    start = jnp.zeros_like(turns), tree.unflatten([operands[place] for place in places])
    return lax.while_loop(lambda carry: carry[0] < turns, turn, start)[1]


@_computed.defjvp
def _(
    function: Callable[..., Any],
    places: tuple[int, ...],
    primals: tuple[Any, ...],
    tangents: tuple[Any, ...],
) -> Any:
    # The tangents are those without the condition: of a condition the reverse would keep every
    # factor.
    return _computed(function, places, *primals), jax.jvp(function, primals[1:], tangents[1:])[1]
