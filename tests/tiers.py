"""Cases of parametrized tests that belong to the slow tier."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow(*values: Any, **options: Any) -> Any:
    """A case that runs with --slow only."""
    return pytest.param(*values, marks=pytest.mark.slow, **options)


def slow_but(cases: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """All cases, of which those that are not among `quick` are slow; a tuple holds the values of
    several parameters."""

    def marked(case: Any) -> Any:
        return slow(*case) if isinstance(case, tuple) else slow(case)

    return [case if case in quick else marked(case) for case in cases]
