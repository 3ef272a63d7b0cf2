"""Groups runs that can be stepped together: they share shapes and physics and differ only in numbers.

A number is batched if the step can be traced with an array in its place. This is tried by tracing without devices: a
model that branches on a number cannot be batched over it, and its runs run alone.
"""

import json
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from simulator.config import RunConfig, as_mapping
from simulator.config.compare import TIME_STEP, VARIED, leaves, programs
from simulator.plan import paper_simulation
from simulator.study.sweep import SweepRun

MOST_MEMBERS = 64


@dataclass(frozen=True)
class Group:
    """Runs that are stepped together, and the keys in which they differ inside the step. `obstacles`: the reasons why
    similar runs are not in the group."""

    runs: tuple[SweepRun, ...]
    keys: tuple[str, ...] = ()
    obstacles: tuple[str, ...] = ()


def groups(runs: Sequence[SweepRun], parts: int = 1) -> list[Group]:
    """All runs in groups, ordered by their first run.

    Groups are divided so that they keep `parts` processes busy and fit in the memory.
    """
    alike: dict[str, list[SweepRun]] = defaultdict(list)
    for run in runs:
        alike[_common(run.config)].append(run)
    divided: list[Group] = []
    for members in alike.values():
        for group in _divided_by_keys(members):
            divided += [replace(group, runs=part) for part in _divided_by_size(group.runs, parts)]
    return sorted(divided, key=lambda group: group.runs[0].index)


def _common(config: RunConfig) -> str:
    """A text that is equal for runs that may form a group: they share their programs, which are not chosen by
    measurement."""
    alone = config.fft.backend == "auto"
    return json.dumps([programs(config), str(config.output.directory) if alone else None])


def numbers(config: RunConfig) -> dict[str, float]:
    """The numbers that may differ within a group, by key (`model.viscosity`, `time.dt`)."""
    whole = as_mapping(config)
    varied = {
        f"{block}.{key}": item
        for block in VARIED
        for key, item in leaves(whole.get(block))
        if isinstance(item, float)
    }
    return varied | {f"time.{key}": whole["time"][key] for key in TIME_STEP if key in whole["time"]}


def _divided_by_keys(members: Sequence[SweepRun]) -> list[Group]:
    """Groups whose members agree in the numbers that cannot be batched."""
    values = [numbers(member.config) for member in members]
    differing = [key for key in values[0] if len({row[key] for row in values}) > 1]
    obstacles = _obstacles(members[0].config, differing)
    batched = tuple(key for key in differing if key not in obstacles)
    parts: dict[tuple[float, ...], list[SweepRun]] = defaultdict(list)
    for member, row in zip(members, values, strict=True):
        parts[tuple(row[key] for key in obstacles)].append(member)
    reasons = tuple(f"{key} cannot be batched ({why})" for key, why in obstacles.items())
    return [Group(tuple(part), batched, reasons) for part in parts.values()]


def _obstacles(config: RunConfig, keys: Sequence[str]) -> dict[str, str]:
    """The keys for which the step cannot be traced with arrays, and the reasons."""
    from simulator.study.batch import BatchedStep

    simulation = paper_simulation(config)
    if BatchedStep(simulation, keys).why_not() is None:
        return {}
    obstacles = {key: why for key in keys if (why := BatchedStep(simulation, (key,)).why_not())}
    return obstacles or dict.fromkeys(keys, "only one by one")


def _divided_by_size(group: Sequence[SweepRun], parts: int) -> list[tuple[SweepRun, ...]]:
    needed = max(run.estimate.room for run in group)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    most = max(1, min(MOST_MEMBERS, memory // (parts * needed), -(-len(group) // parts)))
    number = -(-len(group) // most)
    return [tuple(group[i * len(group) // number : (i + 1) * len(group) // number]) for i in range(number)]
