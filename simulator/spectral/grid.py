"""The periodic box: its points, its modes, and the modes that dealiasing keeps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self, TypeVar

import numpy as np

Dealias = Literal["two_thirds", "spherical", "phase_shift", "none"]
AXES = "xyz"
T = TypeVar("T")


def shell_at(ratio: Any) -> Any:
    """The shell n of a mode with |k| / dk = `ratio`, a number or an array: shell n holds (n - 1/2)
    dk <= |k| < (n + 1/2) dk.

    In a box of rational proportions many modes lie exactly between two shells. The added 1e-9 puts
    these modes into the upper shell, whatever the round-off of k."""
    return (ratio + (0.5 + 1e-9)) // 1


@dataclass(frozen=True)
class Grid:
    """A periodic box of `box` lengths with `shape` points.

    A mode is identified by its signed integer wavenumbers (kx, ky, kz) in units of 2 pi / L_i. Real
    fields keep |k_i| <= `kept[i]`; `two_thirds` keeps (N_i - 1) // 3, which leaves quadratic
    products free of aliasing. `spherical` and `phase_shift` keep the modes within 2 sqrt(2) / 3 of
    the Nyquist wavenumber; for their treatment of aliasing see `simulator.spectral.transform`."""

    shape: tuple[int, int, int]
    box: tuple[float, float, float] = (2 * math.pi, 2 * math.pi, 2 * math.pi)
    dealias: Dealias = "two_thirds"
    given_shell_width: float | None = None  # Of spectra; None: the largest fundamental wavenumber.
    dimensions: int = 3
    """The number of axes that the user sees, the last ones of arrays, which keep three axes: the
    first axes of a plane or a line have one point. The real transform thus halves an axis of the
    user, and both axes of a plane can be distributed over devices. The order is cyclic, which keeps
    cross products and curls in a plane right-handed."""

    @classmethod
    def of(cls, shape: Sequence[int], box: Sequence[float], *further: Any) -> Self:
        """The grid of a box in the user's terms, with one to three axes."""
        hidden = (1,) * (3 - len(shape))
        return cls((*hidden, *shape), (*hidden, *box), *further, dimensions=len(shape))  # type: ignore[arg-type]

    @property
    def axes(self) -> str:
        """The axes that the user sees, by their names in arrays: "yz" for a plane, whose axes the
        user calls x and y."""
        return AXES[-self.dimensions :]

    @property
    def names(self) -> dict[str, str]:
        """The user's names of `axes`."""
        return dict(zip(self.axes, AXES, strict=False))

    @property
    def in_words(self) -> str:
        """Its number of dimensions, for messages: `two dimensions`."""
        return ("one dimension", "two dimensions", "three dimensions")[self.dimensions - 1]

    def seen(self, per_axis: Sequence[T]) -> tuple[T, ...]:
        """The elements of `per_axis` (for x, y, z) that belong to the axes that the user sees."""
        return tuple(per_axis[-self.dimensions :])

    @cached_property
    def kept(self) -> tuple[int, int, int]:
        match self.dealias:
            case "two_thirds":
                kept = [(n - 1) // 3 for n in self.shape]
            case "spherical" | "phase_shift":
                kept = [min((n - 1) // 2, math.floor(math.sqrt(8 / 9) * n / 2)) for n in self.shape]
            case "none":  # an even grid's Nyquist planes are not part of the state
                kept = [(n - 1) // 2 for n in self.shape]
        return (kept[0], kept[1], kept[2])

    @property
    def spherical(self) -> bool:
        """Whether the kept modes lie within an ellipsoid inside the box that `kept` spans."""
        return self.dealias in ("spherical", "phase_shift")

    @property
    def points(self) -> int:
        return math.prod(self.shape)

    @property
    def volume(self) -> float:
        return math.prod(self.box)

    @property
    def modes(self) -> float:
        """About the number of modes that real fields keep; of spheres their part of the box."""
        axes = [2 * kept + 1 for kept in self.kept if kept]
        filled = {2: math.pi / 4, 3: math.pi / 6}.get(len(axes), 1) if self.spherical else 1
        return filled * math.prod(axes)

    @cached_property
    def spacing(self) -> tuple[float, float, float]:
        """Distance between neighbouring points along x, y, z."""
        dx, dy, dz = (length / n for length, n in zip(self.box, self.shape, strict=True))
        return (dx, dy, dz)

    @cached_property
    def fundamental(self) -> tuple[float, float, float]:
        """Wavenumber 2 pi / L_i of the integer mode 1 along x, y, z."""
        kx, ky, kz = (2 * math.pi / length for length in self.box)
        return (kx, ky, kz)

    @property
    def shell_width(self) -> float:
        """dk of the shells (see `shell_at`): by default max_i 2 pi / L_i over the axes that have
        modes."""
        if self.given_shell_width is not None:
            return self.given_shell_width
        units = [u for u, n in zip(self.fundamental, self.shape, strict=True) if n > 1]
        return max(units, default=self.fundamental[0])

    @property
    def largest_wavenumber(self) -> float:
        """Radius of the largest sphere of kept modes."""
        axes = [
            k * w for k, w, n in zip(self.kept, self.fundamental, self.shape, strict=True) if n > 1
        ]
        return min(axes, default=0.0)

    def mode_numbers(self, axis: str, *, half: bool = False, every: bool = False) -> np.ndarray:
        """Signed integer wavenumbers along `axis` in storage order: 0, 1, ..., -2, -1.

        `half`: only those >= 0 (the stored half of a real field). `every`: without truncation."""
        n, kept = self.shape[AXES.index(axis)], self.kept[AXES.index(axis)]
        if every:
            return np.arange(n // 2 + 1) if half else np.fft.fftfreq(n, 1 / n).round().astype(int)
        positive = np.arange(kept + 1)
        return positive if half else np.concatenate([positive, np.arange(-kept, 0)])
