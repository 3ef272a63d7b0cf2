"""Which runs can be stepped together: those that share shapes and physics and differ only in numbers.

A number is batched if the step can be traced with an array in its place. That is tried, on paper, and not known
from a list: a model that decides by a number what it computes cannot be batched over it, and its runs run alone.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from simulator.config import RunConfig, as_mapping
from simulator.sweeps.paper import paper_simulation
from simulator.sweeps.sweep import SweepRun

MOST_MEMBERS = 64
_TIMES = ("dt", "cfl", "max_dt")
_FREE = ("name", "output", "initial", "run", "slurm")
"""Blocks in which the members of a group may differ in any way: each has its own start and its own files."""


def groups(runs: Sequence[SweepRun], parts: int = 1) -> list[tuple[tuple[SweepRun, ...], tuple[str, ...]]]:
    """Groups of runs to be stepped together, and the keys in which the members of each differ inside the step.

    A group that could keep only one of `parts` devices busy is divided, and so is one that would not fit into
    half of the memory. In the order of the runs.
    """
    alike: dict[str, list[SweepRun]] = defaultdict(list)
    for run in runs:
        alike[_structure(run.config)].append(run)
    found: list[tuple[tuple[SweepRun, ...], tuple[str, ...]]] = []
    for members in alike.values():
        for group, keys in _divided_by_keys(members):
            found += [(part, keys) for part in _divided_by_size(group, parts)]
    return sorted(found, key=lambda entry: entry[0][0].index)


def _structure(config: RunConfig) -> str:
    """What the members of a group have in common: everything but the numbers of the model and of the step."""
    whole = as_mapping(config)
    shared = {name: block for name, block in whole.items() if name not in (*_FREE, "model", "time")}
    model = dict(leaves(whole["model"]))
    time = whole["time"]
    shared["model"] = {key: "number" if isinstance(item, float) else item for key, item in model.items()}
    shared["time"] = [time["integrator"], [key for key in _TIMES if key in time]]
    one = whole["devices"]["count"] in ("auto", 1)
    return json.dumps([shared, None if one else config.output.directory], sort_keys=True, default=str)


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
    found = {f"model.{key}": item for key, item in leaves(whole["model"]) if isinstance(item, float)}
    return found | {f"time.{key}": whole["time"][key] for key in _TIMES if key in whole["time"]}


def _divided_by_keys(members: Sequence[SweepRun]) -> list[tuple[list[SweepRun], tuple[str, ...]]]:
    """Members apart that differ in a number which cannot be batched; the keys that are batched in each part."""
    values = [numbers(member.config) for member in members]
    differing = [key for key in values[0] if len({found[key] for found in values}) > 1]
    batched = [key for key in differing if _batches(members[0].config, (key,))]
    if not _batches(members[0].config, tuple(batched)):
        batched = []
    parts: dict[tuple[float, ...], list[SweepRun]] = defaultdict(list)
    for member, found in zip(members, values, strict=True):
        parts[tuple(found[key] for key in differing if key not in batched)].append(member)
    return [(part, tuple(batched)) for part in parts.values()]


def _batches(config: RunConfig, keys: tuple[str, ...]) -> bool:
    """Whether the step and what is measured can be traced with arrays for `keys`."""
    import jax

    from simulator.sweeps.batch import traceable

    try:
        return traceable(paper_simulation(config), keys)
    except (TypeError, ValueError, NotImplementedError, jax.errors.JAXTypeError):
        return False


def _divided_by_size(group: Sequence[SweepRun], parts: int) -> list[tuple[SweepRun, ...]]:
    needed = max(run.estimate.bytes for run in group)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    most = max(1, min(MOST_MEMBERS, memory // (2 * parts * needed), -(-len(group) // parts)))
    number = -(-len(group) // most)
    return [tuple(group[i * len(group) // number : (i + 1) * len(group) // number]) for i in range(number)]
