"""What changed between two configurations, and whether a run can go on under the new one."""

from collections.abc import Mapping
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
    """Every key in which two configurations differ, in the order of the file. Lists are compared whole."""
    before, after = _flat(as_mapping(old)), _flat(as_mapping(new))
    return [
        Difference(key, before.get(key), after.get(key), classify(key))
        for key in {**before, **after}
        if before.get(key) != after.get(key)
    ]


def _flat(block: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in block.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
