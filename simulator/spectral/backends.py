"""Chooses and builds the transform for a grid and a list of devices.

A backend is a module with `NAME`, `candidates(modes, count)`, `most(modes)`, `needs(modes)` and `build(modes,
candidate, devices, dtype, block, sequential, platform, kernels, exchange)`; a line in `BACKENDS` registers it.
"""

from collections.abc import Iterable, Iterator
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from simulator.errors import UserError
from simulator.spectral import jaxdecomp, native, staged, stages
from simulator.spectral.candidates import Candidate, Devices, Kernels, Modes, Shape
from simulator.spectral.exchange import Kind
from simulator.spectral.grid import Grid
from simulator.spectral.transform import Transform

BACKENDS: dict[str, ModuleType] = {b.NAME: b for b in (staged, jaxdecomp)}
"""The first is the default."""
DECOMPOSITIONS = ("auto", "slab", "pencil", *staged.PLANS)
"""Values of `fft.decomposition`; a plan's name asks for that plan."""


def candidates(
    modes: Modes, count: int, backend: str = staged.NAME, decomposition: str = "auto", mesh: Shape = "auto"
) -> list[Candidate]:
    """The ways to share the modes among `count` devices, in the order of the backends' own preference.

    Backend `auto` means all backends, decomposition `auto` all decompositions.
    """
    found = (c for b in _chosen(backend) for c in b.candidates(modes, count))
    return [c for c in found if c.is_a(decomposition) and c.is_on(mesh)]


def _chosen(backend: str) -> list[ModuleType]:
    return list(BACKENDS.values()) if backend == "auto" else [BACKENDS[backend]]


def usable_counts(
    modes: Modes, most: int, backend: str = staged.NAME, decomposition: str = "auto"
) -> list[int]:
    """The device counts up to `most` that the choice works on."""
    return sorted(_usable(modes, range(1, most + 1), backend, decomposition))


def largest_count(
    modes: Modes,
    most: int,
    backend: str = staged.NAME,
    decomposition: str = "auto",
    multiple: int = 1,
    mesh: Shape = "auto",
) -> int | None:
    """The largest of `usable_counts` that is a multiple of `multiple`; None where there is none."""
    bound = min(most, _most(modes, backend)) // multiple * multiple
    counts = range(bound, 0, -multiple)
    return next(_usable(modes, counts, backend, decomposition, mesh), None)


def _most(modes: Modes, backend: str) -> int:
    return max(b.most(modes) for b in _chosen(backend))


def _usable(
    modes: Modes, counts: Iterable[int], backend: str, decomposition: str, mesh: Shape = "auto"
) -> Iterator[int]:
    return (n for n in counts if candidates(modes, n, backend, decomposition, mesh))


def choose(
    modes: Modes, count: int, backend: str = staged.NAME, decomposition: str = "auto", mesh: Shape = "auto"
) -> list[Candidate]:
    """`candidates`, of which there is at least one.

    Raises UserError with the numbers and the nearest combinations that work where there is none.
    """
    found = candidates(modes, count, backend, decomposition)
    if not found:
        raise UserError(_refusal(modes, count, backend, decomposition))
    on_it = [c for c in found if c.is_on(mesh)]
    if not on_it:
        raise UserError(_refused_mesh(mesh, count, found))
    return on_it


def preferred(found: list[Candidate], kernels: Kernels, platform: str) -> Candidate:
    """The candidate to take: the first, but among slabs the one that sends and holds least with native kernels, for
    which all plans cost the same work, and on GPUs, which move least with it."""
    first = found[0]
    if first.plan in stages.SLABS and (platform == "gpu" or native.chosen(kernels, platform) == "native"):
        return next(
            (c for c in found if c.backend == first.backend and c.plan == stages.ZX_THEN_Y.name), first
        )
    return first


def _refused_mesh(mesh: Shape, count: int, found: list[Candidate]) -> str:
    shapes = dict.fromkeys(c.mesh if len(c.mesh) == 2 else (1, *c.mesh) for c in found)
    works = ", ".join(f"[{rows}, {columns}]" for rows, columns in shapes)
    what = " x ".join(map(str, mesh))
    size = prod(map(int, mesh))
    why = (
        f"is {size} devices, there are {count}"
        if size != count
        else "leaves some without planes of their own"
    )
    return f"fft.mesh: {what} {why}; what works: {works}"


def kernels_of(grid: Grid, kernels: Kernels) -> Kernels:
    """The kernels to take where `auto` is asked for: native ones work on neighbours along x, which a plane has not,
    and take three times as long there."""
    return "xla" if kernels == "auto" and grid.planar else kernels


def _refusal(modes: Modes, count: int, backend: str, decomposition: str) -> str:
    kind = "" if decomposition == "auto" else f"{decomposition} "
    fewer = largest_count(modes, count - 1, backend, decomposition)
    above = range(count + 1, _most(modes, backend) + 1)
    more = next(_usable(modes, above, backend, decomposition), None)
    near = [str(n) for n in (fewer, more) if n is not None]
    cures = [f"devices.count: {' or '.join(near)}"] if near else []
    others = {c.backend: c.decomposition for c in reversed(candidates(modes, count, "auto"))}
    if backend in others:
        cures.append(f"fft.decomposition: {others[backend]}")
    else:
        cures += [f"fft.backend: {b} ({d})" for b, d in others.items()]
    shape = " x ".join(map(str, modes.grid.shape))
    devices = f"{count} device{'s' * (count > 1)}"
    reasons = [b.needs(modes) for b in _chosen(backend)]
    return (
        f"devices.count: {devices} cannot share a {shape} grid in "
        f"{kind}transforms of {backend}: {'; '.join(reasons)}. What works: {', '.join(cures)}"
    )


def make_transform(
    grid: Grid,
    devices: Devices,
    dtype: Any = np.float64,
    *,
    backend: str = staged.NAME,
    decomposition: str = "auto",
    block: int | None = None,
    real: bool = True,
    every: bool = False,
    sequential: bool = False,
    kernels: Kernels = "auto",
    exchange: Kind = "full",
) -> Transform:
    """The transform of `grid` over `devices`.

    `real`: of real fields, else of complex ones. `every`: all modes, else those that dealiasing keeps. `block`:
    planes of physical space visited at a time; None chooses it. `sequential`: components are sent one after another,
    which holds less (custom_partitioning only). `kernels`: who does the local stages. `exchange`: what a
    nonlinear term sends.

    Raises UserError where grid, devices, backend and decomposition cannot work together.
    """
    modes, kernels = Modes(grid, real, every), kernels_of(grid, kernels)
    found = choose(modes, len(devices), backend, decomposition)
    candidate = preferred(found, kernels, devices[0].platform)
    return build(modes, candidate, devices, dtype, block, sequential, kernels=kernels, exchange=exchange)


def build(
    modes: Modes,
    candidate: Candidate,
    devices: Devices,
    dtype: Any = np.float64,
    block: int | None = None,
    sequential: bool = False,
    platform: str | None = None,
    kernels: Kernels = "auto",
    exchange: Kind = "full",
) -> Transform:
    """The transform that a candidate describes. `platform`: cpu or gpu, whose program it is; None: the devices'."""
    return BACKENDS[candidate.backend].build(
        modes, candidate, devices, dtype, block, sequential, platform, kernels, exchange
    )
