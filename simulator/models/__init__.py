"""Equations. A new one is a file beside these and a line in `MODELS`."""

from simulator.models.boussinesq import Boussinesq
from simulator.models.mhd import Mhd
from simulator.models.model import Fields, Model, State, tendency
from simulator.models.navier_stokes import NavierStokes

MODELS: dict[str, type] = {
    "navier_stokes": NavierStokes,
    "boussinesq": Boussinesq,
    "mhd": Mhd,
}

__all__ = ["MODELS", "Fields", "Model", "State", "tendency"]
