"""The contract of an expanding box: its scale factor at simulation times, and systems of units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

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

    def expansion(self) -> Expansion:
        raise TypeError(f"{type(self).__name__} does not define expansion")


@dataclass(frozen=True)
class Units:
    """Units of a run with velocities in km/s."""

    length: str
    mass: str
    density: str
    megaparsecs: float  # The unit of length in Mpc, or in Mpc / h if `per_h`.
    per_h: bool
    gravity: float  # G in length (km/s)^2 / mass.

    @property
    def hubble(self) -> float:
        """100 km/s/Mpc in km/s/length; 100 h km/s/Mpc if `per_h`."""
        return 100 * self.megaparsecs


UNITS = {
    "kpc_km_s_msun": Units("kpc", "Msun", "Msun/kpc^3", 1e-3, False, 4.30091727e-6),
    "mpc_h_km_s_msun_h": Units("Mpc/h", "Msun/h", "Msun h^2/Mpc^3", 1.0, True, 4.30091727e-9),
}
UnitsName = Literal["dimensionless", "kpc_km_s_msun", "mpc_h_km_s_msun_h"]


def in_units(text: str, units: str) -> str:
    """A field's units such as `mass/length^3` in the run's units."""
    if (unit := UNITS.get(units)) is None:
        return text
    return {
        "length/time": "km/s",
        "length^2/time^2": "km^2/s^2",
        "mass/length^3": unit.density,
    }.get(text, text)
