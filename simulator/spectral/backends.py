"""Chooses and builds the transform for a grid and a list of devices.

A backend is a module with `NAME`, `candidates(modes, count)`, `needs(modes)` and `build(modes, candidate, devices,
dtype, block, in_turn, platform)`; a line in `BACKENDS` registers it.
"""

from types import ModuleType
from typing import Any

import numpy as np

from simulator.errors import UserError
from simulator.spectral import jaxdecomp, staged
from simulator.spectral.choices import Candidate, Devices, Modes
from simulator.spectral.grid import Grid
from simulator.spectral.transform import Transform

BACKENDS: dict[str, ModuleType] = {b.NAME: b for b in (staged, jaxdecomp)}
"""The first is the default."""
DECOMPOSITIONS = ("auto", "slab", "pencil", *staged.PLANS)
"""Values of `fft.decomposition`; a plan's name asks for that plan."""


def candidates(
    modes: Modes, count: int, backend: str = staged.NAME, decomposition: str = "auto"
) -> list[Candidate]:
    """The ways to share the modes among `count` devices, in the order of the backends' own preference.

    Backend `auto` means all backends, decomposition `auto` all decompositions.
    """
    chosen = BACKENDS.values() if backend == "auto" else [BACKENDS[backend]]
    return [c for b in chosen for c in b.candidates(modes, count) if c.is_a(decomposition)]


def usable_counts(
    modes: Modes, most: int, backend: str = staged.NAME, decomposition: str = "auto"
) -> list[int]:
    """The device counts up to `most` that the choice works on; the last is what `devices.count: auto` takes."""
    return [n for n in range(1, most + 1) if candidates(modes, n, backend, decomposition)]


def choose(
    modes: Modes, count: int, backend: str = staged.NAME, decomposition: str = "auto"
) -> list[Candidate]:
    """`candidates`, of which there is at least one.

    Raises UserError with the numbers and the nearest combinations that work where there is none.
    """
    found = candidates(modes, count, backend, decomposition)
    if not found:
        raise UserError(_refusal(modes, count, backend, decomposition))
    return found


def _refusal(modes: Modes, count: int, backend: str, decomposition: str) -> str:
    kind = "" if decomposition == "auto" else f"{decomposition} "
    fewer = usable_counts(modes, count - 1, backend, decomposition)[-1:]
    more = [n for n in range(count + 1, 2 * count + 1) if candidates(modes, n, backend, decomposition)][:1]
    cures = [f"devices.count: {' or '.join(map(str, fewer + more))}"] if fewer or more else []
    others = {c.backend: c.decomposition for c in reversed(candidates(modes, count, "auto"))}
    if backend in others:
        cures.append(f"fft.decomposition: {others[backend]}")
    else:
        cures += [f"fft.backend: {b} ({d})" for b, d in others.items()]
    shape = " x ".join(map(str, modes.grid.shape))
    devices = f"{count} device{'s' * (count > 1)}"
    reasons = [BACKENDS[b].needs(modes) for b in (BACKENDS if backend == "auto" else [backend])]
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
    in_turn: bool = False,
) -> Transform:
    """The transform of `grid` over `devices`.

    `real`: of real fields, else of complex ones. `every`: all modes, else those that dealiasing keeps. `block`:
    planes of physical space visited at a time; None chooses it. `in_turn`: components are sent one after another,
    which holds less (custom_partitioning only).

    Raises UserError where grid, devices, backend and decomposition cannot work together.
    """
    modes = Modes(grid, real, every)
    return build(
        modes, choose(modes, len(devices), backend, decomposition)[0], devices, dtype, block, in_turn
    )


def build(
    modes: Modes,
    candidate: Candidate,
    devices: Devices,
    dtype: Any = np.float64,
    block: int | None = None,
    in_turn: bool = False,
    platform: str | None = None,
) -> Transform:
    """The transform that a candidate describes. `platform`: cpu or gpu, whose program it is; None: the devices'."""
    return BACKENDS[candidate.backend].build(modes, candidate, devices, dtype, block, in_turn, platform)
