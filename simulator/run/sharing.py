"""How a configuration's grid is shared among devices: which counts work, the devices themselves, the transform."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from simulator.cluster import Allocation
from simulator.cluster.hardware import usable_cores
from simulator.cluster.start import Cluster, start
from simulator.config import RunConfig
from simulator.errors import UserError
from simulator.spectral import Grid, Modes, Transform, staged, stages, usable_counts
from simulator.spectral.backends import build, choose

CUSTOM_PARTITIONING, SMALLEST = staged.NAME, stages.ZX_THEN_Y.name
"""The backend that knows `run.memory: low`, and its plan that holds least."""


def grid_of(config: RunConfig) -> Grid:
    return Grid(config.grid.shape, config.grid.box, config.grid.dealias)


def modes_of(config: RunConfig) -> Modes:
    """The modes that the transform of a configuration keeps."""
    return Modes(grid_of(config))


def transform_of(
    config: RunConfig,
    devices: Sequence[Any],
    choice: tuple[str, str] | None = None,
    low: bool = False,
    platform: str | None = None,
    **kind: bool,
) -> Transform:
    """The transform that the settings `fft` ask for; `kind` says real or complex fields, all modes or not.

    `choice` is what `fft.backend: auto` has measured: backend and plan. `low`: what holds least.
    `platform`: cpu or gpu, whose program it is; by default the devices'.
    """
    # One plan on one mesh for all transforms of a model, of real and of complex fields: these have to lie alike.
    modes = modes_of(config)
    found = choose(modes, len(devices), config.fft.backend, config.fft.decomposition)
    candidate = next((c for c in found if (c.backend, c.plan) == choice), found[0])
    if low:
        if candidate.backend != CUSTOM_PARTITIONING:
            raise config.error(
                "run.memory", f"low needs fft.backend: {CUSTOM_PARTITIONING}, not {candidate.backend}"
            )
        candidate = next((c for c in found if c.plan == SMALLEST), candidate)
    return build(
        replace(modes, **kind),
        candidate,
        devices,
        np.float64 if config.precision == "double" else np.float32,
        None if config.fft.block == "auto" else config.fft.block,
        low,
        platform,
    )


def check_devices(config: RunConfig, count: int | Literal["auto"], processes: int = 1) -> None:
    """Refuses a number of devices that the layout or the processes cannot share out."""
    count = processes if count == "auto" else count
    if count % processes:
        nearest = max(count // processes, 1) * processes
        raise config.error("devices.count", f"{count} is no multiple of {processes} processes; {nearest} is")
    try:
        choose(modes_of(config), count, config.fft.backend, config.fft.decomposition)
    except UserError as error:
        raise config.error("devices.count", str(error).removeprefix("devices.count: ")) from None


def most_devices(config: RunConfig, most: int) -> int:
    """The largest number of devices up to `most` that the layout can use."""
    return usable_counts(modes_of(config), most, config.fft.backend, config.fft.decomposition)[-1]


def connect(config: RunConfig, allocation: Allocation, folder: Path | None = None) -> Cluster:
    """Starts JAX on what the configuration and the allocation say. Refuses before that what cannot fit."""
    check_devices(config, config.devices.count, allocation.num_processes)
    return start(
        allocation,
        platform=config.devices.platform,
        count=config.devices.count,
        limit=most_devices(config, usable_cores() * allocation.num_processes),
        folder=folder,
    )
