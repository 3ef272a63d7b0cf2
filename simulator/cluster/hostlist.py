"""Slurm's host lists: `gpu-[1-4]-ib,login,a[01-02]b[3,5]`.

A name may hold several bracketed lists; they multiply, the first one slowest. A range keeps the width
of its first number (`[08-10]` is 08, 09, 10). Reference: man scontrol, `show hostnames`.
"""

import itertools
import re


def expand(hostlist: str) -> list[str]:
    """Host names of a Slurm host list, in Slurm's order.

    Raises ValueError when a bracket does not close or a range is no range.

    >>> expand("tux[01-03].cluster.org")
    ['tux01.cluster.org', 'tux02.cluster.org', 'tux03.cluster.org']
    >>> expand("a[1-2]b[3-4]")
    ['a1b3', 'a1b4', 'a2b3', 'a2b4']
    """
    names: list[str] = []
    for part in _split(hostlist):
        pieces = re.split(r"\[([^\[\]]*)\]", part)  # plain, list, plain, list, ..., plain
        if any(bracket in piece for piece in pieces for bracket in "[]"):
            raise ValueError(f"host list {hostlist!r}: brackets do not match")
        choices = [_numbers(piece, hostlist) if i % 2 else [piece] for i, piece in enumerate(pieces)]
        names += ["".join(choice) for choice in itertools.product(*choices)]
    return names


def tasks_per_node(text: str) -> list[int]:
    """Numbers of Slurm's run-length form, one per node.

    >>> tasks_per_node("2(x3),1")
    [2, 2, 2, 1]
    """
    counts: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if not found:
            raise ValueError(f"{text!r} is no list of tasks per node such as 2(x3),1")
        counts += [int(found[1])] * int(found[2] or 1)
    return counts


def _split(hostlist: str) -> list[str]:
    """Parts between those commas that stand outside brackets."""
    return [part for part in re.split(r",(?![^\[\]]*\])", hostlist.strip()) if part]


def _numbers(ranges: str, hostlist: str) -> list[str]:
    numbers: list[str] = []
    for item in ranges.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", item)
        first, last = (found[1], found[2] or found[1]) if found else ("1", "0")
        if int(first) > int(last):
            raise ValueError(f"host list {hostlist!r}: {item!r} is no number and no range")
        numbers += [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)]
    return numbers
