"""Forcing. A new one is a class here and a line in `FORCINGS`."""

from typing import Any

from simulator.physics.forcing.band import ConstantPower, Linear, OrnsteinUhlenbeck
from simulator.physics.forcing.forcing import (
    AbcForcing,
    Forcing,
    Forcings,
    Kolmogorov,
    PythonForcing,
    TaylorGreenForcing,
)
from simulator.registry import Registry, subclass_of

_OURS: dict[str, type[Any]] = {
    "linear": Linear,
    "constant_power": ConstantPower,
    "ornstein_uhlenbeck": OrnsteinUhlenbeck,
    "kolmogorov": Kolmogorov,
    "taylor_green": TaylorGreenForcing,
    "abc": AbcForcing,
    "python": PythonForcing,
}
FORCINGS = Registry[type[Any]]("simulator.forcings", _OURS, subclass_of(Forcing))

__all__ = ["FORCINGS", "Forcing", "Forcings"]
