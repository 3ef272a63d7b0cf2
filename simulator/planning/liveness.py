"""Which arrays of a graph exist in memory, and from when to when.

XLA fuses: an elementwise operation becomes part of the loops of those who use it, and its result exists only where a
routine (a Fourier transform, an exchange), a loop or the outside needs it as an array, or where computing it twice
would cost much. Beyond that two things matter, both found in what XLA reports about compiled steps: loops write their
results into arrays that are there, as zeros, from the beginning of the step (on the CPU); and what is the same in
every step is computed once and kept.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from simulator.planning.graph import Graph, Kind, Operation, Value
from simulator.planning.heap import Span, heap, with_state

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
    """What XLA does on a kind of device that memory depends on."""

    early_zeros: bool
    """The arrays that loops write their results into are made at the beginning of a step, all of them side by side:
    none takes the place of another that is done with."""
    stored_before_reduction: bool
    """A choice between values, or values in another order, are not fused into a maximum or a sum."""
    parcels_apart: bool
    """An exchange takes and gives every parcel as an array of its own."""
    scratch: float = 0.0
    """Memory that a Fourier transform takes for itself, over its input."""


COMPILERS = {
    "cpu": Compiler(early_zeros=True, stored_before_reduction=True, parcels_apart=True),
    "gpu": Compiler(early_zeros=False, stored_before_reduction=False, parcels_apart=False, scratch=1.0),
}


class Lives:
    """The arrays of a loop's body. What the loop only reads belongs to those outside."""

    def __init__(self, loop: Operation, compiler: Compiler):
        assert loop.body is not None
        self.graph: Graph = loop.body
        self.compiler = compiler
        self.over_steps = loop.name == "while"
        """The body is a step."""
        self.in_loop = loop.name in ("scan", "while")
        """What is the same in every turn is computed once, before."""
        consts, carried = loop.parameters.get("consts", 0), loop.parameters.get("carried", 0)
        given, handed = self.graph.inputs[consts : consts + carried], self.graph.outputs[:carried]
        self.carries = list(zip(given, handed, strict=True))
        self.span: dict[int, Span] = {}
        """By the id of a value. Several have one where one is written over the other."""
        self.inside: dict[int, Lives] = {}
        """Of loops, by their number."""
        self._given, self._results = set(map(id, self.graph.inputs)), set(map(id, self.graph.outputs))
        self._stored: dict[int, bool] = {}
        self._roots: dict[int, frozenset[Value]] = {}
        self._constants: dict[tuple[object, float], Value] = {}
        self._made_at: dict[int, int] = {}
        self._last_read: dict[int, int] = {}
        self._find_last_reads()
        self._find_spans()

    # ---- what exists -------------------------------------------------------------------------------------

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
        if value.constant and self.in_loop and self._varies(value):
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

    # ---- from when to when -------------------------------------------------------------------------------

    def _find_last_reads(self) -> None:
        for number, operation in enumerate(self.graph.operations):
            if any(map(self.stored, operation.outputs)):
                at = self._moment(number, operation)
                for value in self.sources(operation):
                    self._last_read[id(value)] = max(at, self._last_read.get(id(value), 0))
            self._made_at.update((id(v), number) for v in operation.outputs)
        for value in self.graph.outputs:
            for root in self.roots(value):
                self._last_read[id(root)] = len(self.graph.operations)

    def _moment(self, number: int, operation: Operation) -> int:
        """When an operation is done: in the order of the trace. Reductions do not wait, nor what is stored for them
        alone: what they read may go afterwards."""
        users = [use for v in operation.outputs for use, _ in self._readers(v)]
        for_them = operation.kind is Kind.FUSED and all(
            u is not None and u.kind is Kind.REDUCE for u in users
        )
        if operation.kind is not Kind.REDUCE and not for_them:
            return number
        known = [self._made_at[id(r)] for r in self.sources(operation) if id(r) in self._made_at]
        return max(known, default=number)

    def _find_spans(self) -> None:
        end = len(self.graph.operations)
        for value, _ in self.carries:
            until = self._last_read.get(id(value), 0)
            self.span[id(value)] = Span(
                value.bytes, 0, until, f"carried {value.shape}", state=self.over_steps
            )
        if self.over_steps:
            self._copy_what_is_read_aside()
        new = self._next = (
            {id(r) for _, v in self.carries for r in self.roots(v)} if self.over_steps else set()
        )
        for number, operation in enumerate(self.graph.operations):
            for i, value in enumerate(operation.outputs):
                if self.stored(value):
                    self._place(self._moment(number, operation), operation, i)
                    if id(value) in new and id(value) in self.span and self.span[id(value)].end == end:
                        self.span[id(value)].state = True
            if operation.body is not None:
                self.inside[number] = Lives(operation, self.compiler)

    def _copy_what_is_read_aside(self) -> None:
        """A part of the state cannot be overwritten by its next value while something reads it that this does not
        depend on: XLA takes a copy at the beginning."""
        for number, (given, result) in enumerate(self.carries):
            ancestors = self._ancestors(result)
            aside = any(
                given in self.sources(o) and o not in ancestors
                for o in self.graph.operations
                if any(map(self.stored, o.outputs))
            )
            if aside and self.roots(result) != frozenset([given]):
                span = self.span[id(given)]
                self.span[-1 - number] = Span(span.bytes, 0, 0, f"overwritten {given.shape}", state=True)
                span.state = False

    def _ancestors(self, value: Value) -> set[Operation]:
        found: set[Operation] = set()
        waiting = [value]
        while waiting:
            made = waiting.pop().made_by
            if made is not None and made not in found:
                found.add(made)
                waiting += made.inputs
        return found

    def _place(self, number: int, operation: Operation, i: int) -> None:
        value, end = operation.outputs[i], len(self.graph.operations)
        until = max(number, self._last_read.get(id(value), number))
        over = self._written_over(number, operation, i)
        if over is None and value.constant:
            first = self._constants.setdefault((value.key, value.bytes), value)
            over = None if first is value else first
        if over is not None:
            if id(over) in self.span:
                span = self.span[id(value)] = self.span[id(over)]
                span.end = max(span.end, until)
            return
        begin = number
        if value.constant and self.in_loop:
            begin, until = 0, end
        elif self.compiler.early_zeros and (operation.constant or _from_zero(operation, i)):
            begin = 0
        apart = operation.name == "all_to_all" and self.compiler.parcels_apart
        pieces = value.shape[0] if apart else 1
        self.span[id(value)] = Span(value.bytes, begin, until, f"{operation.name} {value.shape}", pieces)

    def _written_over(self, number: int, operation: Operation, i: int) -> Value | None:
        """The array that a result is written over."""
        value = operation.outputs[i]
        if operation.kind is Kind.FUSED:
            for root in self.sources(operation):
                done = self._last_read.get(id(root)) == number and root.bytes == value.bytes
                if id(value) in self._next and id(root) not in self._given:
                    continue  # the next state goes where the state was
                if done and id(root) in self.span and self._in_place(operation, root):
                    return root
            return None
        if operation.kind is Kind.UPDATE:
            first = operation.inputs[0]
        elif operation.kind is Kind.LOOP and operation.body is not None and "carried" in operation.parameters:
            consts, carried = operation.parameters["consts"], operation.parameters["carried"]
            if i >= carried or operation.inputs[consts + i].constant:
                return None
            first = operation.inputs[consts + i]
        else:
            return None
        found = [r for r in self.roots(first) if r.bytes == first.bytes]
        if len(found) == 1 and self._last_read.get(id(found[0]), number) <= number:
            return found[0]
        return None

    # ---- all together ------------------------------------------------------------------------------------

    def held(self, i: int) -> bool:
        """Whether the array that is carried as number `i` is there all the time, written in place."""
        given, result = self.carries[i]
        roots = self.roots(result)
        if roots == frozenset([given]):
            return True
        return len(roots) == 1 and self.span.get(id(next(iter(roots)))) is self.span[id(given)]

    def arrays(self) -> tuple[list[Span], int]:
        """All arrays with those of the loops inside, and the number of moments that all of it takes."""
        starts: list[int] = []
        found: list[Span] = []
        handed: dict[int, list[int]] = {}
        now = 0
        for number, operation in enumerate(self.graph.operations):
            starts.append(now)
            if number in self.inside:
                body = self.inside[number]
                inner, length = body.arrays()
                found += [Span(s.bytes, now + s.begin, now + s.end, s.what) for s in inner]
                for i in range(len(body.carries)):
                    if not body.held(i) and id(operation.outputs[i]) in self.span:
                        handed.setdefault(id(self.span[id(operation.outputs[i])]), []).append(number)
                now += length
            now += 1
        starts += [now, now + 1]
        outside = (
            set()
            if self.over_steps
            else {id(self.span[id(given)]) for i, (given, _) in enumerate(self.carries) if self.held(i)}
        )
        for span in {id(s): s for s in self.span.values()}.values():
            if id(span) in outside:
                continue
            begin = span.begin
            for number in handed.get(id(span), []):  # it is the body's own meanwhile
                if begin < number:
                    found.append(
                        Span(span.bytes, starts[begin], starts[number] - 1, span.what, state=span.state)
                    )
                begin = number + 1
            if begin <= span.end:
                life = starts[begin], starts[span.end + 1] - 1
                found += [Span(span.bytes / span.pieces, *life, span.what, state=span.state)] * span.pieces
        return found, now + 1


def _received(value: Value) -> bool:
    made = value.made_by
    if made is None:
        return False
    return made.name == "all_to_all" or (made.kind is Kind.VIEW and _received(made.inputs[0]))


def _from_zero(operation: Operation, i: int) -> bool:
    """Whether a loop's result begins as a constant."""
    if operation.name != "scan":
        return False
    consts, carried = operation.parameters["consts"], operation.parameters["carried"]
    return i >= carried or operation.inputs[consts + i].constant


def bytes_held(loop: Operation, compiler: Compiler) -> float:
    """Bytes that a loop, or any operation with a body, holds at the worst moment. Of a loop over steps, with the
    state; of others without what they are given."""
    lives = Lives(loop, compiler)
    spans, _ = lives.arrays()
    return with_state(spans) if lives.over_steps else heap(spans)
