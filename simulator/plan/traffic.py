"""The memory traffic of a compiled program: the bytes that its scheduled instructions read and write.

An instruction at the top of a computation, or a fusion of several, reads its operands and writes its result once. A
fusion reads only the data it needs: of an operand that is sliced the slice, and of one that is updated in place only
the update. A local Fourier transform is one pass over its input and its output. Loops count as often as they run; a
loop with an unknown number of iterations counts once, as does the loop over steps. The same holds for programs of
processors, with their native kernels, and of GPUs.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import log2, prod
from typing import Any

from simulator.plan.hlo import Computation, Instruction, Program, parsed
from simulator.spectral.collectives import KINDS, collectives
from simulator.spectral.native.library import BLANK, STAGE

ALLOCATE = "AllocateBuffer"
"""XLA's routine that returns uninitialized memory."""
CACHED = 16 << 20
"""Arrays up to this size that a loop visits repeatedly are counted as those of a block."""


@dataclass(frozen=True)
class Traffic:
    """The traffic of one device. The first three attributes are bytes read and written:"""

    transforms: float = 0.0
    """By local Fourier transforms, each with one pass over input and output."""
    blocks: float = 0.0
    """By everything else in loops over blocks of physical space."""
    fields: float = 0.0
    """By everything else: whole arrays."""
    flops: float = 0.0
    """Operations of the Fourier transforms, 5 N log2 N for a complex one of N points, half of it for a real one."""
    sent: float = 0.0
    """Bytes that the device sends to others."""
    exchanges: float = 0.0
    """Number of collectives that move arrays."""
    kernels: float = 0.0
    """Number of routines and loops that are started."""
    copied: float = 0.0
    """The part of these bytes that is only copied or transposed."""
    copies: float = 0.0
    """Number of instructions that only copy or transpose more than `LARGE` bytes."""
    passes: float = 0.0
    """Bytes of `transforms` if a transform of several axes takes one pass per axis, as in a GPU's library."""

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def times(self, count: float) -> "Traffic":
        return Traffic(*(getattr(self, f.name) * count for f in fields(self)))

    def scaled(self, share: float) -> "Traffic":
        """The traffic of arrays scaled by `share`, moved by the same number of instructions."""
        counts = {f: getattr(self, f) for f in ("exchanges", "kernels", "copies")}
        return replace(self.times(share), **counts)

    @property
    def bytes(self) -> float:
        """All bytes read and written."""
        return self.transforms + self.blocks + self.fields


LARGE = 1 << 20
"""Size of an array in bytes above which a copy is reported."""
_FREE = frozenset(
    (
        *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "opt-barrier"),
        *("partition-id", "replica-id", "iota", "add-dependency", "domain"),
    )
)
"""Instructions that move no data, or almost none."""
_MOVING = frozenset(
    ("copy", "transpose", "bitcast", "reshape", "parameter", "slice", "tuple", "get-tuple-element")
)
_PARTS = frozenset(("slice", "dynamic-slice", "gather"))
_TRIPS = r'"known_trip_count":\{"n":"(\d+)"'
_GEOMETRY = re.compile(r"geometry = dense<\[([-\d, ]+)\]>")


def traffic(compiled: Any) -> Traffic:
    """The traffic of one execution of a compiled program; for the loop over steps that of one step.

    >>> found = traffic(jax.jit(transform.forward).lower(values).compile())
    >>> found.bytes, found.kernels
    """
    program = parsed(compiled)
    return _Counter(program).computation(program.entry, 1, None)


