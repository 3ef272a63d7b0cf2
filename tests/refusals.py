"""Tables of what is refused, and the line that refuses it."""

from collections.abc import Callable

import pytest

from simulator.errors import UserError


def rows(table: str) -> list[tuple[str, list[str], str]]:
    """The case, its changes, and words of the refusal, from a table with two lines for each:
    `CASE | CHANGE & CHANGE`, and the words."""
    lines = [line.strip() for line in table.strip().splitlines()]
    pairs = [line.split(" | ") for line in lines[::2]]
    return [
        (case, changes.split(" & "), words)
        for (case, changes), words in zip(pairs, lines[1::2], strict=True)
    ]


def refusal(begin: Callable[[], object]) -> str:
    """The one line with which `begin` is refused."""
    with pytest.raises(UserError) as refused:
        begin()
    assert "\n" not in str(refused.value)
    return str(refused.value)
