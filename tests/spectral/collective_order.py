"""Where the collectives of a compiled program stand, read from its HLO text.

`simulator.spectral.collectives` says the rule."""

import re
from dataclasses import dataclass
from functools import cached_property

from hlo_program import Computation, Instruction, parsed
from peers.collectives import KINDS, group_size

_CALLING = (
    "body",
    "condition",
    "to_apply",
    "calls",
    "true_computation",
    "false_computation",
    "branch_computations",
)
_ELSEWHERE = {
    "partition-id",
    "replica-id",
    "collective-permute",
    "all-to-all",
    "reduce-scatter",
    "rng",
}


@dataclass(frozen=True)
class _Along:
    """A value that is the same on the `size` devices of each of the `groups`, and not on all
    devices."""

    groups: str
    size: int

    def __bool__(self) -> bool:
        return False


class Compiled:
    """The computations of a compiled program."""

    def __init__(self, text: str):
        self.computations, self.entry, self.devices = parsed(text)

    @cached_property
    def communicating(self) -> set[str]:
        """The names of computations with collectives, their own or in those that they call."""
        found: set[str] = set()
        for name, computation in self.computations.items():  # callees come before their callers
            if any(
                self.is_collective(i) or found.intersection(_called(i))
                for i in computation.values()
            ):
                found.add(name)
        return found

    def is_collective(self, i: Instruction) -> bool:
        return _kind(i) in KINDS and not i.opcode.endswith("-done") and self._group(i) > 1

    def _group(self, i: Instruction) -> int:
        """The number of devices that communicate."""
        return (
            self.devices if _kind(i) == "collective-permute" else group_size(i.line, self.devices)
        )

    def violations(self) -> list[str]:
        """What breaks the rule, a line each."""
        if self.devices == 1 or self.entry not in self.communicating:
            return []
        every = [i for name in sorted(self.communicating) for i in self.computations[name].values()]
        guarded = (
            i
            for i in every
            if i.opcode == "conditional" and self.communicating.intersection(_called(i))
        )
        found = [
            f"a collective inside the conditional {_described(i)}" for i in guarded
        ] + self._uneven_loops()
        return found + [
            line for name in sorted(self.communicating) for line in self._unordered(name)
        ]

    def _unordered(self, name: str) -> list[str]:
        """Loops of a computation that hold a collective, beside another collective that no data
        orders."""
        computation = self.computations[name]
        before: dict[str, set[str]] = {}  # what each instruction depends on
        for i in computation.values():
            before[i.name] = {i.name}.union(*(before.get(o, {o}) for o in i.operands))
        talking = [
            i
            for i in computation.values()
            if self.is_collective(i) or self.communicating & set(_called(i))
        ]
        return [
            f"a loop with collectives beside an independent {other.opcode}: {_described(i)} and {_described(other)}"
            for i in talking
            if i.opcode == "while"
            for other in talking
            if other is not i
            and i.name not in before[other.name]
            and other.name not in before[i.name]
        ]

    def _uneven_loops(self) -> list[str]:
        """Loops that hold a collective, and whose condition depends on data of one device. Data are
        the same on all devices if they are replicated arguments, results of a reduction or
        gathering over all devices, or computed from such data alone."""
        entry = self.computations[self.entry]
        self._uneven: list[str] = []
        self._same(entry, ["sharding={replicated}" in i.line for i in _parameters(entry)])
        return self._uneven

    def _same(self, computation: Computation, given: list) -> object:
        """Whether the result is the same on all devices: a truth value, or for tuples a list of
        them. `given`: of the parameters."""
        names = [parameter.name for parameter in _parameters(computation)]
        same: dict[str, object] = dict(zip(names, given, strict=False))
        for i in computation.values():
            if i.name not in same:
                same[i.name] = self._result(i, [same[o] for o in i.operands if o in same])
        return same[next(i.name for i in computation.values() if i.root)]

    def _result(self, i: Instruction, operands: list) -> object:
        if i.opcode == "tuple":
            return operands
        if i.opcode == "get-tuple-element":
            (whole,) = operands
            index = int(i.attributes.partition("index=")[2].partition(",")[0])
            return whole[index] if isinstance(whole, list) else whole
        if i.opcode == "while":
            return self._loop(i, operands[0])
        if i.opcode == "conditional":
            pairs = zip(_called(i), operands[1:], strict=True)
            branches = [self._same(self.computations[c], [o]) for c, o in pairs]
            return _both(branches) if _all(operands[0]) else False
        if i.opcode in ("call", "fusion", "async-start"):
            return self._same(self.computations[_called(i)[0]], operands)
        if _kind(i) in ("all-reduce", "all-gather"):
            # On a mesh of two axes XLA reduces along one and then along the other.
            found = re.search(r"replica_groups=(.*?), [a-z_]+=", i.line)
            groups = found[1] if found else ""
            size = self._group(i)
            before = [o for o in operands if isinstance(o, _Along) and o.groups != groups]
            along = (
                size * min((o.size for o in before), default=1)
                if len(before) == len(operands)
                else size
            )
            return along >= self.devices or _Along(groups, size)
        return i.opcode not in _ELSEWHERE and all(_all(o) for o in operands)

    def _loop(self, i: Instruction, carry: object) -> object:
        body = i.called("body")[0]
        condition = i.called("condition")[0]
        reported = len(self._uneven)
        while True:
            del self._uneven[reported:]
            after = _both([carry, self._same(self.computations[body], [carry])])
            if after == carry:
                break
            carry = after
        shared = self.communicating.intersection((body, condition))
        if shared and not _all(self._same(self.computations[condition], [carry])):
            self._uneven.append(
                f"a loop with collectives goes on by one device's data: {_described(i)}"
            )
        return carry


def _kind(i: Instruction) -> str:
    return i.opcode.removesuffix("-start").removesuffix("-done")


def _called(i: Instruction) -> list[str]:
    return i.called(*_CALLING)


def _described(i: Instruction) -> str:
    origin = re.search(r'op_name="([^"]*)"', i.line)
    return f"{i.name} ({origin[1] if origin else 'no origin'})"


def _parameters(computation: Computation) -> list[Instruction]:
    return sorted(
        (i for i in computation.values() if i.opcode == "parameter"), key=lambda i: int(i.inside)
    )


def _all(same: object) -> bool:
    return all(map(_all, same)) if isinstance(same, list) else bool(same)


def _both(values: list) -> object:
    """The truth of all, element by element of tuples."""
    if all(isinstance(v, list) for v in values):
        return [_both(list(each)) for each in zip(*values, strict=True)]
    return all(map(_all, values))
