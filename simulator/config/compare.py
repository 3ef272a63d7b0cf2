"""What changed between two configurations, and whether a run can go on under the new one."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from simulator.config.load import as_mapping
from simulator.config.run_config import RunConfig


class Change(StrEnum):
    """How a changed key bears on an existing run."""

    FROZEN = "frozen"
    """The run would be another one."""
    CHANGEABLE = "changeable"
    """The run goes on; the change is printed."""
    FREE = "free"
    """Not compared."""


class Difference(NamedTuple):
    """`key` was `old` and is `new`; None stands for absent."""

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
    "name": Change.CHANGEABLE,
    "time": Change.CHANGEABLE,
    "output": Change.CHANGEABLE,
    "output.directory": Change.FREE,
    "devices": Change.FREE,
    "fft": Change.FREE,
    "run": Change.FREE,
    "slurm": Change.FREE,
}


def classify(key: str) -> Change:
    """What a change of `key` (`time.stop`) means for an existing run."""
    while key not in _CHANGES:
        key = key.rpartition(".")[0]
    return _CHANGES[key]


def diff_configs(old: RunConfig, new: RunConfig) -> list[Difference]:
    """Every key in which two configurations differ, the old one's keys first. Lists are compared whole."""
    return list(_differences(as_mapping(old), as_mapping(new), ""))


def _differences(old: Any, new: Any, key: str) -> Iterator[Difference]:
    blocks = [value for value in (old, new) if isinstance(value, Mapping)]
    if len(blocks) == 2 or (blocks and blocks[0] and (old is None or new is None)):
        before, after = old or {}, new or {}
        for name in {**before, **after}:
            yield from _differences(before.get(name), after.get(name), f"{key}.{name}" if key else name)
    elif old != new:
        yield Difference(key, old, new, classify(key))
