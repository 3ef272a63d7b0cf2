"""`simulator devices`: the processes and devices of a run, and the part of a field on each device."""

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Any

from simulator.cli.parser import add_config_arguments


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "devices",
        help="show processes and devices, and how a field is divided among them",
        description="Start JAX as a run of CONFIG would (by default on a 64^3 grid) and show platform, processes, "
        "devices, mesh, and the part of a field on each device.",
        epilog="example: simulator devices configs/taylor_green.yaml devices.count=4",
    )
    add_config_arguments(parser, required=False)
    parser.set_defaults(func=execute)


def execute(args: argparse.Namespace) -> int:
    """Print the tables, on the first process."""
    from simulator.processes import discover
    from simulator.processes.failure import contained

    allocation = discover(os.environ)
    with contained(allocation):
        _show(_config(args), allocation)
    return 0


def _config(args: argparse.Namespace) -> Any:
    from simulator.config import load_config, run_config_class

    if args.config:
        return load_config(args.config, args.overrides)
    example = {"model": {"kind": "navier_stokes", "viscosity": 1}, "initial": {"kind": "abc"}}
    return run_config_class().model_validate({**example, "time": {"stop": 1}})


def _show(config: Any, allocation: Any) -> None:
    from simulator.simulation.placement import connect, place

    cluster = connect(config, allocation)
    transform = place(config, cluster).transform()
    if cluster.is_first:
        for line in (*describe(cluster, transform, os.environ), "", *table(transform)):
            print(line)
    cluster.close()


def describe(cluster: Any, transform: Any, environ: Mapping[str, str]) -> list[str]:
    """Processes, devices, grid and transform, line by line."""
    from simulator.spectral.native import described

    mesh, grid = transform.layout.mesh, transform.grid
    per_process = len(cluster.devices) // cluster.num_processes
    kinds = sorted({device.device_kind for device in cluster.devices})
    slurm = [f"{name}={value}" for name, value in sorted(environ.items()) if name.startswith("SLURM_")]
    shape = " x ".join(map(str, grid.shape))
    rows = {
        "platform": f"{cluster.platform} ({', '.join(kinds)})",
        "processes": f"{cluster.num_processes} ({cluster.allocation.source})",
        "devices": f"{len(cluster.devices)}, {per_process} per process",
        "mesh": ", ".join(f"{name}: {size}" for name, size in mesh.shape.items()),
        "grid": f"{shape}, {grid.dealias}, {transform.dtype.name}",
        "transform": transform.name,
        "kernels": described(transform.kernels, cluster.platform),
        "physical": _shares("xyz", transform.physical),
        "spectral": _shares("".join(transform.layout.order), transform.layout),
        "Slurm": slurm[0] if slurm else "no SLURM_* variables",
    }
    width = max(map(len, rows))
    return [f"{name:{width}}  {text}" for name, text in rows.items()] + [
        " " * (width + 2) + line for line in slurm[1:]
    ]


def _shares(order: str, layout: Any) -> str:
    """`(x, y, z) = 64 x 64 x 64, y over slab`."""
    shape, valid = layout.shape, layout.valid
    padding = "" if shape == valid else f" (padded from {' x '.join(map(str, valid))})"
    over = ", ".join(f"{axis} over {name}" for axis, name in layout.sharded.items())
    return f"({', '.join(order)}) = {' x '.join(map(str, shape))}{padding}, {over}"


def table(transform: Any) -> list[str]:
    """Per device: process, its part of a physical and of a spectral field, and the bytes of one component."""
    physical, layout = transform.physical, transform.layout
    complex_size = 2 * transform.dtype.itemsize
    inside = physical.sharding().devices_indices_map(physical.shape)
    modes = layout.sharding().devices_indices_map(layout.shape)
    axes = list(physical.sharded), list(layout.sharded)
    header = ["device", "process", *axes[0], *(f"k{axis}" for axis in axes[1]), "physical", "spectral"]
    rows = [header]
    for number, device in enumerate(layout.mesh.devices.flat):
        spaces = [_range(axis, physical, inside[device]) for axis in axes[0]]
        waves = [_wavenumbers(axis, layout, modes[device]) for axis in axes[1]]
        sizes = [
            _bytes(_count(inside[device], physical.shape) * transform.dtype.itemsize),
            _bytes(_count(modes[device], layout.shape) * complex_size),
        ]
        rows.append([str(number), str(device.process_index), *spaces, *waves, *sizes])
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    return ["  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]


def _bounds(axis: str, layout: Any, index: Sequence[slice]) -> tuple[int, int]:
    """First and last valid entry of a device's part along `axis`; last < first if the part is all padding."""
    place = layout.order.index(axis)
    start, stop, _ = index[place].indices(layout.shape[place])
    return start, min(stop, layout.valid[place]) - 1


def _range(axis: str, layout: Any, index: Sequence[slice]) -> str:
    first, last = _bounds(axis, layout, index)
    return f"{first}-{last}" if first <= last else "none"


def _wavenumbers(axis: str, layout: Any, index: Sequence[slice]) -> str:
    first, last = _bounds(axis, layout, index)
    mode_numbers = layout.mode_numbers[axis]
    return f"{mode_numbers[first]}..{mode_numbers[last]}" if first <= last else "none"


def _count(index: Sequence[slice], shape: Sequence[int]) -> int:
    total = 1
    for part, n in zip(index, shape, strict=True):
        total *= len(range(*part.indices(n)))
    return total


def _bytes(count: int) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000  # type: ignore[assignment]
    return f"{count:.3g} GB"