class _Counter:
    def __init__(self, program: Program):
        self._program = program
        self._of = lru_cache(maxsize=None)(self._demanded)

    def computation(self, name: str, turns: int, carried: "Mapping[str, float] | None") -> Traffic:
        """The traffic of one execution of a computation; `turns` is the iteration count of the innermost loop
        around it."""
        total, found = Traffic(), self._program.computations[name]
        for instruction in found.values():
            total += self._instruction(instruction, found, turns)
        return total

    def _instruction(self, one: Instruction, around: Computation, turns: int) -> Traffic:
        kind = one.opcode
        if kind in _FREE or kind.endswith(("-done", "-update")):
            return Traffic()
        if kind == "while":
            count = one.number(_TRIPS) or 1
            inner = self.computation(one.called["body"][0], count, None)
            return (inner + self.computation(one.called["condition"][0], count, None)).times(count)
        if kind == "conditional":
            branches = [self.computation(n, turns, None) for names in one.called.values() for n in names]
            return max(branches, key=lambda branch: branch.bytes, default=Traffic())
        if kind == "call" or (kind == "async-start" and "calls" in one.called):
            names = one.called.get("to_apply") or one.called["calls"]
            return sum((self.computation(n, turns, None) for n in names), Traffic())
        if kind.removesuffix("-start") in KINDS:
            return self._collective(one, around)
        if kind == "fft":
            moved = one.bytes + self._operands(one, around)
            axes = max(len(_lengths(one)), 1)
            return Traffic(transforms=moved, flops=_flops(one, around), kernels=1, passes=axes * moved)
        if kind == "custom-call" and f'"{STAGE}"' in one.attributes:
            return self._stage(one, around, turns)
        if kind == "custom-call" and any(f'"{name}"' in one.attributes for name in (BLANK, ALLOCATE)):
            return Traffic()
        moved = self._moved(one, around)
        copied = moved if self._only_moves(one) else 0.0
        spent = Traffic(kernels=1, copied=copied, copies=float(copied > 2 * LARGE))
        inside = turns > 1 and max(_sizes(one, around), default=0) <= CACHED
        return spent + (Traffic(blocks=moved) if inside else Traffic(fields=moved))

    # ---- one instruction ---------------------------------------------------------------------------------

    def _operands(self, one: Instruction, around: Computation) -> float:
        return float(sum(around[name].bytes for name in one.operands if name in around))

    def _moved(self, one: Instruction, around: Computation) -> float:
        """Bytes moved by an instruction that is neither a transform nor a collective."""
        if one.opcode == "fusion":
            read, written = self._of(one.called["calls"][0])
            given = [around[name].bytes if name in around else 0 for name in one.operands]
            return sum(read.get(i, 0.0) * size for i, size in enumerate(given)) + written
        if one.opcode in _PARTS:
            return 2.0 * one.bytes
        if one.opcode == "dynamic-update-slice":
            return 2.0 * around[one.operands[1]].bytes
        if one.opcode in ("copy-start", "broadcast"):
            return 2.0 * around[one.operands[0]].bytes if one.opcode == "copy-start" else float(one.bytes)
        aliased = "output_to_operand_aliasing" in one.attributes
        return (0.0 if aliased else one.bytes) + self._operands(one, around)

    def _collective(self, one: Instruction, around: Computation) -> Traffic:
        """A collective reads what it sends and writes what it receives."""
        operands = self._operands(one, around)
        header = f"HloModule m, num_partitions={self._program.devices}\n"
        kind = one.opcode
        text = " ".join(f"{a.kind}[{','.join(map(str, a.shape))}]" for a in one.results)
        line = f" %x = ({text.replace(' ', ', ')}) {kind}({one.inside}){one.attributes}"
        sent = sum(found.bytes for found in collectives(header + line).values())
        large = operands > LARGE or kind.startswith("all-to-all")
        return Traffic(fields=2 * operands, sent=sent, exchanges=float(large), kernels=1)

    def _stage(self, one: Instruction, around: Computation, turns: int) -> Traffic:
        """A call of the native kernels. In a loop it reads, or fills, another block of the same arrays in every
        turn."""
        geometry = _geometry(one)
        loop = max(turns, 1)
        begins = geometry[13]
        given = self._operands(one, around)
        made = float(sum(a.bytes for a in one.results[:-1]))
        if begins == 1:
            given /= loop
        elif begins == 2:  # the arrays to fill are operands too
            given, made = given - made, made / loop
        moved = given + made
        return Traffic(transforms=moved, flops=_native_flops(one, geometry), kernels=1, passes=moved)

    def _only_moves(self, one: Instruction) -> bool:
        """Whether an instruction computes nothing: a copy or a transposition."""
        if one.opcode != "fusion":
            return one.opcode in ("copy", "transpose", "copy-start")
        inner = self._program.computations[one.called["calls"][0]].values()
        return {i.opcode for i in inner} <= _MOVING

    # ---- fusions -----------------------------------------------------------------------------------------

    def _demanded(self, name: str) -> tuple[dict[int, float], float]:
        """The fraction of each operand that a fused computation reads, and the bytes that it writes."""
        found = self._program.computations[name]
        whole: dict[str, float] = {}
        parts: dict[str, float] = {}

        def ask(operand: str, share: float, *, part: bool = False) -> None:
            if part:
                parts[operand] = parts.get(operand, 0.0) + share
            else:
                whole[operand] = max(whole.get(operand, 0.0), share)

        order = list(found.values())
        root = next(i for i in order if i.root)
        written = 0.0
        outputs = [found[n] for n in root.operands] if root.opcode == "tuple" else [root]
        in_place: set[str] = set()
        for output in outputs:
            last = output
            while last.opcode in ("bitcast", "copy") and found[last.operands[0]].opcode != "parameter":
                last = found[last.operands[0]]
            if last.opcode == "dynamic-update-slice":
                written += found[last.operands[1]].bytes
                in_place.add(last.name)
                ask(last.name, 0.0)
                ask(last.operands[1], 1.0)
            else:
                written += output.bytes
                ask(output.name, 1.0)
        for one in reversed(order):
            share = min(1.0, whole.get(one.name, 0.0) + parts.get(one.name, 0.0))
            if share == 0 or one.name in in_place:
                continue
            for position, operand in enumerate(one.operands):
                other = found.get(operand)
                if other is None:
                    continue
                if one.opcode in _PARTS and position == 0:
                    ask(operand, share * one.bytes / max(other.bytes, 1), part=True)
                elif one.opcode in ("reduce", "dot", "broadcast"):
                    ask(operand, 1.0)
                else:
                    ask(operand, share)
        numbers = {i.name: int(i.inside) for i in order if i.opcode == "parameter"}
        read = {number: min(1.0, whole.get(n, 0.0) + parts.get(n, 0.0)) for n, number in numbers.items()}
        return read, written


