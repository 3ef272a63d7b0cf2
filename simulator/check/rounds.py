"""Timing in rounds: every contender runs once per round, so that a disturbance of the machine affects all alike."""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Protocol


class Timed(Protocol):
    """A contender."""

    def round(self) -> Any:
        """Run once; returns the seconds, or a tuple of seconds where several parts are timed."""
        ...


def timed_in_rounds(
    contenders: Sequence[Timed], seconds: float, agree: Callable[[Any], Any] = lambda value: value
) -> list[list]:
    """The results of every contender's rounds. Rounds go on for about `seconds`, and there are at least five.

    A warm-up round comes first and is not counted. `agree` broadcasts the first process's value, so that all
    processes run the same number of rounds.
    """
    results: list[list] = [[] for _ in contenders]
    for contender in contenders:
        contender.round()
    start, go = perf_counter(), True
    while go:
        for times, contender in zip(results, contenders, strict=True):
            times.append(contender.round())
        go = agree(len(results[0]) < 5 or perf_counter() - start < seconds)
    return results
