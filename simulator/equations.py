"""The names that a file with a user's own equation imports.

from simulator.equations import Equation, Field, Positive
"""

from simulator.models.equation import Equation, Field
from simulator.models.fields import DerivedField, FieldSpec
from simulator.models.model import Balance
from simulator.models.split_equation import SplitEquation
from simulator.settings import NonNegative, Positive
from simulator.spectral import Local, Points

__all__ = [
    "Balance",
    "DerivedField",
    "Equation",
    "Field",
    "FieldSpec",
    "Local",
    "NonNegative",
    "Points",
    "Positive",
    "SplitEquation",
]
