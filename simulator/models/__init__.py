"""Equations. A new one is a file beside these and a line in `MODELS`."""

from simulator.models.boussinesq import Boussinesq
from simulator.models.composite import Composite
from simulator.models.mhd import Mhd
from simulator.models.model import Fields, Model, Remembering, SplitModel, State, own_transforms, tendency
from simulator.models.navier_stokes import NavierStokes
from simulator.models.schrodinger_poisson import SchrodingerPoisson
from simulator.models.self_gravitating_gas import SelfGravitatingGas

MODELS: dict[str, type] = {
    "navier_stokes": NavierStokes,
    "boussinesq": Boussinesq,
    "mhd": Mhd,
    "self_gravitating_gas": SelfGravitatingGas,
    "schrodinger_poisson": SchrodingerPoisson,
    "composite": Composite,
}

__all__ = ["MODELS", "Fields", "Model", "Remembering", "SplitModel", "State", "own_transforms", "tendency"]
