"""Equations. A new equation is a file in this package and a line in `MODELS`."""

from simulator.physics.models.boussinesq import Boussinesq
from simulator.physics.models.equation import Equation
from simulator.physics.models.fields import DerivedField, Fields, FieldSpec
from simulator.physics.models.memory import StateMemory
from simulator.physics.models.mhd import Mhd
from simulator.physics.models.navier_stokes import NavierStokes
from simulator.physics.models.python_model import PythonModel, admitted
from simulator.physics.models.split_equation import SplitEquation
from simulator.physics.models.state import Force, State
from simulator.registry import Registry

_OURS: dict[str, type[Equation]] = {
    "navier_stokes": NavierStokes,
    "boussinesq": Boussinesq,
    "mhd": Mhd,
    "python": PythonModel,
}
MODELS = Registry[type[Equation]]("simulator.models", _OURS, admitted)

__all__ = [
    "MODELS",
    "DerivedField",
    "Equation",
    "FieldSpec",
    "Fields",
    "Force",
    "SplitEquation",
    "State",
    "StateMemory",
]