def _sizes(one: Instruction, around: Computation) -> list[int]:
    return [a.bytes for a in one.results]


def _flops(one: Instruction, around: Computation) -> float:
    """Operations of an `fft` instruction, axis by axis."""
    lengths = _lengths(one)
    kind = _attribute(one, "fft_type")
    real = kind in ("RFFT", "IRFFT")
    large = one.results[0].shape if kind != "RFFT" else around[one.operands[0]].results[0].shape
    points = prod(large)
    total = sum(5.0 * points * log2(max(n, 2)) for n in lengths[:-1]) * (0.5 if real else 1.0)
    return total + 5.0 * points * log2(max(lengths[-1], 2)) * (0.5 if real else 1.0)


def _lengths(one: Instruction) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", _attribute(one, "fft_length"))]


def _attribute(one: Instruction, name: str) -> str:
    match = re.search(rf"{name}=(\{{[^}}]*\}}|\w+)", one.attributes)
    return match[1] if match else ""


def _geometry(one: Instruction) -> list[int]:
    match = _GEOMETRY.search(one.attributes)
    return [int(n) for n in match[1].split(",")] if match else [0] * 32


def _native_flops(one: Instruction, geometry: list[int]) -> float:
    """Operations of a native stage, whose numbers are those of `Form.geometry`."""
    axes, first, second = geometry[0], geometry[1:4], geometry[4:7]
    to_points, real, planes = geometry[7], bool(geometry[9]), geometry[12]
    results = one.results[0].shape
    messages = geometry[23] >= 0 and geometry[24] >= 0
    components = results[1] if messages else results[0]
    total = 0.0
    # The axis that is transformed second works on the first one's modes (forward) or points (backward).
    others = [second[2] if to_points else second[1], first[1] if to_points else first[2]]
    for line, other in list(zip((first, second), others, strict=True))[:axes]:
        half = 0.5 if real and line[0] == 2 else 1.0
        total += half * 5.0 * line[1] * log2(max(line[1], 2)) * other * planes * components
    return total
