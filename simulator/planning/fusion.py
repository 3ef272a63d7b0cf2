"""Which arrays of a graph are written to memory and read from there.

XLA fuses: an elementwise operation becomes part of the loops of those who use it, and its result exists only where a
routine (a Fourier transform, an exchange), a loop or the outside needs it as an array, or where computing it twice
would cost much.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from simulator.planning.graph import Graph, Kind, Operation, Value

EXPENSIVE = frozenset(
    [
        "exp",
        "exp2",
        "expm1",
        "log",
        "log1p",
        "sin",
        "cos",
        "tan",
        "tanh",
        "pow",
        "sqrt",
        "rsqrt",
        "erf",
        "atan2",
    ]
)
"""Computed once and kept where several use the result."""
MOVING = frozenset(["slice", "dynamic_slice", "pad", "gather", "rev"])
"""Read their operand at other places than they write."""
PLAIN = frozenset(["constant", "iota", "broadcast_in_dim"])


@dataclass(frozen=True)
class Compiler:
    """What XLA does on a kind of device."""

    stored_before_reduction: bool
    """A choice between values, or values in another order, are not fused into a maximum or a sum."""
    parcels_apart: bool
    """An exchange takes and gives every parcel as an array of its own."""


COMPILERS = {
    "cpu": Compiler(stored_before_reduction=True, parcels_apart=True),
    "gpu": Compiler(stored_before_reduction=False, parcels_apart=False),
}


class Arrays:
    """Those of a loop's body, and of the loops inside."""

    def __init__(self, loop: Operation, compiler: Compiler):
        assert loop.body is not None
        self.graph: Graph = loop.body
        self.compiler = compiler
        self.over_steps = loop.name == "while"
        """The body is a step."""
        self._in_loop = loop.name in ("scan", "while")
        self._given, self._results = set(map(id, self.graph.inputs)), set(map(id, self.graph.outputs))
        self._stored: dict[int, bool] = {}
        self._roots: dict[int, frozenset[Value]] = {}
        self.inside = {
            n: Arrays(o, compiler) for n, o in enumerate(self.graph.operations) if o.body is not None
        }
        """Of loops, by their number."""

    def stored(self, value: Value) -> bool:
        """Whether the value is an array in memory."""
        if id(value) not in self._stored:
            self._stored[id(value)] = self._is_stored(value)
        return self._stored[id(value)]

    def _is_stored(self, value: Value) -> bool:
        made = value.made_by
        if id(value) in self._given or made is None:
            return True
        if made.kind is Kind.VIEW:
            return False
        if made.kind is Kind.JOIN and self.compiler.parcels_apart and self._only_sent(value):
            return False
        if made.kind not in (Kind.FUSED, Kind.JOIN):
            return True
        if made.name == "slice" and self.compiler.parcels_apart and _received(made.inputs[0]):
            return False
        return self._wanted(value, made) or self._kept(value, made)

    def _wanted(self, value: Value, made: Operation) -> bool:
        """Whether someone needs it as an array."""
        plain = value.constant and made.name in PLAIN
        for use, operand in self._readers(value):
            if use is None:
                return True
            if plain and use.name == "scan":
                continue  # what a loop's result begins as is written there
            if use.kind in (Kind.KERNEL, Kind.LOOP):
                return True
            if use.kind is Kind.JOIN and self.compiler.parcels_apart and self._only_sent(use.outputs[0]):
                return True
            if use.kind is Kind.UPDATE and operand is use.inputs[0]:
                return True
            if use.kind is Kind.REDUCE and self._stored_for_reduction(made):
                return True
        return False

    def _stored_for_reduction(self, made: Operation) -> bool:
        if not self.compiler.stored_before_reduction:
            return False
        return made.name == "select_n" or not all(self._in_place(made, r) for r in self.sources(made))

    def _kept(self, value: Value, made: Operation) -> bool:
        """Whether it is stored because computing it again, for everyone who uses it, costs more."""
        users = [use for use, _ in self._readers(value) if use is not None]
        if value.constant and made.name in PLAIN:
            return False
        if value.constant and self._in_loop and self._varies(value):
            return True
        if len(users) > 1 and (made.name in EXPENSIVE or made.kind is Kind.JOIN or self._gathers(value)):
            return True
        if made.name in ("slice", "dynamic_slice", "transpose"):
            return False  # becomes one with what is read from it
        if made.name == "add" and all(v.made_by is not None and v.made_by.name == "pad" for v in made.inputs):
            return False  # of a sum of padded parts, the parts are stored
        moves = self._moves(value)
        if made.name == "pad":
            sums = [out for use in users if use.name == "add" for out in use.outputs]
            moves = max([moves, *map(self._moves, sums)])
        return moves > 1

    def _varies(self, value: Value) -> bool:
        """Whether a constant, as it is or spread out, is used together with what changes."""
        for use, _ in self._readers(value):
            if use is not None and not use.constant:
                return True
            if use is not None and use.name == "broadcast_in_dim" and self._varies(use.outputs[0]):
                return True
        return False

    def _gathers(self, value: Value) -> bool:
        """Whether entries are looked up where the value is computed."""
        made = value.made_by
        if made is None or id(value) in self._given or made.kind not in (Kind.FUSED, Kind.VIEW):
            return False
        return made.name == "gather" or any(self._gathers(v) for v in made.inputs if not self.stored(v))

    def _readers(self, value: Value) -> Iterable[tuple[Operation | None, Value]]:
        """Who uses the value, also by another name, and by which; None is the outside."""
        if id(value) in self._results:
            yield None, value
        for use in value.uses:
            if use.kind is Kind.VIEW:
                for out in use.outputs:
                    yield from self._readers(out)
            else:
                yield use, value

    def _moves(self, value: Value) -> int:
        """How many read the value at other places than they write."""
        count = 0
        for use, _ in self._readers(value):
            if use is not None and use.name == "transpose":
                count += self._moves(use.outputs[0])
            elif use is not None:
                count += use.name in MOVING
        return count

    def _only_sent(self, value: Value) -> bool:
        return all(use is not None and use.name == "all_to_all" for use, _ in self._readers(value))

    def roots(self, value: Value) -> frozenset[Value]:
        """The arrays in memory that a value is computed from, where it is used."""
        if id(value) not in self._roots:
            made = value.made_by
            found = frozenset([value]) if self.stored(value) or made is None else self.sources(made)
            self._roots[id(value)] = found
        return self._roots[id(value)]

    def sources(self, operation: Operation) -> frozenset[Value]:
        """The arrays in memory that an operation reads, with all that is fused into it."""
        return frozenset[Value]().union(*(self.roots(v) for v in operation.inputs))

    def _in_place(self, operation: Operation, root: Value) -> bool:
        """Whether the operation, with all that is fused into it, reads `root` only where it writes."""
        if operation.name in MOVING or operation.name == "transpose":
            return False
        for value in operation.inputs:
            inner = value.made_by
            if value is root or inner is None or self.stored(value) or root not in self.roots(value):
                continue
            if not self._in_place(inner, root):
                return False
        return True


def _received(value: Value) -> bool:
    made = value.made_by
    if made is None:
        return False
    return made.name == "all_to_all" or (made.kind is Kind.VIEW and _received(made.inputs[0]))
