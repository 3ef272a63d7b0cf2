"""How terms are added to an equation."""

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from simulator.physics.terms.term import Term


class Extensible(Protocol):
    """An equation with its terms."""

    terms: Sequence[Term]


Model = TypeVar("Model", bound=Extensible)


class Extension(Generic[Model]):
    """Gives an equation its terms, and adapts its products to them."""

    def add(self, model: Model, terms: Sequence[Term]) -> None:
        model.terms = terms
