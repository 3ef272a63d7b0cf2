"""The box and the points in it."""

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from simulator.settings import Count, Positive, Settings


def _three(value: Any) -> Any:
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise ValueError(f"three values are needed, one for each of x, y and z, not {value!r}")
    return value


class GridSettings(Settings):
    shape: Annotated[tuple[Count, Count, Count], BeforeValidator(_three)] = (64, 64, 64)
    """Number of points along x, y and z; any numbers, powers of small primes are fast."""
    box: Annotated[tuple[Positive, Positive, Positive], BeforeValidator(_three)] = (
        2 * math.pi,
        2 * math.pi,
        2 * math.pi,
    )
    """Lengths of the periodic box along x, y and z; entries such as 2*pi are understood."""
    dealias: Literal["two_thirds", "spherical", "none"] = "two_thirds"
    """two_thirds keeps the modes with |k_i| <= (N_i - 1)//3; spherical those within 2 sqrt(2)/3 of the Nyquist
    wavenumber, with random phase shifts; none keeps all."""
