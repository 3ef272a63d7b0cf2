"""The names that a file with a user's own equation imports.

from simulator.equations import Equation, Field, Positive
"""

from simulator.physics.models.equation import Equation, Field
from simulator.physics.models.fields import DerivedField, FieldSpec
from simulator.physics.models.observables.budget import Balance, Budget
from simulator.physics.models.observables.moments import FieldMoments
from simulator.physics.models.observables.observable import Observable
from simulator.physics.models.split_equation import SplitEquation
from simulator.settings import NonNegative, Positive
from simulator.spectral import Local, Points

__all__ = [
    "Balance",
    "Budget",
    "DerivedField",
    "Equation",
    "Field",
    "FieldMoments",
    "FieldSpec",
    "Local",
    "NonNegative",
    "Observable",
    "Points",
    "Positive",
    "SplitEquation",
]
