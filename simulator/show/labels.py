"""Axis labels for runs of matter: units, if a run has them, and the scale factor in place of time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from simulator.show.style import evenly

_ASTRONOMICAL = {
    "length": r"\mathrm{kpc}",
    "wavenumber": r"\mathrm{kpc}^{-1}",
    "volume": r"\mathrm{kpc}^{3}",
    "density": r"M_\odot\,\mathrm{kpc}^{-3}",
    "column": r"M_\odot\,\mathrm{kpc}^{-2}",
    "mass": r"M_\odot",
    "time": r"\mathrm{kpc}\,(\mathrm{km/s})^{-1}",
    "velocity": r"\mathrm{km\,s}^{-1}",
}


@dataclass(frozen=True)
class Labels:
    """`model` is the block of a run's resolved configuration. Dimensionless runs have no units to show."""

    model: Mapping[str, Any]

    @property
    def comoving(self) -> bool:
        return bool(self.model.get("cosmology"))

    def unit(self, dimension: str) -> str:
        """`kpc` in mathematical text; empty if the run has no units."""
        return _ASTRONOMICAL.get(dimension, "") if self.model.get("units") == "kpc_km_s_msun" else ""

    def axis(self, words: str, dimension: str) -> str:
        """`comoving radius $r$ ($\\mathrm{kpc}$)`, with the parts that apply."""
        unit = self.unit(dimension)
        return ("comoving " if self.comoving else "") + words + (f" (${unit}$)" if unit else "")

    @cached_property
    def background(self) -> Any:
        """The expanding background of the run; None without one."""
        if not self.comoving:
            return None
        from simulator.models.cosmology import Background, CosmologySettings

        return Background(CosmologySettings(**self.model["cosmology"]))

    def scale_factor(self, time: float) -> float:
        """a at a time of the run; 1 without expansion."""
        return 1.0 if self.background is None else self.background.scale_factor_at(time)

    def rows(self, times: Sequence[float] | np.ndarray, most: int) -> list[int]:
        """At most `most` rows to show, including the first and the last, spread evenly in number; for an expanding
        run in the logarithm of the scale factor."""
        if self.background is None or len(times) <= most:
            return evenly(len(times), most)
        logs = np.log([self.scale_factor(float(time)) for time in times])
        return sorted({int(abs(logs - target).argmin()) for target in np.linspace(logs[0], logs[-1], most)})

    def moment(self, time: float) -> str:
        """`t = 0.5`, or `a = 0.1` for an expanding run."""
        if self.background is not None:
            return f"$a = {self.scale_factor(time):.3g}$"
        unit = self.unit("time")
        return f"$t = {time:.4g}" + (rf"\,{unit}$" if unit else "$")
