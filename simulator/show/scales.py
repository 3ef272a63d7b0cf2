"""Colour scales for the values of a field, one for all pictures that are compared."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

_MAPS = {"speed": "viridis"}
_WIDE = 30.0
"""A density that varies by more than this factor is shown by its logarithm."""
_DECADES = 7.0
"""The largest extent of a logarithmic scale below its upper end."""

Extend = Literal["neither", "min", "max", "both"]


@dataclass(frozen=True)
class Scale:
    """Colours from `low` to `high`, of the values or of their decimal logarithm."""

    low: float
    high: float
    colours: str
    extend: Extend = "neither"
    logarithmic: bool = False
    smooth: bool = True
    """Whether values may be interpolated between points."""

    def shown(self, values: np.ndarray) -> np.ndarray:
        """The values to be drawn, in single precision."""
        if self.logarithmic:
            values = np.log10(np.maximum(values, 10.0 ** (self.low - 1)))
        return values.astype(np.float32)

    def label(self, words: str) -> str:
        return rf"$\log_{{10}}$ {words}" if self.logarithmic else words


def is_density(field: str) -> bool:
    return field == "density" or field.endswith("_density")


def scale_of(field: str, samples: Sequence[np.ndarray]) -> Scale:
    """The scale for all of `samples`: cyclic for phases, symmetric about zero for values of both signs, logarithmic
    for densities with a large range, else starting at zero. A few extreme values are cut off, so that they do not
    darken the rest."""
    colours = _MAPS.get(field, "magma")
    if field == "phase":
        return Scale(-math.pi, math.pi, "twilight", smooth=False)
    values = np.concatenate([np.ravel(sample) for sample in samples])
    values = values[np.isfinite(values)]
    if not len(values) or not values.any():
        return Scale(0.0, 1.0, colours)
    least, most = float(values.min()), float(values.max())
    positive = values[values > 0]
    if is_density(field) and least >= 0 and most > _WIDE * float(np.quantile(positive, 0.01)):
        bottom = math.log10(float(np.quantile(positive, 0.002)))
        top = math.log10(float(positive.max()))
        low = max(bottom, top - _DECADES)
        cut = low > math.log10(float(positive.min())) + 0.1 or least <= 0
        return Scale(low, max(top, low + 0.1), colours, "min" if cut else "neither", logarithmic=True)
    if least < -1e-3 * max(most, 0):
        size = np.abs(values)
        most, nearly = float(size.max()), float(np.quantile(size, 0.999))
        cut = most > 1.25 * nearly > 0
        end = nearly if cut else most
        return Scale(-end, end, "RdBu_r", "both" if cut else "neither")
    if is_density(field) and least > most / 2:
        # Small waves on a background would be invisible on a scale from zero.
        middle, half = (most + least) / 2, max((most - least) / 2, 1e-12 * most)
        return Scale(middle - half, middle + half, colours)
    nearly = float(np.quantile(values, 0.999))
    return Scale(0.0, nearly, colours, "max") if most > 1.25 * nearly > 0 else Scale(0.0, most, colours)
