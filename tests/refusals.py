"""Tables of what is refused, and the line that refuses it."""

from collections.abc import Callable

import pytest

from simulator.errors import UserError


def pairs(table: str) -> list[tuple[str, str]]:
    """The entries of a table with two lines for each: what is given, and words of the answer."""
    lines = [line.strip() for line in table.strip().splitlines()]
    return list(zip(lines[::2], lines[1::2], strict=True))


def rows(table: str) -> list[tuple[str, list[str], str]]:
    """The case, its changes, and words of the refusal, from a table of pairs in which is given
    `CASE | CHANGE & CHANGE`."""
    split = [(line.split(" | "), words) for line, words in pairs(table)]
    return [(case, changes.split(" & "), words) for (case, changes), words in split]


def refusal(begin: Callable[[], object]) -> str:
    """The one line with which `begin` is refused."""
    with pytest.raises(UserError) as refused:
        begin()
    assert "\n" not in str(refused.value)
    return str(refused.value)
