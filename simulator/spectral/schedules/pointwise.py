"""Functions of the values at a point as lists of operations, which the native kernels apply to the
values of a tile while it is in the cache.

A function is traced for one point. Its arrays are followed number by number: an operation that
rearranges an array rearranges the names of its numbers, and any other operation becomes one
operation of the kernels for each number."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Literal

from simulator.spectral.schedules.schedule import Points, Pointwise, Reductions

KINDS = ("copy", "add", "sub", "mul", "div", "max", "min", "neg", "abs", "sqrt", "maximum", "sum")
"""The kinds of operations in `plan.h`; the last two reduce values over the points."""
BINARY = {"add": "add", "add_any": "add", "sub": "sub", "mul": "mul", "div": "div"}
BINARY |= {"max": "max", "min": "min"}
UNARY = {"neg": "neg", "abs": "abs", "sqrt": "sqrt"}
OVER_COMPONENTS = {"reduce_sum": "add", "reduce_max": "max", "reduce_min": "min"}
OVER_POINTS = {"reduce_max": "maximum", "reduce_sum": "sum"}
MOST_INPUTS = 64
MOST_NUMBERS = 64
MOST_OPERATIONS = 512

INSIDE, UNKNOWN, REDUCED = -1, -2, -3
"""Names of numbers in no register: true at all points; coordinates; and from REDUCED downwards the
results of reductions."""
POINT_AXES = 3


class MissingOperation(Exception):
    """The kernels lack an operation of a function."""


class Operation(NamedTuple):
    """Operands and results are names of registers; the result of a reduction is its number."""

    kind: str
    result: int
    a: int
    b: int


@dataclass(frozen=True)
class Operations:
    """A function of the values at a point. Registers are the inputs, the products, the numbers that
    are the same at all points, and `temporaries` others."""

    inputs: int
    products: int
    numbers: tuple[Any, ...]
    temporaries: int
    reductions: Reductions
    """The position of each reduction among all; maxima come first."""
    rows: tuple[tuple[int, int, int, int], ...]
    """Operations as in `plan.h`."""

    @property
    def maxima(self) -> int:
        return len(self.reductions.maxima)

    @property
    def sums(self) -> int:
        return len(self.reductions.sums)

    @property
    def sizes(self) -> list[int]:
        """The numbers of an `Evaluation` in `plan.h`."""
        temporaries = len(self.numbers) + self.temporaries
        reductions = self.maxima + self.sums
        return [self.inputs, self.products, len(self.numbers), temporaries, reductions, self.sums]


def operations_of(
    pointwise: Pointwise, inputs: int, dtype: np.dtype, reduced_axes: Sequence[int]
) -> Operations:
    """The operations of a function of real values. Raises `MissingOperation`."""
    point = jax.ShapeDtypeStruct((1,) * POINT_AXES, dtype)
    values = jax.ShapeDtypeStruct((inputs, *point.shape), dtype)
    inside = jax.ShapeDtypeStruct(point.shape, bool)

    def at(values: jax.Array, x: jax.Array, inside: jax.Array) -> Any:
        return pointwise(values, Points(x, x, x), inside)

    traced, results = jax.make_jaxpr(at, return_shape=True)(values, point, inside)
    products, reductions = results
    recorder = Recorder(inputs, tuple(reduced_axes), dtype)
    names = [np.arange(inputs).reshape(values.shape)]
    names += [np.full(point.shape, name) for name in (UNKNOWN, INSIDE)]
    of_results = [name.ravel() for name in recorder.follow(traced, names)]
    of_products = [] if products is None else [int(name) for name in of_results[0]]
    of_reductions = of_results[len(of_results) - len(jax.tree.leaves(reductions)) :]
    return recorder.finished(of_products, [int(name[0]) for name in of_reductions], reductions)


@dataclass
class Recorder:
    """The operations of a function while it is followed. Inputs are named from 0, numbers and
    results of operations from the two constants on."""

    NUMBERS = 1 << 10
    RESULTS = 1 << 20

    inputs: int
    reduced_axes: tuple[int, ...]
    dtype: np.dtype
    numbers: list[Any] = field(default_factory=list)
    literals: dict[float, int] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)
    known: dict[tuple[str, int, int], int] = field(default_factory=dict)

    def number(self, value: Any) -> int:
        """A name for a number that is the same at all points."""
        if len(self.numbers) == MOST_NUMBERS:
            raise MissingOperation
        self.numbers.append(value)
        return self.NUMBERS + len(self.numbers) - 1

    def operation(self, kind: str, a: int, b: int) -> int:
        """A name for the result of an operation."""
        if min(a, b) < 0 or len(self.operations) == MOST_OPERATIONS:
            raise MissingOperation
        if (kind, a, b) not in self.known:
            result = self.RESULTS + len(self.operations)
            self.operations.append(Operation(kind, result, a, b))
            self.known[kind, a, b] = result
        return self.known[kind, a, b]

    def each(self, kind: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a, b = np.broadcast_arrays(a, b)
        pairs = zip(a.ravel(), b.ravel(), strict=True)
        names = [self.operation(kind, int(one), int(other)) for one, other in pairs]
        return np.array(names, int).reshape(a.shape)

    def follow(self, traced: ClosedJaxpr, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The names of a function's results from those of its arguments."""
        names: dict[Any, np.ndarray] = dict(zip(traced.jaxpr.invars, arguments, strict=True))
        for variable, value in zip(traced.jaxpr.constvars, traced.consts, strict=True):
            names[variable] = self.constant(value)

        def of(variable: Any) -> np.ndarray:
            return self.constant(variable.val) if isinstance(variable, Literal) else names[variable]

        for equation in traced.jaxpr.eqns:
            results = self.results(equation, [of(v) for v in equation.invars])
            names.update(zip(equation.outvars, results, strict=True))
        return [of(v) for v in traced.jaxpr.outvars]

    def constant(self, value: Any) -> np.ndarray:
        shape = np.shape(value)
        if np.size(value) > MOST_NUMBERS or jnp.result_type(value) != self.dtype:
            return np.full(shape, UNKNOWN)
        if isinstance(value, Tracer):
            numbers = value.reshape(-1)
            names = [self.number(numbers[i]) for i in range(np.size(value))]
        else:
            names = [self.literal(float(number)) for number in np.ravel(value)]
        return np.array(names, int).reshape(shape)

    def literal(self, value: float) -> int:
        if value not in self.literals:
            self.literals[value] = self.number(value)
        return self.literals[value]

    def results(self, equation: Any, operands: list[np.ndarray]) -> list[np.ndarray]:
        name, parameters = equation.primitive.name, equation.params
        inner = parameters.get("jaxpr", parameters.get("call_jaxpr"))
        if isinstance(inner, ClosedJaxpr):
            return self.follow(inner, operands)
        if name == "split":
            ends = np.cumsum(parameters["sizes"])[:-1]
            return np.split(operands[0], ends, parameters["axis"])
        if name == "unstack":
            return list(np.moveaxis(operands[0], parameters["axis"], 0))
        return [self.result(name, parameters, operands, equation.outvars[0].aval)]

    def result(
        self, name: str, parameters: dict[str, Any], operands: list[np.ndarray], aval: Any
    ) -> np.ndarray:
        first = operands[0] if operands else np.empty(0, int)
        if name in BINARY:
            return self.each(BINARY[name], *operands)
        if name in UNARY:
            return self.each(UNARY[name], first, first)
        if name == "square" or (name == "integer_pow" and parameters["y"] == 2):
            return self.each("mul", first, first)
        if name == "select_n" and (first == INSIDE).all():
            return operands[2]
        if name in OVER_COMPONENTS:
            return self.reduced(name, first, parameters["axes"])
        if name in REARRANGED:
            return REARRANGED[name](operands, parameters, aval)
        if name == "convert_element_type" and parameters["new_dtype"] == self.dtype:
            return first
        raise MissingOperation(name)

    def reduced(self, name: str, names: np.ndarray, axes: Sequence[int]) -> np.ndarray:
        """Along axes of components: operations, one after another. Over the points: a reduction of
        the kernels."""
        if names.ndim == POINT_AXES and tuple(axes) == self.reduced_axes and name in OVER_POINTS:
            reduction = self.operation(OVER_POINTS[name], int(names.item()), int(names.item()))
            return np.full(1, REDUCED - (reduction - self.RESULTS))
        for axis in sorted(axes, reverse=True):
            if axis >= names.ndim - POINT_AXES:
                raise MissingOperation
            total = names.take(0, axis)
            for i in range(1, names.shape[axis]):
                total = self.each(OVER_COMPONENTS[name], total, names.take(i, axis))
            names = total
        return names

    def _needed(self, results: set[int]) -> list[Operation]:
        """The operations on which results depend."""
        needed: list[Operation] = []
        for operation in reversed(self.operations):
            if operation.result in results:
                needed.append(operation)
                results |= {operation.a, operation.b}
        return needed[::-1]

    def finished(
        self, products: Sequence[int], reduced: Sequence[int], reductions: Reductions
    ) -> Operations:
        """The operations with results in registers."""
        if len(products) > MOST_INPUTS or self.inputs > MOST_INPUTS:
            raise MissingOperation
        if min(products, default=0) < 0 or max(reduced, default=REDUCED) > REDUCED:
            raise MissingOperation
        positions = {REDUCED - name + self.RESULTS: i for i, name in enumerate(reduced)}
        if len(positions) < len(reduced):
            raise MissingOperation
        needed = self._needed({*products, *positions})
        uses = Counter(products)
        for operation in needed:
            uses.update({operation.a, operation.b})
        # A product that nothing else reads is written where it belongs; others are copied.
        place = {
            name: self.inputs + i
            for i, name in enumerate(products)
            if uses[name] == 1 and name >= self.RESULTS
        }
        copies = [
            Operation("copy", self.inputs + i, name, name)
            for i, name in enumerate(products)
            if name not in place
        ]
        operations = [*needed, *copies]
        last = {name: i for i, one in enumerate(operations) for name in (one.a, one.b)}
        base = self.inputs + len(products)
        registers = Registers(base + len(self.numbers))

        def register(name: int) -> int:
            if name < self.NUMBERS:
                return name
            return base + name - self.NUMBERS if name < self.RESULTS else place[name]

        rows = []
        for i, one in enumerate(operations):
            a, b = register(one.a), register(one.b)
            for name in {one.a, one.b}:
                if last[name] == i and name >= self.RESULTS:
                    registers.free.append(place[name])
            if one.result in positions:
                result = positions[one.result]
            elif one.kind == "copy":
                result = one.result
            elif one.result in place:
                result = place[one.result]
            else:
                result = place[one.result] = registers.take()
            rows.append((KINDS.index(one.kind), result, a, b))
        return Operations(
            self.inputs,
            len(products),
            tuple(self.numbers),
            registers.count,
            jax.tree.unflatten(jax.tree.structure(reductions), range(len(reduced))),
            tuple(rows),
        )


