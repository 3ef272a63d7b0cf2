"""This machine's cores and GPUs, shared out among runs that go on at the same time."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from simulator.cluster.gpus import visible_gpus
from simulator.cluster.hardware import has_gpu_plugin, present_gpus
from simulator.config import RunConfig
from simulator.errors import UserError

T = TypeVar("T")


@dataclass(frozen=True)
class Slot:
    """What one run at a time gets: cores to be bound to (empty: no binding here) and variables for its GPUs."""

    cores: frozenset[int] = frozenset()
    environ: Mapping[str, str] = field(default_factory=dict)


def slots(jobs: int, configs: Sequence[RunConfig], environ: Mapping[str, str]) -> list[Slot]:
    """`jobs` shares of the machine. With `devices.count: auto` a run takes all that its share has.

    UserError where the GPUs are fewer than the runs that would be at work on them at once.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    gpus = _gpus(environ) if any(c.devices.platform != "cpu" for c in configs) else []
    if jobs == 1:
        return [Slot()]
    if gpus and jobs > len(gpus):
        raise UserError(
            f"--jobs: {jobs} runs at once need a GPU each, {len(gpus)} are here; --jobs {len(gpus)}"
        )
    return [
        Slot(
            frozenset(_share(cores, i, jobs)),
            {"CUDA_VISIBLE_DEVICES": ",".join(_share(gpus, i, jobs))} if gpus else {},
        )
        for i in range(jobs)
    ]


def _gpus(environ: Mapping[str, str]) -> list[str]:
    if not has_gpu_plugin():
        return []
    visible = visible_gpus(environ)
    return [str(i) for i in range(present_gpus())] if visible is None else list(visible)


def _share(items: Sequence[T], i: int, parts: int) -> Sequence[T]:
    """Part `i` of `parts`; where there are fewer items than parts, one of them."""
    if not items:
        return items
    share = items[i * len(items) // parts : (i + 1) * len(items) // parts]
    return share or [items[i % len(items)]]
