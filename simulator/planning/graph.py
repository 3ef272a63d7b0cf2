"""What one device does in a step, as a graph of operations on arrays, read from the traced program.

`Graph.of` takes a jaxpr apart: calls are inlined, a distributed `Program` is replaced by what it does on one device,
loops keep their bodies as graphs of their own. Nothing is compiled and no device is needed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from math import prod
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

Bytes = Callable[[Any], float]
"""Bytes of an array (its shape and type) on one device."""


class Kind(Enum):
    """What a compiler does with an operation."""

    VIEW = auto()
    """The same bytes by another name."""
    FUSED = auto()
    """Becomes part of the loops of those who use it, and has no array of its own unless one of them needs it."""
    JOIN = auto()
    """Writes an array from parts that are fused into it."""
    UPDATE = auto()
    """Writes into its first operand's array."""
    REDUCE = auto()
    KERNEL = auto()
    """A library's routine or a loop of its own: reads and writes arrays."""
    LOOP = auto()


@dataclass(eq=False)
class Value:
    """An array on one device."""

    bytes: float
    shape: tuple[int, ...]
    made_by: "Operation | None" = None
    constant: bool = False
    """Depends on nothing that the step is given."""
    everywhere: Any = None
    """The number that a constant is at all its places."""
    uses: "list[Operation]" = field(default_factory=list)


@dataclass(eq=False)
class Operation:
    name: str
    kind: Kind
    inputs: list[Value]
    outputs: list[Value]
    parameters: dict[str, Any]
    body: "Graph | None" = None
    trips: float = 1.0
    constant: bool = False
    of_transform: bool = False
    """Part of a distributed transform, or of the pointwise work that it does."""

    def pruned(self, used: Sequence[bool]) -> "Operation":
        """A loop without what is carried along for nothing, or collected and not used."""
        body = self.body
        if self.name != "scan" or body is None:
            return self
        consts, carried = self.parameters["consts"], self.parameters["carried"]
        needed, before = list(used), None
        found = body
        while needed != before:
            before = list(needed)
            found = body.pruned(needed)
            alive = {id(v) for v in found.outputs} | {id(v) for o in found.operations for v in o.inputs}
            for i in range(carried):
                needed[i] |= id(body.inputs[consts + i]) in alive
        keep = [True] * consts + needed[:carried] + [True] * (len(self.inputs) - consts - carried)
        found.inputs = [v for v, k in zip(body.inputs, keep, strict=True) if k]
        self.inputs = [v for v, k in zip(self.inputs, keep, strict=True) if k]
        self.outputs = [v for v, k in zip(self.outputs, needed, strict=True) if k]
        self.parameters = {"consts": consts, "carried": sum(needed[:carried])}
        self.body = found
        return self


VIEWS = frozenset(
    [
        "reshape",
        "squeeze",
        "expand_dims",
        "sharding_constraint",
        "stop_gradient",
        "copy",
        "optimization_barrier",
    ]
)
JOINS = frozenset(["concatenate", "stack"])
UPDATES = frozenset(["dynamic_update_slice"])
REDUCTIONS = frozenset(
    ["reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_prod", "argmax", "argmin"]
)
COLLECTIVES = frozenset(
    ["all_to_all", "psum", "pmax", "pmin", "ppermute", "all_gather", "psum2", "psum_invariant"]
)
KERNELS = COLLECTIVES | frozenset(
    ["fft", "sort", "cumsum", "dot_general", "scatter", "scatter-add", "random_bits", "threefry2x32"]
)


