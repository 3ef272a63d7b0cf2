"""The contract of an expanding box: its scale factor at simulation times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from simulator.settings import Settings
from simulator.spectral.arrays import Number


class Expansion(Protocol):
    """The scale factor of a box at simulation times, which are 0 at the start."""

    settings: Any
    """`ExpansionSettings` with `start`, the scale factor at time 0."""
    latest: float
    """The largest scale factor that has a time."""

    @property
    def traced(self) -> bool:
        """Whether its numbers are traced, as in a gradient."""
        ...

    def scale_factor(self, time: Number | float) -> Number:
        """The scale factor at a time, traced."""
        ...

    def scale_factor_at(self, time: float) -> float:
        """The scale factor at a time, without JAX."""
        ...

    def time_of(self, a: float) -> float:
        """The time of a scale factor."""
        ...

    def ends(self, first: float, stop: float, count: int, spacing: str) -> np.ndarray:
        """The times of `count` steps from `first` to `stop` and of `first`, (count + 1,), for
        `time.spacing`."""
        ...


class ExpansionSettings(Settings):
    """The settings of an expanding box, the key `cosmology` of a model."""

    @classmethod
    def in_time(cls, data: dict[str, Any]) -> dict[str, Any]:
        """The data of a run's file, with simulation times in place of the scale factors and
        redshifts that a file may give."""
        return data

    @classmethod
    def misfit(cls, configuration: Mapping[str, Any]) -> tuple[str, str] | None:
        """A key of a resolved configuration that contradicts others, and the message; None if there
        is none."""
        return None

    def expansion(self) -> Expansion:
        raise TypeError(f"{type(self).__name__} does not define expansion")
