"""Systems of units with velocities in km/s."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from simulator.settings import Positive

HubbleParameter = Annotated[Positive, Field(ge=0.2, le=2)]
"""h, H0 in 100 km/s/Mpc."""


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
