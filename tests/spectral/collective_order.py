"""Where the collectives of a compiled program stand, read from its HLO text.

`simulator.spectral.collectives` says the rule."""

import re
from functools import cached_property

from hlo_program import Computation, Instruction, parsed

from simulator.spectral.collectives import KINDS, group_size

_CALLING = ("body", "condition", "to_apply", "calls", "true_computation", "false_computation", "branch_computations")
_ELSEWHERE = {"partition-id", "replica-id", "collective-permute", "all-to-all", "reduce-scatter", "rng"}


class Compiled:
    """The computations of a compiled program."""

    def __init__(self, text: str):
        self.computations, self.entry, self.devices = parsed(text)

    @cached_property
    def communicating(self) -> set[str]:
        """The names of computations with collectives, their own or in those that they call."""
        found: set[str] = set()
        for name, computation in self.computations.items():  # callees come before their callers
            if any(self.is_collective(i) or found.intersection(_called(i)) for i in computation.values()):
                found.add(name)
        return found

    def is_collective(self, i: Instruction) -> bool:
        return _kind(i) in KINDS and not i.opcode.endswith("-done") and self._group(i) > 1

    def _group(self, i: Instruction) -> int:
        """The number of devices that communicate."""
        return self.devices if _kind(i) == "collective-permute" else group_size(i.line, self.devices)

    def violations(self) -> list[str]:
        """What breaks the rule, a line each."""
        if self.devices == 1 or self.entry not in self.communicating:
            return []
        every = [i for name in sorted(self.communicating) for i in self.computations[name].values()]
        guarded = (i for i in every if i.opcode == "conditional" and self.communicating.intersection(_called(i)))
        return [f"a collective inside the conditional {_described(i)}" for i in guarded] + self._uneven_loops()

    def _uneven_loops(self) -> list[str]:
        """Loops that hold a collective, and whose condition depends on data of one device. Data are the same on all
        devices if they are replicated arguments, results of a reduction or gathering over all devices, or computed
        from such data alone."""
        entry = self.computations[self.entry]
        self._uneven: list[str] = []
        self._same(entry, ["sharding={replicated}" in i.line for i in _parameters(entry)])
        return self._uneven

    def _same(self, computation: Computation, given: list) -> object:
        """Whether the result is the same on all devices: a truth value, or for tuples a list of them. `given`:
        of the parameters."""
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
        if _kind(i) in ("all-reduce", "all-gather") and self._group(i) == self.devices:
            return True
        return i.opcode not in _ELSEWHERE and all(_all(o) for o in operands)

    def _loop(self, i: Instruction, carry: object) -> object:
        body, condition = i.called("body")[0], i.called("condition")[0]
        reported = len(self._uneven)
        while True:
            del self._uneven[reported:]
            after = _both([carry, self._same(self.computations[body], [carry])])
            if after == carry:
                break
            carry = after
        shared = self.communicating.intersection((body, condition))
        if shared and not _all(self._same(self.computations[condition], [carry])):
            self._uneven.append(f"a loop with collectives goes on by one device's data: {_described(i)}")
        return carry


def _kind(i: Instruction) -> str:
    return i.opcode.removesuffix("-start").removesuffix("-done")


def _called(i: Instruction) -> list[str]:
    return i.called(*_CALLING)


def _described(i: Instruction) -> str:
    origin = re.search(r'op_name="([^"]*)"', i.line)
    return f"{i.name} ({origin[1] if origin else 'no origin'})"


def _parameters(computation: Computation) -> list[Instruction]:
    return sorted((i for i in computation.values() if i.opcode == "parameter"), key=lambda i: int(i.inside))


def _all(same: object) -> bool:
    return all(map(_all, same)) if isinstance(same, list) else bool(same)


def _both(values: list) -> object:
    """The truth of all, element by element of tuples."""
    if all(isinstance(v, list) for v in values):
        return [_both(list(each)) for each in zip(*values, strict=True)]
    return all(map(_all, values))
