"""Distributes a configuration's grid over devices: the possible device counts, the devices, the transform."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np

from simulator.cluster import Allocation
from simulator.cluster.compile_cache import base_folder
from simulator.cluster.hardware import usable_cores
from simulator.cluster.start import Cluster, start
from simulator.cluster.variables import recorded
from simulator.config import RunConfig
from simulator.config.execution import MOST_DEVICES
from simulator.errors import UserError
from simulator.physics.models import MODELS, Model
from simulator.simulation import provenance
from simulator.spectral import Grid, Modes, Transform, jaxdecomp, largest_count, native, staged, stages
from simulator.spectral.backends import build, choose, kernels_of, preferred
from simulator.spectral.candidates import Candidate
from simulator.spectral.measure import measured
from simulator.words import size

CUSTOM_PARTITIONING, SMALLEST = staged.NAME, stages.ZX_THEN_Y.name
"""The backend that supports `run.memory: low`, and its plan with the smallest memory."""
UNITARITY = {"single": "1e-9", "half_scaled": "1e-6"}
"""The fraction of a wave function's mass that a transform with narrow exchanges gains or loses, measured with
32^3 random values on four devices."""


def grid_of(config: RunConfig) -> Grid:
    return Grid.of(config.grid.shape, config.grid.box, config.grid.dealias, config.grid.shell_width)


def modes_of(config: RunConfig) -> Modes:
    """The modes that the transform of a configuration keeps."""
    return Modes(grid_of(config))


@dataclass(frozen=True)
class Placement:
    """The placement of a run's fields and the choice of transform: decided once, and passed down."""

    config: RunConfig
    cluster: Cluster
    candidate: Candidate
    """Backend, plan, and arrangement of the devices."""
    kernels: Literal["native", "xla"]
    """Implementation of the transforms' local stages: native code only if every process has it."""
    low: bool = False
    """Whether a step minimizes memory at the cost of speed."""
    members: int = 1
    """The number of equal parts of the devices, each of which holds the grid for its share of an ensemble."""
    measured: Mapping[str, Any] | None = None
    """The choice that `fft.backend: auto` measured, with the conditions it holds for."""

    @property
    def grid(self) -> Grid:
        return grid_of(self.config)

    @property
    def saves_memory(self) -> bool:
        """Whether a plan with less memory exists."""
        return self.candidate.backend == CUSTOM_PARTITIONING

    def with_low_memory(self) -> "Placement":
        """A placement on the same devices with the plan of smallest memory. Raises UserError if the backend has no
        such plan."""
        if not self.saves_memory:
            raise self.config.error(
                "run.memory", f"low needs fft.backend: {CUSTOM_PARTITIONING}, not {self.candidate.backend}"
            )
        config = self.config
        candidates = _candidates(config, len(self.cluster.devices) // self.members)
        least = next((c for c in candidates if c.plan == SMALLEST), self.candidate)
        return replace(self, candidate=least, low=True)

    def transform(self, **kind: bool) -> Transform:
        """The transform of one kind of field. `real=True, every=False` selects real or complex fields, and all modes
        or those that dealiasing keeps. All kinds share one arrangement of points."""
        config = self.config
        return build(
            replace(modes_of(config), **kind),
            self.candidate,
            self.cluster.devices,
            np.float64 if config.precision == "double" else np.float32,
            block=None if config.fft.block == "auto" else config.fft.block,
            sequential=self.low,
            platform=self.cluster.platform,
            # Not `self.kernels`: jaxdecomp accepts `auto` and refuses `native`.
            kernels="xla" if self.kernels == "xla" else config.fft.kernels,
            exchange=config.fft.exchange,
            members=self.members,
        )


def place(config: RunConfig, cluster: Cluster, report: Callable[[str], None] = print, members: int = 1) -> Placement:
    """The placement of a configuration's run on the devices of `cluster`, or of an ensemble of such runs, whose
    `members` are laid over equal parts of the devices. All processes call this.

    Raises UserError if grid, devices, backend, plan and kernels are incompatible.
    """
    check_devices(config, len(cluster.devices), cluster.num_processes, members)
    kernels = _agreed_kernels(config, cluster)
    check_exchange(config)
    candidates = _candidates(config, len(cluster.devices) // members)
    candidate, choice = preferred(candidates, kernels, cluster.platform), None
    if config.fft.backend == "auto":
        choice = _measured_choice(config, cluster, kernels, report)
        candidate = next((c for c in candidates if _is(c, choice)), candidate)
    placement = Placement(config, cluster, candidate, kernels, members=members, measured=choice)
    return placement.with_low_memory() if config.run.memory == "low" else placement


def _agreed_kernels(config: RunConfig, cluster: Cluster) -> Literal["native", "xla"]:
    kernels = chosen_kernels(config, cluster.platform)
    if cluster.num_processes > 1:
        return "native" if all(k == "native" for k in cluster.gather(kernels)) else "xla"
    return kernels


def _measured_choice(
    config: RunConfig, cluster: Cluster, kernels: Literal["native", "xla"], report: Callable[[str], None]
) -> dict[str, Any]:
    """The fastest backend and plan: from the run's folder if an earlier start measured them on the same devices, else
    measured now."""
    nodes = cluster.broadcast(-(-cluster.num_processes // max(cluster.allocation.local_processes, 1)))
    conditions = {
        "devices": len(cluster.devices),
        "processes": cluster.num_processes,
        "nodes": nodes,
        "kind": cluster.devices[0].device_kind,
        "decomposition": config.fft.decomposition,
        "mesh": config.fft.mesh if config.fft.mesh == "auto" else list(config.fft.mesh),
        "kernels": kernels,
    }
    earlier = provenance.read(Path(config.output.directory)) if cluster.is_first else {}
    known = cluster.broadcast(earlier.get("mesh", {}).get("choice"))
    if known and all(known.get(key) == value for key, value in conditions.items()):
        return known
    fastest = measured(
        modes_of(config),
        cluster.devices,
        np.float64 if config.precision == "double" else np.float32,
        decomposition=config.fft.decomposition,
        mesh=config.fft.mesh,
        kernels=kernels,
        nodes=nodes,
        folder=base_folder(os.environ),
        broadcast=cluster.broadcast,
        report=report if cluster.is_first else lambda line: None,
    )
    return {**conditions, "backend": fastest.backend, "plan": fastest.decomposition, "on": fastest.mesh}


def _is(candidate: Candidate, choice: Mapping[str, Any]) -> bool:
    """Whether `candidate` is the measured choice."""
    chosen = (choice["backend"], choice["plan"], choice["on"])
    return (candidate.backend, candidate.plan, list(candidate.mesh)) == chosen


def _candidates(config: RunConfig, devices: int) -> list[Candidate]:
    fft = config.fft
    return choose(modes_of(config), devices, fft.backend, fft.decomposition, fft.mesh)


def check_devices(config: RunConfig, count: int | Literal["auto"], processes: int = 1, members: int = 1) -> None:
    """Refuses a number of devices over which the layout, the processes or the members cannot be distributed."""
    check_members(config, members)
    if count == "auto":
        # The number of devices is not known yet; every process has at least one.
        if members > 1 or most_devices(config, MOST_DEVICES, processes) is not None:
            return
        count = processes
    if count % processes:
        nearest = max(count // processes, 1) * processes
        raise config.error("devices.count", f"{count} is not a multiple of {processes} processes; {nearest} is")
    if count % members:
        raise config.error(
            "devices.count",
            f"{count} cannot be divided among members={members}; {max(count // members, 1) * members} can",
        )
    try:
        _candidates(config, count // members)
    except UserError as error:
        raise config.error_below("", error) from None
    if config.fft.kernels == "native":
        chosen_kernels(config, "cpu")


def check_members(config: RunConfig, members: int) -> None:
    """Refuses an ensemble that cannot be laid over devices."""
    if members < 1:
        raise UserError(f"members: must be at least 1, not {members}")
    if members > 1 and config.fft.backend != CUSTOM_PARTITIONING:
        raise config.error(
            "fft.backend", f"{config.fft.backend} cannot lay members over devices; {CUSTOM_PARTITIONING} can"
        )


def check_exchange(config: RunConfig, own: Model | None = None) -> None:
    """Refuses narrow exchanges that have no effect or do harm. `own`: the equation of a user's file, which the
    configuration alone does not determine."""
    kind, model = config.fft.exchange, own or MODELS[config.model.kind]
    if kind == "full":
        return
    if model.split:
        name = config.model.kind if own is None else type(own).__name__
        raise config.error(
            "fft.exchange",
            f"{kind} would cost wave functions their unitarity ({UNITARITY[kind]} of the mass in every transform, "
            f"against 1e-16); remove the key for {name}",
        )
    if config.precision == "single" and kind == "single":
        raise config.error(
            "fft.exchange",
            "has no effect with precision: single, whose numbers are single anyway; full or half_scaled works",
        )
    if config.fft.backend == jaxdecomp.NAME:
        raise config.error("fft.exchange", f"{kind} needs fft.backend: {CUSTOM_PARTITIONING}")


def chosen_kernels(config: RunConfig, platform: str) -> Literal["native", "xla"]:
    """The implementation of the local stages on a platform; refuses `native` if it is not available."""
    try:
        return native.chosen(kernels_of(grid_of(config), config.fft.kernels), platform)
    except UserError as error:
        raise config.error_below("", error) from None


def most_devices(config: RunConfig, most: int, processes: int = 1) -> int | None:
    """The largest number of devices up to `most` over which the layout and this many processes can be distributed;
    None if there is none."""
    fft = config.fft
    try:
        return largest_count(modes_of(config), most, fft.backend, fft.decomposition, processes, fft.mesh)
    except UserError as error:
        raise config.error_below("", error) from None


def connect(config: RunConfig, allocation: Allocation, folder: Path | None = None, members: int = 1) -> Cluster:
    """Starts JAX with the devices of the configuration and the allocation; refuses impossible numbers first."""
    processes = allocation.num_processes
    check_devices(config, config.devices.count, processes, members)
    each = most_devices(config, max(usable_cores() * processes // members, 1), processes if members == 1 else 1)
    return start(
        allocation,
        platform=config.devices.platform,
        count=config.devices.count,
        limit=None if each is None else members * each,
        folder=folder,
        wait=config.run.rendezvous,
    )


# ---- in words --------------------------------------------------------------------------------------------


def division_lines(cluster: Cluster, transform: Any, environ: Mapping[str, str]) -> list[str]:
    """Processes, devices, grid and transform, line by line; then the part of a field on each device."""
    mesh, grid = transform.layout.mesh, transform.grid
    per_process = len(cluster.devices) // cluster.num_processes
    kinds = sorted({device.device_kind for device in cluster.devices})
    slurm = [f"{name}={value}" for name, value in recorded(environ).items() if name.startswith("SLURM_")]
    shape = " x ".join(map(str, grid.shape))
    rows = {
        "platform": f"{cluster.platform} ({', '.join(kinds)})",
        "processes": f"{cluster.num_processes} ({cluster.allocation.source})",
        "devices": f"{len(cluster.devices)}, {per_process} per process",
        "mesh": ", ".join(f"{name}: {size}" for name, size in mesh.shape.items()),
        "grid": f"{shape}, {grid.dealias}, {transform.dtype.name}",
        "transform": transform.name,
        "kernels": native.described(transform.kernels, cluster.platform),
        "physical": _shares("xyz", transform.physical),
        "spectral": _shares("".join(transform.layout.order), transform.layout),
        "Slurm": slurm[0] if slurm else "no SLURM_* variables",
    }
    width = max(map(len, rows))
    lines = [f"{name:{width}}  {text}" for name, text in rows.items()]
    return [*lines, *(" " * (width + 2) + line for line in slurm[1:]), "", *_parts(transform)]


def _shares(order: str, layout: Any) -> str:
    """`(x, y, z) = 64 x 64 x 64, y over slab`."""
    shape, valid = layout.shape, layout.valid
    padding = "" if shape == valid else f" (padded from {' x '.join(map(str, valid))})"
    over = ", ".join(f"{axis} over {name}" for axis, name in layout.sharded.items())
    return f"({', '.join(order)}) = {' x '.join(map(str, shape))}{padding}, {over}"


def _parts(transform: Any) -> list[str]:
    """A line for each device: its process, and its parts of a physical and of a spectral field, with the bytes of one
    component."""
    points = {axis: range(n) for axis, n in zip("xyz", transform.grid.shape, strict=True)}
    spaces = (
        ("", transform.physical, points, transform.dtype.itemsize),
        ("k", transform.layout, transform.layout.mode_numbers, 2 * transform.dtype.itemsize),
    )
    names = [f"{k}{axis}" for k, layout, *_ in spaces for axis in layout.sharded]
    rows = [["device", "process", *names, "physical", "spectral"]]
    for number, device in enumerate(transform.layout.mesh.devices.flat):
        ranges, sizes = [], []
        for _, layout, entries, itemsize in spaces:
            index = layout.sharding().devices_indices_map(layout.shape)[device]
            bounds = [part.indices(n)[:2] for part, n in zip(index, layout.shape, strict=True)]
            for axis in layout.sharded:
                place = layout.order.index(axis)
                first, last = bounds[place][0], min(bounds[place][1], layout.valid[place]) - 1
                ranges.append(f"{entries[axis][first]}..{entries[axis][last]}" if first <= last else "none")
            sizes.append(size(prod(stop - start for start, stop in bounds) * itemsize))
        rows.append([str(number), str(device.process_index), *ranges, *sizes])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
