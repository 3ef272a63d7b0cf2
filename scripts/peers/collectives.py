"""Reads the collective operations of a compiled program from its HLO text, for benchmarks and tests.

>>> by_kind = collectives(jax.jit(transform.forward).lower(values).compile())
>>> by_kind["all-to-all"].count, by_kind["all-to-all"].bytes
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KINDS: tuple[str, ...] = (
    "all-to-all",
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "collective-permute",
    "collective-broadcast",
    "ragged-all-to-all",
)


@dataclass(frozen=True)
class Collective:
    """All instructions of one kind: their number, and the bytes that one device sends in them.

    Instructions in a loop's body count once."""

    count: int = 0
    bytes: int = 0


NONE = Collective()

_INSTRUCTION = re.compile(
    rf"=\s*(?P<result>\(.*?\)|\S+)\s+(?P<kind>{'|'.join(sorted(KINDS, key=len, reverse=True))})(?P<start>-start)?\("
)
_ARRAY = re.compile(r"\b(?P<type>pred|token|[a-z]+\d+\w*)\[(?P<dims>[\d,]*)\]")
_GROUPS = {
    "listed": re.compile(r"replica_groups=\{\{(?P<first>[\d,]*)\}"),
    "iota": re.compile(r"replica_groups=\[\d+,(?P<size>\d+)\]"),
    "mesh": re.compile(r"replica_groups=mesh\[(?P<axes>[^\]]*)\]\s*\{(?P<over>[^}]*)\}"),
}


def bytes_of_arrays(shape: str) -> list[int]:
    """Bytes of the arrays named in a result's type, e.g. `(f32[2,3]{1,0}, c128[4])`."""
    sizes = []
    for match in _ARRAY.finditer(shape):
        kind = match["type"]
        bits = 8 if kind == "pred" else 0 if kind == "token" else int(re.findall(r"\d+", kind)[0])
        count = math.prod(int(n) for n in match["dims"].split(",") if n)
        sizes.append(count * bits // 8)
    return sizes


def group_size(line: str, devices: int) -> int:
    """The number of devices in one group of a collective instruction."""
    if match := _GROUPS["listed"].search(line):
        return len(match["first"].split(",")) if match["first"] else devices
    if match := _GROUPS["iota"].search(line):
        return int(match["size"])
    if match := _GROUPS["mesh"].search(line):
        sizes = dict(re.findall(r"'([^']+)'=(\d+)", match["axes"]))
        return math.prod(int(sizes[name]) for name in re.findall(r"'([^']+)'", match["over"]))
    return devices


def _sent(kind: str, result: int, group: int) -> int:
    """Bytes that one device sends, from the size of its result (ring algorithms for gathers and
    reductions)."""
    match kind:
        case "all-to-all" | "all-gather" | "ragged-all-to-all":
            return result * (group - 1) // group
        case "all-reduce":
            return 2 * result * (group - 1) // group
        case "reduce-scatter":
            return result * (group - 1)
        case _:
            return result


def devices_of(text: str) -> int:
    """The number of devices of a compiled program."""
    sizes = (re.search(rf"{name}=(\d+)", text) for name in ("num_partitions", "replica_count"))
    return math.prod(int(match[1]) for match in sizes if match)


def sent_by(line: str, devices: int) -> int | None:
    """Bytes that one device sends in a collective instruction; None for other instructions and for
    groups of one."""
    if (match := _INSTRUCTION.search(line)) is None:
        return None
    kind, sizes, group = match["kind"], bytes_of_arrays(match["result"]), group_size(line, devices)
    # An asynchronous start returns a pair (operands, results), with the result last.
    result = sizes[-1] if match["start"] and kind != "all-reduce" else sum(sizes)
    return _sent(kind, result, group) if group > 1 or kind == "collective-permute" else None


def collectives(compiled: Any) -> Mapping[str, Collective]:
    """The collectives of a compiled program (`jax.jit(f).lower(...).compile()`, or its HLO text) by
    kind.

    Every kind of `KINDS` is a key."""
    text = compiled if isinstance(compiled, str) else compiled.as_text()
    devices, by_kind = devices_of(text), dict.fromkeys(KINDS, NONE)
    for line in text.splitlines():
        if (match := _INSTRUCTION.search(line)) and (sent := sent_by(line, devices)) is not None:
            before = by_kind[match["kind"]]
            by_kind[match["kind"]] = Collective(before.count + 1, before.bytes + sent)
    return by_kind