class Graph:
    """Operations in the order of the trace; those that nothing uses are left out."""

    def __init__(self, inputs: list[Value], operations: list[Operation], outputs: list[Value]):
        self.inputs, self.operations, self.outputs = inputs, operations, outputs

    @classmethod
    def of(cls, closed: ClosedJaxpr, size: Bytes) -> "Graph":
        """`size` says what part of a global array lies on a device."""
        tracer = _Reader(size)
        inputs = [tracer.value(v.aval) for v in closed.jaxpr.invars]
        outputs = tracer.read(closed.jaxpr, closed.consts, inputs)
        return cls(inputs, tracer.operations, outputs).pruned()

    def pruned(self, needed: Sequence[bool] | None = None) -> "Graph":
        """Without what no output depends on, or none of those `needed`."""
        outputs = [v for i, v in enumerate(self.outputs) if needed is None or needed[i]]
        wanted = set(map(id, outputs))
        kept: list[Operation] = []
        for operation in reversed(self.operations):
            used = [id(v) in wanted for v in operation.outputs]
            if any(used):
                if operation.kind is Kind.LOOP:
                    operation = operation.pruned(used)
                wanted.update(map(id, operation.inputs))
                kept.append(operation)
        for value in self.values(kept):
            value.uses = []
        for operation in kept:
            for value in operation.inputs:
                value.uses.append(operation)
        return Graph(self.inputs, kept[::-1], outputs)

    def values(self, operations: Sequence[Operation] | None = None) -> Iterator[Value]:
        yield from self.inputs
        for operation in self.operations if operations is None else operations:
            yield from operation.inputs
            yield from operation.outputs


def whole(aval: Any) -> float:
    """Bytes of an array that lies on a device as it is."""
    return float(prod(aval.shape)) * _itemsize(aval.dtype)


def _itemsize(dtype: Any) -> int:
    return getattr(dtype, "itemsize", 8)  # keys of random numbers have none


