"""The protocol of a search for the flow behind observations.

`assimilation` asks a search for its first point, for one point after the other until the search is
finished, and for the flow of the last one. A point is stored as a state and a few numbers, from
which the search continues in another process."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from simulator.learn.observations import ObservedRun
from simulator.physics.models import State


class SearchPoint(Protocol):
    @property
    def numbers(self) -> Mapping[str, Any]:
        """The numbers of the point, which JSON can hold."""
        ...


At = TypeVar("At", bound=SearchPoint)


class Search(ObservedRun, ABC, Generic[At]):
    """A method of assimilation; `At` is the type of its points."""

    @abstractmethod
    def first(self) -> At:
        """The point before the first observation has been used."""

    @abstractmethod
    def is_finished(self, at: At) -> bool:
        """Whether `at` is the last point."""

    @abstractmethod
    def next(self, at: At) -> tuple[At, dict[str, float], str]:
        """The next point, its row of the history, and the line about it. Raises RunFailure if a run
        is not finite."""

    @abstractmethod
    def stored(self, at: At) -> State:
        """Everything on which the next point depends, except for its numbers."""

    @abstractmethod
    def template(self) -> State:
        """The names, shapes and types of `stored`."""

    @abstractmethod
    def loaded(self, state: State, numbers: Mapping[str, Any]) -> At:
        """The point with this `stored` state and these numbers."""

    @abstractmethod
    def recovered(self, at: At, say: Callable[[str], None]) -> tuple[State, dict[str, Any]]:
        """The flow of the last point, and the arrays of the result. `say` logs a line."""
