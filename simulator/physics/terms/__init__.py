"""Terms that are added to an equation: the contract, and functions of users."""

from typing import Any

from simulator.physics.terms.term import Term
from simulator.registry import Registry, subclass_of

_OURS = {"python": "simulator.physics.terms.python_term:PythonTerm"}
TERMS = Registry[type[Any]]("simulator.terms", _OURS, subclass_of(Term))

__all__ = ["TERMS", "Term"]