class _Reader:
    def __init__(self, size: Bytes, of_transform: bool = False):
        self.size = size
        self.of_transform = of_transform
        self.operations: list[Operation] = []

    def value(self, aval: Any, made_by: Operation | None = None) -> Value:
        constant = made_by is not None and made_by.constant
        return Value(self.size(aval), tuple(getattr(aval, "shape", ())), made_by, constant)

    def add(self, operation: Operation, avals: Sequence[Any]) -> list[Value]:
        operation.of_transform = self.of_transform
        operation.constant = all(v.constant for v in operation.inputs)
        operation.outputs = [self.value(a, operation) for a in avals]
        self.operations.append(operation)
        return operation.outputs

    def literal(self, aval: Any, content: Any) -> Value:
        array = np.asarray(content)
        found = self.add(Operation("constant", Kind.FUSED, [], [], {}), [aval])[0]
        if array.size == 1:
            found.everywhere = array.item()
        return found

    def read(self, jaxpr: Jaxpr, consts: Sequence[Any], given: Sequence[Value]) -> list[Value]:
        """Appends a jaxpr's operations; returns its results."""
        known: dict[Any, Value] = dict(zip(jaxpr.invars, given, strict=True))
        for variable, content in zip(jaxpr.constvars, consts, strict=True):
            known[variable] = self.literal(variable.aval, content)

        def find(atom: Any) -> Value:
            return self.literal(atom.aval, atom.val) if isinstance(atom, Literal) else known[atom]

        for equation in jaxpr.eqns:
            found = self.equation(equation, [find(a) for a in equation.invars])
            known.update(zip(equation.outvars, found, strict=True))
        return [find(a) for a in jaxpr.outvars]

    def equation(self, equation: Any, inputs: list[Value]) -> list[Value]:
        name, parameters = equation.primitive.name, equation.params
        avals = [v.aval for v in equation.outvars]
        if name == "program":
            before = self.size, self.of_transform
            local = parameters["program"].local_jaxpr([v.aval for v in equation.invars])
            self.size, self.of_transform = whole, True
            found = self.read(local.jaxpr, local.consts, inputs)
            self.size, self.of_transform = before
            # What goes in and out is laid out as the program says.
            for value, aval in zip(found, local.out_avals, strict=True):
                value.bytes = whole(aval)
            return found
        if name in ("scan", "while"):
            return self.loop(name, parameters, inputs, avals)
        if name == "cond":
            branches = [self.sub(b, inputs[1:]) for b in parameters["branches"]]
            largest = max(branches, key=lambda g: len(g.operations))
            return self.add(Operation(name, Kind.LOOP, inputs, [], parameters, largest), avals)
        if name == "shard_map":
            before = self.size, self.of_transform
            self.size, self.of_transform = whole, True
            found = self.read(parameters["jaxpr"], (), inputs)
            self.size, self.of_transform = before
            return found
        inner = next((parameters[k] for k in ("jaxpr", "call_jaxpr", "fun_jaxpr") if k in parameters), None)
        if isinstance(inner, ClosedJaxpr):
            return self.read(inner.jaxpr, inner.consts, inputs)
        if isinstance(inner, Jaxpr):
            return self.read(inner, (), inputs)
        if name == "select_n" and inputs[0].everywhere is not None:  # a choice that is none
            return [inputs[1 + int(inputs[0].everywhere)]]
        if (same := _unchanged(name, inputs)) is not None and same.shape == tuple(avals[0].shape):
            return [same]
        found = self.add(Operation(name, _kind(name, inputs, avals), inputs, [], parameters), avals)
        if name in ("broadcast_in_dim", "reshape", "convert_element_type"):
            found[0].everywhere = inputs[0].everywhere
        return found

    def sub(self, closed: ClosedJaxpr, inputs: Sequence[Value]) -> Graph:
        reader = _Reader(self.size, self.of_transform)
        given = [Value(v.bytes, v.shape, None, v.constant) for v in inputs]
        outputs = reader.read(closed.jaxpr, closed.consts, given)
        return Graph(given, reader.operations, outputs).pruned()

    def loop(self, name: str, parameters: dict[str, Any], inputs: list[Value], avals: Any) -> list[Value]:
        if name == "while":
            skip, consts = parameters["cond_nconsts"], parameters["body_nconsts"]
            closed, inputs = parameters["body_jaxpr"], inputs[skip:]
            trips = 1.0
        else:
            closed, trips = parameters["jaxpr"], float(parameters["length"])
            consts = _same_shape(inputs, closed.in_avals) - _same_shape(avals, closed.out_avals)
        reader = _Reader(self.size, self.of_transform)
        given = [reader.value(v.aval) for v in closed.jaxpr.invars]
        for value, outside in zip(given[:consts], inputs, strict=False):
            value.constant = outside.constant
        outputs = reader.read(closed.jaxpr, closed.consts, given)
        body = Graph(given, reader.operations, outputs)
        carried = len(avals) if name == "while" else _same_shape(avals, closed.out_avals)
        note = {"consts": consts, "carried": carried}
        return self.add(Operation(name, Kind.LOOP, inputs, [], note, body, trips), avals)


def _same_shape(outside: Sequence[Any], inside: Sequence[Any]) -> int:
    """How many of a scan's arrays are in its body as they are: those that it goes through have an axis less there.
    JAX says so by other parameters in every version."""
    return sum(tuple(a.shape) == tuple(b.shape) for a, b in zip(outside, inside, strict=True))


_NEUTRAL = {"add": (0, True), "sub": (0, False), "mul": (1, True), "div": (1, False)}
"""The number that changes nothing, and whether it may come first."""


def _unchanged(name: str, inputs: Sequence[Value]) -> Value | None:
    """The operand that an operation gives back as it is, if its shape is the result's."""
    if name in ("slice", "dynamic_slice"):
        return inputs[0]
    if name == "dynamic_update_slice":
        return inputs[1]
    if name not in _NEUTRAL:
        return None
    number, either = _NEUTRAL[name]
    if inputs[1].everywhere == number:
        return inputs[0]
    return inputs[1] if either and inputs[0].everywhere == number else None


def _kind(name: str, inputs: Sequence[Value], avals: Sequence[Any]) -> Kind:
    if name in VIEWS:
        return Kind.VIEW
    if name in JOINS:
        return Kind.JOIN
    if name in UPDATES:
        return Kind.UPDATE
    if name in REDUCTIONS:
        return Kind.REDUCE
    if name in KERNELS:
        return Kind.KERNEL
    return Kind.FUSED
