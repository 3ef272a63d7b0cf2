"""Divides this machine's cores and GPUs among concurrent runs."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from simulator.cluster.hardware import has_gpu_plugin, present_gpus, visible_gpus
from simulator.config import RunConfig
from simulator.errors import UserError

T = TypeVar("T")


@dataclass(frozen=True)
class Slot:
    """The resources of one run at a time: cores to bind to (empty: no binding) and environment variables for GPUs."""

    cores: frozenset[int] = frozenset()
    environ: Mapping[str, str] = field(default_factory=dict)


def slots(jobs: int, configs: Sequence[RunConfig], environ: Mapping[str, str]) -> list[Slot]:
    """`jobs` shares of the machine. With `devices.count: auto` a run uses all devices of its share.

    Raises UserError if there are fewer GPUs than concurrent runs.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    gpus = _gpus(environ) if any(c.devices.platform != "cpu" for c in configs) else []
    if jobs == 1:
        return [Slot()]
    if gpus and jobs > len(gpus):
        raise UserError(
            f"--jobs: {jobs} concurrent runs need a GPU each, but there are {len(gpus)}; use --jobs {len(gpus)}"
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
    """Part `i` of `parts`; a single item if there are fewer items than parts."""
    if not items:
        return items
    share = items[i * len(items) // parts : (i + 1) * len(items) // parts]
    return share or [items[i % len(items)]]
