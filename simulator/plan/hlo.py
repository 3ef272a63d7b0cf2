"""Parses the text of a compiled program (`compiled.as_text()`) into computations and instructions."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any


@dataclass(frozen=True)
class Array:
    """One array of an instruction's result."""

    kind: str
    """HLO's name of the type, e.g. `c128`."""
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * _WIDTH.get(self.kind, 1)


_WIDTH = {"pred": 1, "token": 0, "opaque": 0, "s4": 1, "u4": 1, "bf16": 2, "c64": 8, "c128": 16}
_WIDTH |= {f"{letter}{bits}": bits // 8 for letter in "suf" for bits in (8, 16, 32, 64)}
_ARRAY = re.compile(r"([a-z]+\d*\w*)\[([\d,]*)\]")
_NAME = re.compile(r"%([\w.\-]+)")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = ")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
_CALLED = re.compile(
    r"(calls|to_apply|body|condition|branch_computations|true_computation|false_computation)="
)


@dataclass(frozen=True)
class Instruction:
    name: str
    opcode: str
    results: tuple[Array, ...]
    operands: tuple[str, ...]
    attributes: str = field(repr=False)
    """The text after the operands."""
    root: bool
    inside: str = field(default="", repr=False)
    """The text in the operands' place, e.g. the number of a parameter."""

    @property
    def bytes(self) -> int:
        """Size of the result in bytes."""
        return sum(a.bytes for a in self.results)

    @cached_property
    def called(self) -> Mapping[str, tuple[str, ...]]:
        """Names of called computations, by the attribute that names them."""
        computations = {}
        for match in _CALLED.finditer(self.attributes):
            rest = self.attributes[match.end() :]
            end = rest.index("}") if rest.startswith("{") else len(rest.split(",", 1)[0].split(" ", 1)[0])
            computations[match[1]] = tuple(_NAME.findall(rest[: end + 1]))
        return computations

    def number(self, pattern: str) -> int | None:
        """The first group of a pattern in the attributes, as a number."""
        match = re.search(pattern, self.attributes)
        return int(match[1]) if match else None


Computation = Mapping[str, Instruction]
"""Instructions by name, in the order in which they run."""


@dataclass(frozen=True)
class Program:
    computations: Mapping[str, Computation]
    entry: str
    devices: int


def parsed(compiled: Any) -> Program:
    """Parses a compiled program (`jax.jit(f).lower(...).compile()`), or its text."""
    text = compiled if isinstance(compiled, str) else compiled.as_text()
    computations: dict[str, dict[str, Instruction]] = {}
    entry, current = "", None
    for line in text.splitlines():
        if current is None:
            if match := _COMPUTATION.match(line):
                current = computations.setdefault(match[2], {})
                entry = match[2] if match[1] else entry
        elif line.startswith("}"):
            current = None
        elif match := _INSTRUCTION.match(line):
            instruction = _instruction(match, line[match.end() :])
            current[instruction.name] = instruction
    header = text.partition("\n")[0]
    sizes = re.findall(r"(?:num_partitions|replica_count)=(\d+)", header)
    return Program(computations, entry, prod(map(int, sizes)))


def _instruction(match: re.Match[str], rest: str) -> Instruction:
    end = _closing(rest, 0) if rest.startswith("(") else rest.index(" ")
    kind, rest = rest[:end], rest[end:].lstrip()
    opcode, _, rest = rest.partition("(")
    close = _closing(f"({rest}", 0) - 1
    inside, attributes = rest[: close - 1], rest[close:]
    results = tuple(
        Array(name, tuple(int(n) for n in shape.split(",") if n)) for name, shape in _ARRAY.findall(kind)
    )
    return Instruction(
        match[2], opcode, results, tuple(_NAME.findall(inside)), attributes, bool(match[1]), inside
    )


def _closing(text: str, start: int) -> int:
    """The index after the bracket that closes the one at `start`."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i + 1
    return len(text)
