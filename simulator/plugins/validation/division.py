"""The division of a field among processes and devices, in lines."""

from collections.abc import Mapping
from math import prod

from simulator.cluster.start import Cluster
from simulator.cluster.variables import recorded_variables
from simulator.spectral import Layout, PhysicalLayout, Transform, native
from simulator.words import aligned_lines, size


def division_lines(cluster: Cluster, transform: Transform, environ: Mapping[str, str]) -> list[str]:
    """Processes, devices, grid and transform, line by line; then the part of a field on each
    device."""
    mesh = transform.layout.mesh
    grid = transform.grid
    kinds = sorted({device.device_kind for device in cluster.devices})
    slurm = [
        f"{name}={value}"
        for name, value in recorded_variables(environ).items()
        if name.startswith("SLURM_")
    ]
    shape = " x ".join(map(str, grid.shape))
    rows = {
        "platform": f"{cluster.platform} ({', '.join(kinds)})",
        "processes": f"{cluster.num_processes} ({cluster.allocation.source})",
        "devices": f"{len(cluster.devices)}, {cluster.per_process} per process",
        "threads": f"{cluster.threads} per device",
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


def _shares(order: str, layout: Layout | PhysicalLayout) -> str:
    """`(x, y, z) = 64 x 64 x 64, y over slab`."""
    shape = layout.shape
    valid = layout.valid
    padding = "" if shape == valid else f" (padded from {' x '.join(map(str, valid))})"
    over = ", ".join(f"{axis} over {name}" for axis, name in layout.sharded.items())
    return f"({', '.join(order)}) = {' x '.join(map(str, shape))}{padding}, {over}"


def _parts(transform: Transform) -> list[str]:
    """A line for each device: its process, and its parts of a physical and of a spectral field,
    with the bytes of one component."""
    points = {axis: range(n) for axis, n in zip("xyz", transform.grid.shape, strict=True)}
    spaces = (
        ("", transform.physical, points, transform.dtype.itemsize),
        ("k", transform.layout, transform.layout.mode_numbers, 2 * transform.dtype.itemsize),
    )
    names = [f"{k}{axis}" for k, layout, *_ in spaces for axis in layout.sharded]
    rows = [["device", "process", *names, "physical", "spectral"]]
    for number, device in enumerate(transform.layout.mesh.devices.flat):
        ranges = []
        sizes = []
        for _, layout, entries, itemsize in spaces:
            index = layout.sharding().devices_indices_map(layout.shape)[device]
            bounds = [part.indices(n)[:2] for part, n in zip(index, layout.shape, strict=True)]
            for axis in layout.sharded:
                place = layout.order.index(axis)
                first = bounds[place][0]
                last = min(bounds[place][1], layout.valid[place]) - 1
                ranges.append(
                    f"{entries[axis][first]}..{entries[axis][last]}" if first <= last else "none"
                )
            sizes.append(size(prod(stop - start for start, stop in bounds) * itemsize))
        rows.append([str(number), str(device.process_index), *ranges, *sizes])
    return aligned_lines(rows, range(len(rows[0])))
