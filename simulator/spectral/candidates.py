"""The ways in which a backend can distribute a grid's modes over a number of devices."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Literal

import numpy as np

from simulator.cluster.mesh import Device
from simulator.spectral.collectives import Kind
from simulator.spectral.grid import AXES, Grid

Devices = Sequence[Device]  # JAX devices of all processes.


Kernels = Literal["auto", "native", "xla"]
"""Implementation of a transform's local stages. `auto`: native code on processors if it can be
compiled, else XLA."""


Shape = Literal["auto"] | tuple[int, int]  # Rows and columns of a mesh.


@dataclass(frozen=True)
class Modes:
    """The coefficients that a transform keeps: of real or complex fields, all or only those that
    dealiasing keeps."""

    grid: Grid
    real: bool = True
    every: bool = False

    def mode_numbers(self, axis: str) -> np.ndarray:
        return self.grid.mode_numbers(axis, half=self.real and axis == "z", every=self.every)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Number of modes along x, y, z."""
        x, y, z = (len(self.mode_numbers(a)) for a in AXES)
        return x, y, z


@dataclass(frozen=True)
class Candidate:
    """One way to distribute a transform: a backend, its plan, and the arrangement of the
    devices."""

    backend: str
    decomposition: str  # `slab` or `pencil`.
    plan: str  # Name of the plan if a decomposition has several, else the decomposition.
    mesh: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.backend} {self.plan} on {' x '.join(map(str, self.mesh))}"

    def is_a(self, decomposition: str) -> bool:
        return decomposition in ("auto", self.decomposition, self.plan)

    def is_on(self, mesh: "Shape") -> bool:
        """Whether the candidate's devices are arranged like `mesh`; those of a slab form one row or
        one column."""
        if mesh == "auto" or self.mesh == tuple(mesh):
            return True
        return min(mesh) == 1 and self.mesh == (max(mesh),)


@dataclass(frozen=True)
class TransformOptions:
    """Options of a transform, for any candidate."""

    block: int | None = None
    """Number of planes of physical space visited at a time. None: on processors as many as fit in
    the cache, on GPUs all planes, because blocks cost memory traffic there."""
    sequential: bool = False
    """Saves memory: components in turn on processors, blocks on GPUs."""
    platform: str | None = None
    """cpu or gpu; None: the platform of the devices."""
    kernels: Kernels = "auto"
    exchange: Kind = "full"
    """Number format in the messages of `evaluate`; whole transforms send full numbers."""
    members: int = 1
    """The devices form this many equal parts; the grid is distributed over each part."""
    threads: int = 1
    """The threads of a processor's device, among which native kernels share their work."""


def factors(count: int) -> list[tuple[int, int]]:
    """All ways to write `count` as a product of two numbers, in rising order of the first."""
    small = [n for n in range(1, isqrt(count) + 1) if count % n == 0]
    large = [count // n for n in reversed(small) if n * n < count]
    return [(n, count // n) for n in small + large]
