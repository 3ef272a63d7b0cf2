"""Which runs can be stepped together: those that share shapes and physics and differ only in numbers.

A number is batched if the step can be traced with an array in its place. That is tried, on paper, and not known
from a list: a model that decides by a number what it computes cannot be batched over it, and its runs run alone.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from simulator.config import RunConfig, as_mapping
from simulator.planning import paper_simulation
from simulator.sweeps.sweep import SweepRun

MOST_MEMBERS = 64
_TIMES = ("dt", "cfl", "max_dt")
_BATCHED = ("model", "forcing")
_FREE = ("name", "output", "initial", "run", "slurm")
"""Blocks in which the members of a group may differ in any way: each has its own start and its own files."""


@dataclass(frozen=True)
class Group:
    """Runs that are stepped together, and the keys in which they differ inside the step. `obstacles`: why others
    that look alike are not among them."""

    runs: tuple[SweepRun, ...]
    keys: tuple[str, ...] = ()
    obstacles: tuple[str, ...] = ()


def groups(runs: Sequence[SweepRun], parts: int = 1) -> list[Group]:
    """All runs, in groups, in their order.

    A group that could keep only one of `parts` devices busy is divided, and so is one that would not fit into
    half of the memory.
    """
    alike: dict[str, list[SweepRun]] = defaultdict(list)
    for run in runs:
        alike[_structure(run.config)].append(run)
    found: list[Group] = []
    for members in alike.values():
        for group in _divided_by_keys(members):
            found += [replace(group, runs=part) for part in _divided_by_size(group.runs, parts)]
    return sorted(found, key=lambda group: group.runs[0].index)


def _structure(config: RunConfig) -> str:
    """What the members of a group have in common: everything but the numbers of the model and of the step."""
    whole = as_mapping(config)
    shared = {name: block for name, block in whole.items() if name not in (*_FREE, *_BATCHED, "time")}
    time = whole["time"]
    for block in _BATCHED:
        shared[block] = {key: _kind(item) for key, item in leaves(whole.get(block))}
    shared["time"] = [time["integrator"], [key for key in _TIMES if key in time]]
    one = whole["devices"]["count"] in ("auto", 1) and whole["fft"]["backend"] != "auto"
    return json.dumps([shared, None if one else config.output.directory], sort_keys=True, default=str)


def _kind(item: Any) -> Any:
    """What a value says about the program: of a number whether it is zero, which often turns a term off."""
    if not isinstance(item, float):
        return item
    return "zero" if item == 0 else "number"


def leaves(block: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """The values in nested mappings and lists, by dotted key."""
    items: Iterable[tuple[Any, Any]] | None = None
    if isinstance(block, Mapping):
        items = block.items()
    elif isinstance(block, list):
        items = enumerate(block)
    if items is None:
        yield key, block
        return
    for name, item in items:
        yield from leaves(item, f"{key}.{name}" if key else str(name))


def numbers(config: RunConfig) -> dict[str, float]:
    """The numbers that may differ within a group, by key (`model.viscosity`, `time.dt`)."""
    whole = as_mapping(config)
    found = {
        f"{block}.{key}": item
        for block in _BATCHED
        for key, item in leaves(whole.get(block))
        if isinstance(item, float)
    }
    return found | {f"time.{key}": whole["time"][key] for key in _TIMES if key in whole["time"]}


def _divided_by_keys(members: Sequence[SweepRun]) -> list[Group]:
    """Members apart that differ in a number which cannot be batched."""
    values = [numbers(member.config) for member in members]
    differing = [key for key in values[0] if len({found[key] for found in values}) > 1]
    obstacles = _obstacles(members[0].config, differing)
    batched = tuple(key for key in differing if key not in obstacles)
    parts: dict[tuple[float, ...], list[SweepRun]] = defaultdict(list)
    for member, found in zip(members, values, strict=True):
        parts[tuple(found[key] for key in obstacles)].append(member)
    reasons = tuple(f"{key} cannot be batched ({why})" for key, why in obstacles.items())
    return [Group(tuple(part), batched, reasons) for part in parts.values()]


def _obstacles(config: RunConfig, keys: Sequence[str]) -> dict[str, str]:
    """The keys for which the step cannot be traced with arrays, and why."""
    from simulator.sweeps.batch import BatchedStep

    simulation = paper_simulation(config)
    if BatchedStep(simulation, keys).why_not() is None:
        return {}
    found = {key: why for key in keys if (why := BatchedStep(simulation, (key,)).why_not())}
    return found or dict.fromkeys(keys, "only one by one")


def _divided_by_size(group: Sequence[SweepRun], parts: int) -> list[tuple[SweepRun, ...]]:
    needed = max(run.estimate.room for run in group)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    most = max(1, min(MOST_MEMBERS, memory // (2 * parts * needed), -(-len(group) // parts)))
    number = -(-len(group) // most)
    return [tuple(group[i * len(group) // number : (i + 1) * len(group) // number]) for i in range(number)]
