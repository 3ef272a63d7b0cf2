"""The text of a compiled program: its computations and their instructions."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from peers.collectives import bytes_of_arrays, devices_of

_NAME = re.compile(r"%([\w.\-]+)")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = ")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")


@dataclass(frozen=True)
class Instruction:
    name: str
    opcode: str
    sizes: tuple[int, ...]
    """Bytes of each array of the result."""
    operands: tuple[str, ...]
    inside: str = field(repr=False)
    """The text between the brackets, e.g. the number of a parameter."""
    attributes: str = field(repr=False)
    root: bool
    line: str = field(repr=False)

    @property
    def bytes(self) -> int:
        return sum(self.sizes)

    def called(self, *attributes: str) -> list[str]:
        """The computations that these attributes name."""
        named = re.findall(
            rf"\b(?:{'|'.join(attributes)})=(\{{[^}}]*\}}|%[\w.\-]+)", self.attributes
        )
        return [name for names in named for name in _NAME.findall(names)]


Computation = Mapping[str, Instruction]
"""Instructions by name, in the order in which they run."""


class ParsedProgram(NamedTuple):
    computations: Mapping[str, Computation]
    entry: str
    devices: int


def parsed(compiled: Any) -> ParsedProgram:
    """Parses a compiled program (`jax.jit(f).lower(...).compile()`), or its text."""
    text = compiled if isinstance(compiled, str) else compiled.as_text()
    computations: dict[str, dict[str, Instruction]] = {}
    entry = ""
    current = None
    for line in text.splitlines():
        if current is None:
            if match := _COMPUTATION.match(line):
                current = computations.setdefault(match[2], {})
                entry = match[2] if match[1] else entry
        elif line.startswith("}"):
            current = None
        elif match := _INSTRUCTION.match(line):
            current[match[2]] = _instruction(match, line)
    return ParsedProgram(computations, entry, devices_of(text))


def _instruction(match: re.Match[str], line: str) -> Instruction:
    rest = line[match.end() :]
    end = _closing(rest) if rest.startswith("(") else rest.index(" ")
    kind = rest[:end]
    opcode, _, rest = rest[end:].lstrip().partition("(")
    close = _closing(f"({rest}") - 1
    inside = rest[: close - 1]
    return Instruction(
        match[2],
        opcode,
        tuple(bytes_of_arrays(kind)),
        tuple(_NAME.findall(inside)),
        inside,
        rest[close:],
        bool(match[1]),
        line,
    )


def _closing(text: str) -> int:
    """The index after the bracket that closes the first one."""
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return i + 1
    return len(text)