@dataclass
class Registers:
    """Registers of temporary results, used again when their results are no longer needed."""

    first: int
    count: int = 0
    free: list[int] = field(default_factory=list)

    def take(self) -> int:
        if self.free:
            return self.free.pop()
        self.count += 1
        return self.first + self.count - 1


def _broadcast(operands: list[np.ndarray], parameters: dict[str, Any], aval: Any) -> np.ndarray:
    shape = [1] * len(aval.shape)
    for axis, extent in zip(parameters["broadcast_dimensions"], operands[0].shape, strict=True):
        shape[axis] = extent
    return np.broadcast_to(operands[0].reshape(shape), aval.shape)


def _sliced(operands: list[np.ndarray], parameters: dict[str, Any], aval: Any) -> np.ndarray:
    strides = parameters["strides"] or (1,) * operands[0].ndim
    limits = zip(parameters["start_indices"], parameters["limit_indices"], strides, strict=True)
    return operands[0][tuple(slice(*limit) for limit in limits)]


Rearranged = Callable[[list[np.ndarray], dict[str, Any], Any], np.ndarray]
REARRANGED: dict[str, Rearranged] = {
    "broadcast_in_dim": _broadcast,
    "reshape": lambda operands, parameters, aval: operands[0].reshape(aval.shape),
    "squeeze": lambda operands, parameters, aval: operands[0].reshape(aval.shape),
    "slice": _sliced,
    "concatenate": lambda operands, parameters, aval: np.concatenate(
        operands, parameters["dimension"]
    ),
    "stack": lambda operands, parameters, aval: np.stack(operands, parameters["axis"]),
    "transpose": lambda operands, parameters, aval: operands[0].transpose(
        parameters["permutation"]
    ),
    "rev": lambda operands, parameters, aval: np.flip(operands[0], parameters["dimensions"]),
    "copy": lambda operands, parameters, aval: operands[0],
    "stop_gradient": lambda operands, parameters, aval: operands[0],
}
"""Operations that rearrange arrays."""
