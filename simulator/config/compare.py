"""Compares two configurations and decides whether a run can continue under the new one."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from simulator.config.load import as_mapping
from simulator.config.run_config import RunConfig


class Change(StrEnum):
    """The effect of a changed key on an existing run."""

    FROZEN = "frozen"
    """It would be a different run: refused."""
    CHANGEABLE = "changeable"
    """The run continues; the change is printed."""
    FREE = "free"
    """Not compared."""


class Difference(NamedTuple):
    """The old and the new value of a key; None if it is absent."""

    key: str
    old: Any
    new: Any
    change: Change


_CHANGES: Mapping[str, Change] = {
    "model": Change.FROZEN,
    "grid": Change.FROZEN,
    "initial": Change.FROZEN,
    "precision": Change.FROZEN,
    "forcing": Change.FROZEN,
    "particles": Change.FROZEN,
    "name": Change.CHANGEABLE,
    "time": Change.CHANGEABLE,
    "output": Change.CHANGEABLE,
    "output.directory": Change.FREE,
    "devices": Change.FREE,
    "fft": Change.FREE,
    "run": Change.FREE,
    "slurm": Change.FREE,
}


FROZEN = tuple(block for block, change in _CHANGES.items() if change is Change.FROZEN)
"""The blocks that determine the results of a run."""


def classify(key: str) -> Change:
    """The effect of a change of `key` (such as `time.stop`) on an existing run."""
    while key not in _CHANGES:
        key = key.rpartition(".")[0]
    return _CHANGES[key]


def diff_configs(old: RunConfig, new: RunConfig) -> list[Difference]:
    """Every key in which two configurations differ, keys of the old one first. Lists are compared as a whole."""
    return list(_differences(as_mapping(old), as_mapping(new), ""))


def _differences(old: Any, new: Any, key: str) -> Iterator[Difference]:
    blocks = [value for value in (old, new) if isinstance(value, Mapping)]
    if len(blocks) == 2 or (blocks and blocks[0] and (old is None or new is None)):
        before, after = old or {}, new or {}
        for name in {**before, **after}:
            yield from _differences(before.get(name), after.get(name), f"{key}.{name}" if key else name)
    elif old != new:
        yield Difference(key, old, new, classify(key))
