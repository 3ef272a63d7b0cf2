"""The memory traffic of a compiled program: the bytes that its scheduled instructions read and
write.

An instruction, or a fusion of several, reads its operands and writes its result once. A fusion
reads only the slice of an operand that it needs, and an update in place counts as the update. A
local Fourier transform is one pass over its input and its output. Loops count as often as they run;
the loop over steps, whose length is unknown, counts once. XLA's own `cost_analysis` counts the body
of every loop once."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from hlo_program import Computation, Instruction, ParsedProgram, parsed
from peers.collectives import KINDS, sent_by

from simulator.spectral.native import BLANK, EVALUATE, STAGE

UNINITIALIZED = (f'"{BLANK}"', '"AllocateBuffer"')
"""Routines that return memory without writing to it."""


@dataclass(frozen=True)
class Traffic:
    """The traffic of one device."""

    bytes: float = 0.0
    """Bytes read and written."""
    sent: float = 0.0
    """Bytes that the device sends to others."""
    kernels: float = 0.0
    """Number of routines that are started."""


_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_ARRAY = re.compile(r"(to_points|sizes) = dense<\[([-\d, ]+)\]>")
_GEOMETRY = re.compile(r"geometry = dense<\[([-\d, ]+)\]>")


class Execution(NamedTuple):
    """An instruction that runs `times` times, in a loop of `turns` turns."""

    one: Instruction
    around: Computation
    turns: int
    times: float


def executed(
    program: ParsedProgram, name: str = "", turns: int = 1, times: float = 1
) -> Iterator[Execution]:
    """The instructions outside of fusions. Of a conditional the branch with the larger arrays is
    taken."""
    around = program.computations[name or program.entry]
    for one in around.values():
        if one.opcode == "while":
            trips = int(match[1]) if (match := _TRIPS.search(one.attributes)) else 1
            for inner in one.called("body", "condition"):
                yield from executed(program, inner, trips, times * trips)
        elif one.opcode == "conditional":
            branches = one.called("branch_computations", "true_computation", "false_computation")
            largest = max(
                branches, key=lambda b: sum(i.bytes for i in program.computations[b].values())
            )
            yield from executed(program, largest, turns, times)
        elif one.opcode in ("call", "async-start") and (inside := one.called("to_apply", "calls")):
            for inner in inside:
                yield from executed(program, inner, turns, times)
        else:
            yield Execution(one, around, turns, times)


_FREE = frozenset(
    (
        *(
            "parameter",
            "constant",
            "tuple",
            "get-tuple-element",
            "bitcast",
            "after-all",
            "opt-barrier",
        ),
        *("partition-id", "replica-id", "iota", "add-dependency", "domain"),
    )
)
"""Instructions that move no data, or almost none."""
_PARTS = ("slice", "dynamic-slice", "gather")


def traffic(compiled: Any) -> Traffic:
    """The traffic of one execution of a compiled program; for the loop over steps that of one step.

    >>> moved = traffic(jax.jit(transform.forward).lower(values).compile())
    >>> moved.bytes, moved.kernels
    """
    program = parsed(compiled)
    moved = sent = kernels = 0.0
    for execution in executed(program):
        one = _traffic(program, execution)
        moved += execution.times * one.bytes
        sent += execution.times * one.sent
        kernels += execution.times * one.kernels
    return Traffic(moved, sent, kernels)


def _traffic(program: ParsedProgram, execution: Execution) -> Traffic:
    one, around, turns, _ = execution
    kind = one.opcode
    attributes = one.attributes
    if (
        kind in _FREE
        or kind.endswith(("-done", "-update"))
        or any(name in attributes for name in UNINITIALIZED)
    ):
        return Traffic()
    given = float(sum(around[name].bytes for name in one.operands if name in around))
    if kind.removesuffix("-start") in KINDS:  # it reads what it sends and writes what it receives
        return Traffic(2 * given, sent_by(one.line, program.devices) or 0.0, 1)
    if kind == "fft":
        return Traffic(given + one.bytes, kernels=1)
    if kind == "custom-call" and f'"{STAGE}"' in attributes:
        return Traffic(_of_stage(one, given, turns), kernels=1)
    if kind == "custom-call" and f'"{EVALUATE}"' in attributes:
        return Traffic(_of_evaluation(one, given), kernels=1)
    return Traffic(moved_by(program, one, around), kernels=1)


def _of_evaluation(one: Instruction, given: float) -> float:
    """Bytes of products at points: messages, and the values of all fields and products, which are
    written and read in the cache."""
    numbers = dict(_ARRAY.findall(one.attributes))
    geometry, sizes = (list(map(int, numbers[n].split(","))) for n in ("to_points", "sizes"))
    points = geometry[2] * geometry[5] * geometry[12]
    value = 8 if "c128" in one.line else 4
    return given + float(sum(one.sizes[:-1])) + 2.0 * value * points * (sizes[0] + sizes[1])


def _of_stage(one: Instruction, given: float, turns: int) -> float:
    """Bytes of a call of the native kernels. In a loop it reads, or fills, another block of the
    same arrays in every turn."""
    match = _GEOMETRY.search(one.attributes)
    begins = int(match[1].split(",")[13]) if match else 0
    made = float(sum(one.sizes[:-1]))
    if begins == 1:
        return given / turns + made
    return (
        given - made + made / turns if begins == 2 else given + made
    )  # 2: the arrays to fill are operands too


def moved_by(program: ParsedProgram, one: Instruction, around: Computation) -> float:
    """Bytes that an instruction moves which is neither a transform nor a collective."""
    operands = [around[name].bytes if name in around else 0 for name in one.operands]
    if one.opcode == "fusion":
        shares, written = _demanded(program.computations[one.called("calls")[0]])
        return sum(shares.get(i, 0.0) * size for i, size in enumerate(operands)) + written
    if one.opcode in _PARTS:
        return 2.0 * one.bytes
    if one.opcode == "dynamic-update-slice":
        return 2.0 * operands[1]
    if one.opcode == "copy-start":
        return 2.0 * operands[0]
    if one.opcode == "broadcast":
        return float(one.bytes)
    return sum(operands) + (0.0 if "output_to_operand_aliasing" in one.attributes else one.bytes)


def _demanded(fused: Computation) -> tuple[dict[int, float], float]:
    """The fraction of each operand that a fusion reads, and the bytes that it writes."""
    whole: dict[str, float] = {}
    parts: dict[str, float] = {}

    def share(name: str) -> float:
        return min(1.0, whole.get(name, 0.0) + parts.get(name, 0.0))

    root = next(one for one in fused.values() if one.root)
    written = 0.0
    in_place = set[str]()
    for output in [fused[name] for name in root.operands] if root.opcode == "tuple" else [root]:
        last = output
        while last.opcode in ("bitcast", "copy") and fused[last.operands[0]].opcode != "parameter":
            last = fused[last.operands[0]]
        if last.opcode == "dynamic-update-slice":
            in_place.add(last.name)
            written += fused[last.operands[1]].bytes
            whole[last.operands[1]] = 1.0
        else:
            written += output.bytes
            whole[output.name] = 1.0
    for one in reversed(list(fused.values())):
        wanted = share(one.name)
        if wanted == 0 or one.name in in_place:
            continue
        for position, name in enumerate(one.operands):
            if name not in fused:
                continue
            if one.opcode in _PARTS and position == 0:
                parts[name] = parts.get(name, 0.0) + wanted * one.bytes / max(fused[name].bytes, 1)
            else:
                all_of_it = one.opcode in ("reduce", "dot", "broadcast")
                whole[name] = max(whole.get(name, 0.0), 1.0 if all_of_it else wanted)
    parameters = {one.name: int(one.inside) for one in fused.values() if one.opcode == "parameter"}
    return {number: share(name) for name, number in parameters.items()}, written
