"""Slurm's host lists: `gpu-[1-4]-ib,login,a[01-02]b[3,5]`.

A name may contain several bracketed lists, which multiply; the first list varies slowest. A range
keeps the width of its first number (`[08-10]` is 08, 09, 10). Reference: man scontrol, `show
hostnames`. The package python-hostlist does the same, but its licence (GPL) would determine the
licence of this program."""

import itertools
import re
from collections.abc import Iterable
from math import prod

from simulator.errors import shortened

# The largest number of hosts in a list: more than any machine has, but few enough to expand.
MOST = 2**20


def host_names(hostlist: str) -> list[str]:
    """Host names of a Slurm host list, in Slurm's order.

    Raises ValueError if a bracket is not closed or a range is invalid.

    >>> host_names("tux[01-03].cluster.org")
    ['tux01.cluster.org', 'tux02.cluster.org', 'tux03.cluster.org']
    >>> host_names("a[1-2]b[3-4]")
    ['a1b3', 'a1b4', 'a2b3', 'a2b4']
    """
    names: list[str] = []
    for part in _split(hostlist):
        pieces = re.split(r"\[([^\[\]]*)\]", part)  # plain, list, plain, list, ..., plain
        if any(bracket in piece for piece in pieces for bracket in "[]"):
            raise ValueError(f"host list {shortened(hostlist)!r}: brackets do not match")
        choices = [
            _numbers(piece, hostlist) if i % 2 else [piece] for i, piece in enumerate(pieces)
        ]
        if len(names) + prod(map(len, choices)) > MOST:
            raise _too_many(hostlist)
        names += ["".join(choice) for choice in itertools.product(*choices)]
    return names


def tasks_per_node(text: str) -> list[int]:
    """The numbers in Slurm's run-length notation, one per node.

    >>> tasks_per_node("2(x3),1")
    [2, 2, 2, 1]
    """
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,18})(?:\(x(\d{1,18})\))?", part.strip(), re.ASCII)
        if not match:
            raise ValueError(f"{shortened(text)!r} is not a list of tasks per node such as 2(x3),1")
        if len(counts) + (times := int(match[2] or 1)) > MOST:
            raise _too_many(text)
        counts += [int(match[1])] * times
    return counts


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as ranges, as Slurm writes them.

    >>> ranges([3, 0, 1, 2, 8])
    '0-3,8'
    """
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def _too_many(text: str) -> ValueError:
    return ValueError(f"{shortened(text)!r} names more than {MOST} nodes")


def _split(hostlist: str) -> list[str]:
    """The parts between commas outside of brackets."""
    return [part for part in re.split(r",(?![^\[\]]*\])", hostlist.strip()) if part]


def _numbers(ranges: str, hostlist: str) -> list[str]:
    numbers: list[str] = []
    for item in ranges.split(","):
        match = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", item, re.ASCII)
        first, last = (match[1], match[2] or match[1]) if match else ("1", "0")
        if int(first) > int(last):
            raise ValueError(
                f"host list {shortened(hostlist)!r}: {shortened(item)!r} is no number and no range"
            )
        if len(numbers) + int(last) - int(first) >= MOST:
            raise _too_many(hostlist)
        numbers += [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)]
    return numbers
