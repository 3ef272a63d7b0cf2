"""Functions of the values at a point as lists of operations, which the native kernels apply to the
values of a tile while it is in the cache.

A function is traced for one point. Its arrays are followed number by number: an operation that
rearranges an array rearranges the names of its numbers, and any other operation becomes one
operation of the kernels for each number."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal
from jax.typing import ArrayLike

from simulator.spectral.schedules.device_part import Arrays, Pointwise, Ranges

KINDS = ("copy", "add", "sub", "mul", "div", "max", "min", "neg", "abs", "sqrt", "maximum", "sum")
"""The kinds of operations in `plan.h`; the last two reduce values over the points."""
MOST_INPUTS = 64
MOST_NUMBERS = 64
MOST_OPERATIONS = 512

UNKNOWN = -1
"""The name of a number that no register holds: a coordinate, for example."""
NUMBERS = 1 << 10
RESULTS = 1 << 20
"""Inputs are named from 0, numbers and results of operations from these two on."""
POINT_AXES = 3

# The tables of primitives and of their parameters were read from JAX 0.10.1 and 0.12.0. A function
# with another primitive, or with another parameter that is not None, raises `MissingOperation`: XLA
# then compiles the function, and its blocks are visited. Another release may cost speed, never a
# right result.
BINARY = {"add": "add", "add_any": "add", "sub": "sub", "mul": "mul", "div": "div"}
BINARY |= {"max": "max", "min": "min"}
UNARY = {"neg": "neg", "abs": "abs", "sqrt": "sqrt"}
OVER_COMPONENTS = {"reduce_sum": "add", "reduce_max": "max", "reduce_min": "min"}
PARAMETERS = {"axes", "axis", "broadcast_dimensions", "dimension", "dimensions", "limit_indices"}
PARAMETERS |= {"new_dtype", "new_sizes", "permutation", "shape", "sizes", "start_indices"}
PARAMETERS |= {"strides", "weak_type", "y"}


class MissingOperation(Exception):
    """The kernels lack an operation of a function."""


class Operation(NamedTuple):
    """Operands and results are names of registers; the result of a reduction is its number."""

    kind: str
    result: int
    a: int
    b: int


class ArgumentEntry(NamedTuple):
    """An entry of an argument of a function, flattened."""

    argument: int
    entry: int


@dataclass(frozen=True)
class Operations:
    """A function of the values at a point. Registers are the inputs, the products, the numbers that
    are the same at all points, and `temporaries` others."""

    inputs: int
    products: int
    numbers: tuple[float | ArgumentEntry, ...]
    temporaries: int
    maxima: int
    sums: int
    rows: tuple[tuple[int, int, int, int], ...]
    """Operations as in `plan.h`; maxima come before sums."""

    @property
    def sizes(self) -> list[int]:
        """The numbers of an `Evaluation` in `plan.h`."""
        temporaries = len(self.numbers) + self.temporaries
        reductions = self.maxima + self.sums
        return [self.inputs, self.products, len(self.numbers), temporaries, reductions, self.sums]

    def numbers_of(self, arguments: Sequence[jax.Array], dtype: np.dtype) -> jax.Array:
        """The numbers that are the same at all points, from the arguments of the function."""
        if not self.numbers:
            return jnp.zeros(1, dtype)
        flat = {
            n.argument: arguments[n.argument].reshape(-1)
            for n in self.numbers
            if type(n) is ArgumentEntry
        }
        values = [
            flat[n.argument][n.entry] if type(n) is ArgumentEntry else n for n in self.numbers
        ]
        return jnp.stack([jnp.asarray(value, dtype) for value in values])


@dataclass(frozen=True)
class PointwiseCall:
    """Products of values at points that a schedule evaluates."""

    function: Pointwise
    inputs: int
    outputs: int
    """Components of values and of products."""
    keep: Ranges
    """The values that are returned by schedules with a `values_order`."""
    maxima: Sequence[str]
    sums: Sequence[str]
    """Names of the reductions, in order."""
    reverse: bool
    """Whether the result needs to be differentiable in reverse mode only."""
    operations: Operations | None
    """The operations of the function, if the kernels have them all."""
    arguments: Arrays
    """The arguments of the function beside values and coordinates."""


def operations_of(
    traced: ClosedJaxpr, first: int, products: int, maxima: int, dtype: np.dtype
) -> Operations:
    """The operations of a function of real values (component, 1, 1, 1), a coordinate and further
    arguments, of which those from the number `first` on are the same at all points. Its results are
    this many products and maxima, and sums. Raises `MissingOperation`."""
    values, coordinate, *arguments = traced.jaxpr.invars
    recorder = Recorder(dtype)
    inputs = values.aval.shape[0]
    names = {
        values: np.arange(inputs).reshape(values.aval.shape),
        coordinate: np.full((1, 1, 1), UNKNOWN),
    }
    used = {v for equation in traced.jaxpr.eqns for v in equation.invars if type(v) is not Literal}
    for number, variable in enumerate(arguments):
        known = number >= first and variable in used
        names[variable] = recorder.parameter(number, variable.aval, known=known)
    results = recorder.followed(traced, names)
    of_products = [int(name) for leaf in results[:products] for name in leaf.ravel()]
    reduced: list[int] = []
    for number, leaf in enumerate(results[products:]):
        value = int(leaf.ravel()[0])
        reduced.append(recorder.operation("maximum" if number < maxima else "sum", value, value))
    return recorder.finished(inputs, of_products, reduced, maxima)


class Recorder:
    """The operations of a function while it is followed."""

    def __init__(self, dtype: np.dtype):
        self.dtype = dtype
        self.numbers: list[float | ArgumentEntry] = []
        self.operations: dict[tuple[str, int, int], Operation] = {}

    def number(self, value: float | ArgumentEntry) -> int:
        """A name for a number that is the same at all points."""
        if value not in self.numbers:
            self.numbers.append(value)
        if len(self.numbers) > MOST_NUMBERS:
            raise MissingOperation
        return NUMBERS + self.numbers.index(value)

    def operation(self, kind: str, a: int, b: int) -> int:
        """A name for the result of an operation; none if an operand has no name."""
        if min(a, b) < 0:
            return UNKNOWN
        key = kind, a, b
        if key not in self.operations:
            if len(self.operations) == MOST_OPERATIONS:
                raise MissingOperation
            self.operations[key] = Operation(kind, RESULTS + len(self.operations), a, b)
        return self.operations[key].result

    def each(self, kind: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        names = np.empty(np.broadcast_shapes(a.shape, b.shape), int)
        for place, (one, other) in enumerate(np.broadcast(a, b)):
            names.flat[place] = self.operation(kind, int(one), int(other))
        return names

    def parameter(self, argument: int, aval: ShapedArray, *, known: bool) -> np.ndarray:
        """The names of the entries of an argument."""
        if not known or aval.size > MOST_NUMBERS or aval.dtype != self.dtype:
            return np.full(aval.shape, UNKNOWN)
        names = [self.number(ArgumentEntry(argument, entry)) for entry in range(aval.size)]
        return np.array(names, int).reshape(aval.shape)

    def constant(self, value: ArrayLike) -> np.ndarray:
        shape = np.shape(value)
        if np.size(value) > MOST_NUMBERS or jnp.result_type(value) != self.dtype:
            return np.full(shape, UNKNOWN)
        names = [self.number(number) for number in np.ravel(value).tolist()]
        return np.array(names, int).reshape(shape)

    def followed(self, traced: ClosedJaxpr, names: dict[Any, np.ndarray]) -> list[np.ndarray]:
        """The names of a function's results from those of its arguments."""
        names = names | dict(
            zip(traced.jaxpr.constvars, map(self.constant, traced.consts), strict=True)
        )

        for equation in traced.jaxpr.eqns:
            results = self.results(equation, self.named(equation.invars, names))
            names.update(zip(equation.outvars, results, strict=True))
        return self.named(traced.jaxpr.outvars, names)

    def named(self, variables: Sequence[Any], names: dict[Any, np.ndarray]) -> list[np.ndarray]:
        return [self.constant(v.val) if type(v) is Literal else names[v] for v in variables]

    def results(self, equation: JaxprEqn, operands: list[np.ndarray]) -> list[np.ndarray]:
        name = equation.primitive.name
        parameters = equation.params
        inner = parameters.get("jaxpr", parameters.get("call_jaxpr"))
        if isinstance(inner, ClosedJaxpr):
            return self.followed(inner, dict(zip(inner.jaxpr.invars, operands, strict=True)))
        if not {key for key, value in parameters.items() if value is not None} <= PARAMETERS:
            raise MissingOperation(name)
        first = operands[0] if operands else np.empty(0, int)
        if name in BINARY:
            return [self.each(BINARY[name], *operands)]
        if name in UNARY:
            return [self.each(UNARY[name], first, first)]
        if name == "square" or (name == "integer_pow" and parameters["y"] == 2):
            return [self.each("mul", first, first)]
        if name in OVER_COMPONENTS:
            return [self.over_components(OVER_COMPONENTS[name], first, parameters["axes"])]
        shape = cast(ShapedArray, equation.outvars[0].aval).shape
        return rearranged(name, parameters, operands, shape, self.dtype)

    def over_components(self, kind: str, names: np.ndarray, axes: Sequence[int]) -> np.ndarray:
        """Operations along axes of components, one after another."""
        for axis in sorted(axes, reverse=True):
            if axis >= names.ndim - POINT_AXES:
                raise MissingOperation
            first, *others = np.moveaxis(names, axis, 0)
            names = reduce(partial(self.each, kind), others, first)
        return names

    def finished(
        self, inputs: int, products: list[int], reduced: list[int], maxima: int
    ) -> Operations:
        """The operations with results in registers."""
        if max(len(products), inputs) > MOST_INPUTS or min([*products, *reduced], default=0) < 0:
            raise MissingOperation
        if len(set(reduced)) < len(reduced):
            raise MissingOperation
        operations = needed(list(self.operations.values()), {*products, *reduced})
        uses = Counter(products)
        for operation in operations:
            uses.update({operation.a, operation.b})
        registers = Registers(inputs, products, len(self.numbers))
        for i, name in enumerate(products, inputs):
            # A product that nothing else reads is written where it belongs; others are copied.
            if uses[name] == 1 and name >= RESULTS:
                registers.place[name] = i
            else:
                operations.append(Operation("copy", i, name, name))
        last = {name: i for i, one in enumerate(operations) for name in (one.a, one.b)}
        rows: list[tuple[int, int, int, int]] = []
        for i, one in enumerate(operations):
            operands = registers.place.get(one.a, one.a), registers.place.get(one.b, one.b)
            for name in {one.a, one.b}:
                if last[name] == i and name >= RESULTS:
                    registers.free.append(registers.place[name])
            if one.result in reduced:
                result = reduced.index(one.result)
            else:
                result = one.result if one.kind == "copy" else registers.of_result(one.result)
            rows.append((KINDS.index(one.kind), result, *operands))
        sums = len(reduced) - maxima
        numbers = tuple(self.numbers)
        return Operations(
            inputs, len(products), numbers, registers.count, maxima, sums, tuple(rows)
        )


