"""Intervals, and the lengths over which statistics are taken."""

from typing import Annotated

from pydantic import AfterValidator

from simulator.settings import Positive
from simulator.spectral import Grid


def rising(ends: tuple[float, float]) -> tuple[float, float]:
    """Refuses an interval whose first end is not smaller than its second; for fields of
    settings."""
    if ends[0] >= ends[1]:
        raise ValueError(
            f"[{ends[0]:g}, {ends[1]:g}] is not increasing; the smaller end comes first"
        )
    return ends


Lengths = Annotated[tuple[Positive, Positive], AfterValidator(rising)]
"""The smallest and the largest of an interval of lengths."""


def spacing_to_half_box(grid: Grid) -> tuple[float, float]:
    """The smallest grid spacing and half the shortest side of the box, along the axes with more
    than one point."""
    present = [i for i, n in enumerate(grid.shape) if n > 1] or [0]
    return min(grid.spacing[i] for i in present), min(grid.box[i] for i in present) / 2
