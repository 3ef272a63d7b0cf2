"""Where the collectives of a compiled program stand, read from its HLO text.

`simulator.spectral.collectives` says the rule."""

import re
from dataclasses import dataclass, field
from functools import cached_property

from simulator.spectral.collectives import KINDS, devices_of, group_size

_COMPUTATION = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) \(.*\) -> .* \{$")
_INSTRUCTION = re.compile(
    r"^\s*(?P<root>ROOT )?%?(?P<name>[\w.\-]+) = (?P<type>\(.*?\)|\S+) (?P<op>[\w\-]+)\((?P<rest>.*)$"
)
_COMMENT = re.compile(r"/\*.*?\*/")
_CALLED = re.compile(r"(?:body|condition|to_apply|calls|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_ELSEWHERE = {"partition-id", "replica-id", "collective-permute", "all-to-all", "reduce-scatter", "rng"}


@dataclass
class Instruction:
    name: str
    type: str
    op: str
    operands: list[str]
    text: str
    called: list[str] = field(default_factory=list)

    def attribute(self, key: str) -> str:
        found = re.search(rf"\b{key}=%?([\w.\-]+)", self.text)
        assert found, (key, self.text)
        return found[1]

    @property
    def kind(self) -> str:
        return self.op.removesuffix("-start").removesuffix("-done")

    def group(self, devices: int) -> int:
        """The number of devices that communicate."""
        return devices if self.kind == "collective-permute" else group_size(self.text, devices)

    def __str__(self) -> str:
        origin = re.search(r'op_name="([^"]*)"', self.text)
        return f"{self.name} {self.type} ({origin[1] if origin else 'no origin'})"


@dataclass
class Computation:
    name: str
    instructions: dict[str, Instruction] = field(default_factory=dict)
    root: str = ""


class Compiled:
    """The computations of a compiled program."""

    def __init__(self, text: str):
        self.computations: dict[str, Computation] = {}
        self.entry = ""
        now: Computation | None = None
        for line in _COMMENT.sub("", text).splitlines():
            if found := _COMPUTATION.match(line):
                now = self.computations[found["name"]] = Computation(found["name"])
                self.entry = found["name"] if found["entry"] else self.entry
            elif now is not None and (found := _INSTRUCTION.match(line)):
                instruction = _parsed(found)
                now.instructions[instruction.name] = instruction
                now.root = instruction.name if found["root"] else now.root
        self.devices = devices_of(text)

    @cached_property
    def communicating(self) -> set[str]:
        """The names of computations with collectives, their own or in those that they call."""
        found: set[str] = set()
        for name, computation in self.computations.items():  # callees come before their callers
            every = computation.instructions.values()
            if any(self.is_collective(i) or found.intersection(i.called) for i in every):
                found.add(name)
        return found

    def is_collective(self, i: Instruction) -> bool:
        return i.kind in KINDS and not i.op.endswith("-done") and i.group(self.devices) > 1

    def violations(self) -> list[str]:
        """What breaks the rule, a line each."""
        if self.devices == 1 or self.entry not in self.communicating:
            return []
        every = [i for name in sorted(self.communicating) for i in self.computations[name].instructions.values()]
        guarded = (i for i in every if i.op == "conditional" and self.communicating.intersection(i.called))
        return [f"a collective inside the conditional {i}" for i in guarded] + self._uneven_loops()

    # ---- loops -------------------------------------------------------------------------------------------

    def _uneven_loops(self) -> list[str]:
        """Loops that hold a collective, and whose condition depends on data of one device. Data are the same on all
        devices if they are replicated arguments, results of a reduction or gathering over all devices, or computed
        from such data alone."""
        entry = self.computations[self.entry]
        given = [_replicated(i) for i in _parameters(entry)]
        self._uneven: list[str] = []
        self._same(entry, given)
        return self._uneven

    def _same(self, computation: Computation, given: list) -> object:
        """Whether the result is the same on all devices: a truth value, or for tuples a list of them. `given`:
        of the parameters."""
        names = [parameter.name for parameter in _parameters(computation)]
        same: dict[str, object] = dict(zip(names, given, strict=False))
        for i in computation.instructions.values():
            if i.name not in same:
                same[i.name] = self._result(i, [same[o] for o in i.operands if o in same])
        return same[computation.root]

    def _result(self, i: Instruction, operands: list) -> object:
        if i.op == "tuple":
            return operands
        if i.op == "get-tuple-element":
            (whole,) = operands
            return whole[int(i.attribute("index"))] if isinstance(whole, list) else whole
        if i.op == "while":
            return self._loop(i, operands[0])
        if i.op == "conditional":
            pairs = zip(i.called, operands[1:], strict=True)
            branches = [self._same(self.computations[c], [o]) for c, o in pairs]
            return _both(branches) if _all(operands[0]) else False
        if i.op in ("call", "fusion", "async-start"):
            return self._same(self.computations[i.called[0]], operands)
        if i.kind in ("all-reduce", "all-gather") and i.group(self.devices) == self.devices:
            return True
        return i.op not in _ELSEWHERE and all(_all(o) for o in operands)

    def _loop(self, i: Instruction, carry: object) -> object:
        body, condition = (self.computations[i.attribute(key)] for key in ("body", "condition"))
        reported = len(self._uneven)
        while True:
            del self._uneven[reported:]
            after = _both([carry, self._same(body, [carry])])
            if after == carry:
                break
            carry = after
        shared = self.communicating.intersection((body.name, condition.name))
        if shared and not _all(self._same(condition, [carry])):
            self._uneven.append(f"a loop with collectives goes on by one device's data: {i}")
        return carry


def _parsed(found: re.Match[str]) -> Instruction:
    rest, depth, end = found["rest"], 1, 0
    for end, c in enumerate(rest):  # noqa: B007
        depth += (c in "({[") - (c in ")}]")
        if depth == 0:
            break
    inside, after = rest[:end], rest[end:]
    called = _CALLED.findall(after) + [
        name.strip().lstrip("%") for names in _BRANCHES.findall(after) for name in names.split(",")
    ]
    operands = re.findall(r"%([\w.\-]+)", inside)
    return Instruction(found["name"], found["type"], found["op"], operands, found[0], called)


def _parameters(computation: Computation) -> list[Instruction]:
    found = [i for i in computation.instructions.values() if i.op == "parameter"]
    return sorted(found, key=lambda i: int(re.search(r"parameter\((\d+)\)", i.text)[1]))  # type: ignore[index]


def _replicated(parameter: Instruction) -> object:
    found = re.search(r"sharding=(\{.*?\})(?:, |$)", parameter.text)
    return found is not None and found[1] == "{replicated}"


def _all(same: object) -> bool:
    return all(map(_all, same)) if isinstance(same, list) else bool(same)


def _both(values: list) -> object:
    """The truth of all, element by element of tuples."""
    if all(isinstance(v, list) for v in values):
        return [_both(list(each)) for each in zip(*values, strict=True)]
    return all(map(_all, values))
