"""Compares configurations: may a run continue with the other one, and do both share their
programs?"""

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from simulator.config.load import as_mapping
from simulator.config.overrides import values_by_path
from simulator.config.run_config import RunConfig
from simulator.config.yaml12 import dotted
from simulator.words import flat


class Change(StrEnum):
    """The effect of a changed key on an existing run."""

    FROZEN = "frozen"  # Another value makes another run, so a change is refused.
    CHANGEABLE = "changeable"  # The run continues; the change is printed.
    FREE = "free"  # The key is not compared.


class Difference(NamedTuple):
    """The old and the new value of a key; None for an absent key."""

    key: str
    old: Any
    new: Any
    change: Change


FROZEN = ("model", "grid", "initial", "precision", "forcing", "terms", "particles")
"""The blocks that determine the results of a run."""
_CHANGES: Mapping[str, Change] = {
    **dict.fromkeys(FROZEN, Change.FROZEN),
    **dict.fromkeys(("name", "time", "output"), Change.CHANGEABLE),
    **dict.fromkeys(("output.directory", "devices", "fft", "run", "slurm"), Change.FREE),
}


def classify(key: str) -> Change:
    """The effect of a change of `key` (such as `time.stop`) on an existing run. The block of a
    plugin is frozen."""
    while key and key not in _CHANGES:
        key = key.rpartition(".")[0]
    return _CHANGES.get(key, Change.FROZEN)


def diff_configs(old: RunConfig, new: RunConfig) -> list[Difference]:
    """Every key in which two configurations differ, keys of the new one first. Lists are compared
    as a whole."""
    before = flat(as_mapping(old))
    after = flat(as_mapping(new))
    keys = (key for key in {**after, **before} if before.get(key) != after.get(key))
    return [Difference(key, before.get(key), after.get(key), classify(key)) for key in keys]


# Blocks whose numbers may differ between configurations that share programs.
VARIED = ("model", "forcing", "terms")
TIME_STEP = ("dt", "cfl", "error", "max_dt")
# Blocks on which a step does not depend, except `run.memory`.
_APART = ("name", "output", "initial", "run", "slurm")


def programs(mapping: Mapping[str, Any]) -> str:
    """A text that is equal for configurations, given `as_mapping`, that share their programs, that
    is, which differ only in numbers of `model`, `forcing` and `time`, and in blocks on which a step
    does not depend (name, start, output, supervision).

    The text distinguishes zero from other numbers, because zero often turns a term off. It cannot
    distinguish the programs of a model that branches on other values of a number."""
    shared = {name: block for name, block in mapping.items() if name not in _APART}
    for block in VARIED:
        shared[block] = {key: zero_or_number(item) for key, item in leaves(mapping.get(block))}
    time = mapping["time"]
    shared["time"] = [time["integrator"], [key for key in TIME_STEP if key in time]]
    if "steps" in time:  # their ends follow from the background
        shared |= {name: mapping[name] for name in ("model", "time")}
    return json.dumps([shared, mapping["run"].get("memory")], sort_keys=True, default=str)


def zero_or_number(item: object) -> Any:
    """ "zero" or "number" for a float, because zero often turns a term off; other items unchanged."""
    return ("zero", "number")[item != 0] if isinstance(item, float) else item


def leaves(block: object) -> Iterator[tuple[str, Any]]:
    """The values in nested mappings and lists, by dotted key."""
    return (
        (dotted(path), item)
        for path, item in values_by_path(block)
        if not isinstance(item, Mapping | list)
    )


class Programs:
    """A configuration as a key of caches: equal to configurations with the same programs and fields
    of snapshots."""

    def __init__(self, config: RunConfig, mapping: Mapping[str, Any] | None = None):
        """`mapping`: `as_mapping(config)`, where it is at hand."""
        self.config = config
        self.text = programs(as_mapping(config) if mapping is None else mapping)
        self._fields = tuple(config.output.snapshots.fields or ())
        self._rounded = config.output.snapshots.error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Programs) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[str, tuple[str, ...], float | None]:
        return self.text, self._fields, self._rounded
