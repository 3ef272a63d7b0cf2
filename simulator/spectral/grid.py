"""The periodic box: its points, its modes and which of them dealiasing keeps."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

Dealias = Literal["two_thirds", "spherical", "none"]
AXES = "xyz"


@dataclass(frozen=True)
class Grid:
    """A periodic box of `box` lengths with `shape` points.

    A mode is named by its signed integer wavenumbers (kx, ky, kz) in units of 2 pi / L_i. Real fields keep
    |k_i| <= `kept[i]`; `two_thirds` keeps (N_i - 1) // 3, which leaves quadratic products free of aliasing.
    """

    shape: tuple[int, int, int]
    box: tuple[float, float, float] = (2 * math.pi, 2 * math.pi, 2 * math.pi)
    dealias: Dealias = "two_thirds"

    @cached_property
    def kept(self) -> tuple[int, int, int]:
        match self.dealias:
            case "two_thirds":
                kept = [(n - 1) // 3 for n in self.shape]
            case "spherical":
                kept = [min((n - 1) // 2, math.floor(math.sqrt(8 / 9) * n / 2)) for n in self.shape]
            case "none":  # an even grid's Nyquist planes are not part of the state
                kept = [(n - 1) // 2 for n in self.shape]
        return (kept[0], kept[1], kept[2])

    @property
    def points(self) -> int:
        return math.prod(self.shape)

    @property
    def volume(self) -> float:
        return math.prod(self.box)

    @property
    def spacing(self) -> tuple[float, float, float]:
        """Distance of neighbouring points along x, y, z."""
        dx, dy, dz = (length / n for length, n in zip(self.box, self.shape, strict=True))
        return (dx, dy, dz)

    @property
    def fundamental(self) -> tuple[float, float, float]:
        """Wavenumber 2 pi / L_i of the integer mode 1 along x, y, z."""
        kx, ky, kz = (2 * math.pi / length for length in self.box)
        return (kx, ky, kz)

    @property
    def largest_wavenumber(self) -> float:
        """Radius of the largest sphere of kept modes."""
        axes = [k * w for k, w, n in zip(self.kept, self.fundamental, self.shape, strict=True) if n > 1]
        return min(axes, default=0.0)

    def labels(self, axis: str, *, half: bool = False, every: bool = False) -> np.ndarray:
        """Signed integer wavenumbers along `axis` in storage order: 0, 1, ..., -2, -1.

        `half`: only those >= 0 (the stored half of a real field). `every`: without truncation.
        """
        n, kept = self.shape[AXES.index(axis)], self.kept[AXES.index(axis)]
        if every:
            return np.arange(n // 2 + 1) if half else np.fft.fftfreq(n, 1 / n).round().astype(int)
        positive = np.arange(kept + 1)
        return positive if half else np.concatenate([positive, np.arange(-kept, 0)])