def needed(operations: list[Operation], results: set[int]) -> list[Operation]:
    """The operations on which results depend."""
    chosen: list[Operation] = []
    for operation in reversed(operations):
        if operation.result in results:
            chosen.append(operation)
            results = results | {operation.a, operation.b}
    return chosen[::-1]


class Registers:
    """The registers of names: first inputs, then products, numbers, and temporary results, whose
    registers are used again when the results are no longer needed."""

    def __init__(self, inputs: int, products: list[int], numbers: int):
        base = inputs + len(products)
        self.place = {NUMBERS + i: base + i for i in range(numbers)}
        self.first = base + numbers
        self.count = 0
        self.free: list[int] = []

    def of_result(self, name: int) -> int:
        if name not in self.place and not self.free:
            self.count += 1
            self.free.append(self.first + self.count - 1)
        return (
            self.place[name] if name in self.place else self.place.setdefault(name, self.free.pop())
        )


def rearranged(
    name: str,
    parameters: Mapping[str, Any],
    operands: list[np.ndarray],
    result: tuple[int, ...],
    dtype: np.dtype,
) -> list[np.ndarray]:
    """The names of numbers after an operation that moves them, whose first result has the shape
    `result`."""
    first = operands[0] if operands else np.empty(0, int)
    match name:
        case "copy" | "stop_gradient":
            return [first]
        case "convert_element_type" if parameters["new_dtype"] == dtype:
            return [first]
        case "squeeze":
            return [first.reshape(result)]
        case "reshape" if parameters["dimensions"] is None:
            return [first.reshape(result)]
        case "broadcast_in_dim":
            shape = [1] * len(result)
            for axis, extent in zip(parameters["broadcast_dimensions"], first.shape, strict=True):
                shape[axis] = extent
            return [np.broadcast_to(first.reshape(shape), result)]
        case "slice":
            limits = parameters["start_indices"], parameters["limit_indices"]
            strides = parameters["strides"] or (1,) * first.ndim
            return [first[tuple(map(slice, *limits, strides))]]
        case "concatenate":
            return [np.concatenate(operands, parameters["dimension"])]
        case "stack":
            return [np.stack(operands, parameters["axis"])]
        case "transpose":
            return [first.transpose(parameters["permutation"])]
        case "rev":
            return [np.flip(first, parameters["dimensions"])]
        case "split":
            ends = np.cumsum(parameters["sizes"])[:-1]
            return np.split(first, ends, parameters["axis"])
        case "unstack":
            return list(np.moveaxis(first, parameters["axis"], 0))
    raise MissingOperation(name)
