"""How an equation takes terms and forces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from simulator.physics.terms.term import Term

if TYPE_CHECKING:
    from simulator.physics.models.equation import Equation

Model = TypeVar("Model", bound="Equation")


@dataclass(frozen=True)
class Extension(Generic[Model]):
    """Gives an equation its terms, and says where they and a forcing are added."""

    receives: Mapping[str, str] = field(default_factory=dict)
    """The products to which terms add their rates of fields, by field; other rates are products of
    their own."""
    transports: Mapping[str, str] = field(default_factory=dict)
    """The products to which terms add their fluxes of fields, by field."""
    pushed: str | None = None
    """The input to which a forcing is added; None: it is added to the rates of the fields."""
    unforced: str | None = None
    """The reason why the equation cannot be forced; None if it can."""

    def add(self, model: Model, terms: Sequence[Term]) -> None:
        """Gives the equation its terms."""
        model.terms = terms

    def diffuses(self, model: Model) -> Sequence[str]:
        """The fields that may have a viscosity or diffusivity that depends on the place."""
        return [name for name, shape in model.shapes.items() if not shape]

    def gradients(self, model: Model) -> Mapping[str, Sequence[float]]:
        """The mean gradients of fields, of which the equation evolves the fluctuations."""
        return {}
