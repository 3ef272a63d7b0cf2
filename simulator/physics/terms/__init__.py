"""Terms that are added to an equation. A new kind is a file in this package and a line in
`TERMS`."""

from typing import Any

from simulator.physics.terms.term import Term
from simulator.registry import Registry, subclass_of

_OURS: dict[str, Any] = {
    "relax": "simulator.physics.terms.relax:Relax",
    "python": "simulator.physics.terms.python_term:PythonTerm",
    "viscosity": "simulator.physics.terms.viscosity:Viscosity",
}
TERMS = Registry[type[Any]]("simulator.terms", _OURS, subclass_of(Term))

__all__ = ["TERMS", "Term"]
