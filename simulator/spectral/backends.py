"""Chooses and builds the transform for a grid and a list of devices."""

import itertools
from math import prod
from typing import Any

import numpy as np
from jax.typing import DTypeLike

from simulator.errors import UserError
from simulator.spectral import jaxdecomp, native, plans, staged
from simulator.spectral.backend import Backend
from simulator.spectral.candidates import (
    Candidate,
    Devices,
    Kernels,
    Modes,
    Shape,
    TransformOptions,
)
from simulator.spectral.grid import Grid
from simulator.spectral.transform import Transform
from simulator.words import counted

BACKENDS: dict[str, Backend] = {b.name: b for b in (staged.Staged(), jaxdecomp.Jaxdecomp())}
"""The first one is the default."""
DECOMPOSITIONS = ("auto", "slab", "pencil", *staged.PLANS)
"""Values of `fft.decomposition`."""
NEIGHBOURS = 4
"""GPUs that share a node everywhere."""
MOST_PADDING = 1.25
"""The largest cost of padding in messages."""


def candidates(
    modes: Modes,
    count: int,
    backend: str = staged.NAME,
    decomposition: str = "auto",
    mesh: Shape = "auto",
) -> list[Candidate]:
    """The ways to distribute the modes over `count` devices, in the order of the backends'
    preference.

    Backend `auto` means all backends, decomposition `auto` all decompositions."""
    all_of_them = (c for b in _chosen(backend) for c in b.candidates(modes, count))
    return [c for c in all_of_them if c.is_a(decomposition) and c.is_on(mesh)]


def _chosen(backend: str) -> list[Backend]:
    """The backends that are installed, or the named one. Raises UserError if that one is not."""
    if backend == "auto":
        return [b for b in BACKENDS.values() if not b.missing()]
    if missing := BACKENDS[backend].missing():
        raise UserError(f"fft.backend: {missing}")
    return [BACKENDS[backend]]


def most(modes: Modes, backend: str) -> int:
    """The largest number of devices that some decomposition can use."""
    return max(b.most(modes) for b in _chosen(backend))


def choose(
    modes: Modes,
    count: int,
    backend: str = staged.NAME,
    decomposition: str = "auto",
    mesh: Shape = "auto",
) -> list[Candidate]:
    """The `candidates`, at least one.

    Raises UserError if there are none; the message gives the numbers and the nearest combinations
    that work."""
    possible = candidates(modes, count, backend, decomposition)
    if not possible:
        raise UserError(_refusal(modes, count, backend, decomposition))
    on_mesh = [c for c in possible if c.is_on(mesh)]
    if not on_mesh:
        raise UserError(_refused_mesh(mesh, count, possible))
    return on_mesh


def preferred(modes: Modes, found: list[Candidate], kernels: Kernels, platform: str) -> Candidate:
    """The default choice: the first candidate. Among slabs, `zx_y` is preferred with native
    kernels, because all plans then do the same work and `zx_y` sends and stores least, and on GPUs,
    because `zx_y` has the least memory traffic. GPUs take pencils if slabs would send much padding;
    their columns are then neighbours on a node, so that only the smaller exchange, that of two
    truncated axes, leaves the node."""
    first = found[0]
    if platform == "gpu" and first.backend == staged.NAME:
        slab = len(first.mesh) == 1
        pencils = (c for c in found if c.backend == first.backend and c.mesh[1:] == (NEIGHBOURS,))
        if not slab or staged.padding(modes, first.mesh[0]) > MOST_PADDING:
            first = next(pencils, first)
    if first.plan in plans.SLABS and (
        platform == "gpu" or native.chosen(kernels, platform) == "native"
    ):
        wanted = (c for c in found if c.backend == first.backend and c.plan == plans.ZX_THEN_Y.name)
        return next(wanted, first)
    return first


def _refused_mesh(mesh: Shape, count: int, found: list[Candidate]) -> str:
    shapes = dict.fromkeys(c.mesh if len(c.mesh) == 2 else (1, *c.mesh) for c in found)
    works = ", ".join(f"[{rows}, {columns}]" for rows, columns in shapes)
    shape = " x ".join(map(str, mesh))
    size = prod(map(int, mesh))
    why = (
        "leaves devices without planes"
        if size == count
        else f"is {size} devices, there are {count}"
    )
    return f"fft.mesh: {shape} {why}; use one of: {works}"


def _refusal(modes: Modes, count: int, backend: str, decomposition: str) -> str:
    kind = "" if decomposition == "auto" else f"{decomposition} "
    bound, near = most(modes, backend), []
    for counts in (range(min(count - 1, bound), 0, -1), range(count + 1, bound + 1)):
        usable = (str(n) for n in counts if candidates(modes, n, backend, decomposition))
        near += itertools.islice(usable, 1)
    cures = [f"devices.count: {' or '.join(near)}"] if near else []
    others = {c.backend: c.decomposition for c in reversed(candidates(modes, count, "auto"))}
    if backend in others:
        cures.append(f"fft.decomposition: {others[backend]}")
    else:
        cures += [f"fft.backend: {b} ({d})" for b, d in others.items()]
    shape = " x ".join(map(str, modes.grid.shape))
    devices = counted(count, "device")
    reasons = [b.needs(modes) for b in _chosen(backend)]
    return (
        f"devices.count: {devices} cannot share a {shape} grid in "
        f"{kind}transforms of {backend}: {'; '.join(reasons)}. Possible: {', '.join(cures)}"
    )


def make_transform(
    grid: Grid,
    devices: Devices,
    dtype: DTypeLike = np.float64,
    backend: str = staged.NAME,
    decomposition: str = "auto",
    real: bool = True,
    every: bool = False,
    **options: Any,
) -> Transform:
    """The transform of `grid` over `devices`.

    `real`: the fields are real, else complex. `every`: all modes are kept, else only the modes that
    dealiasing keeps. `options`: the fields of `TransformOptions`.

    Raises UserError if grid, devices, backend and decomposition are incompatible."""
    modes, kernels = Modes(grid, real, every), options.pop("kernels", "auto")
    possible = choose(modes, len(devices), backend, decomposition)
    candidate = preferred(modes, possible, kernels, options.get("platform") or devices[0].platform)
    return build(modes, candidate, devices, dtype, kernels=kernels, **options)


def build(
    modes: Modes,
    candidate: Candidate,
    devices: Devices,
    dtype: DTypeLike = np.float64,
    **options: Any,
) -> Transform:
    """The transform that a candidate describes. `options`: the fields of `TransformOptions`."""
    return BACKENDS[candidate.backend].build(
        modes, candidate, devices, dtype, TransformOptions(**options)
    )
