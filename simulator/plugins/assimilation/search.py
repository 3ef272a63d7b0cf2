"""A search for the flow behind observations: its run, and the protocol of the methods.

`assimilation` asks a search for its first point, for one point after the other until the search is
finished, and for the flow of the last one. A point is stored as a state and a few numbers, from
which the search continues in another process."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Generic, TypeVar

import jax
import numpy as np

from simulator.physics.models import Fields, State
from simulator.plugins.assimilation.background import Prior, freedom
from simulator.plugins.assimilation.observations import Data, Observed, step_length
from simulator.spectral.layout import Layout

At = TypeVar("At")


class Search(ABC, Generic[At]):
    """A method of assimilation: runs from starts of the prior, beside their observations. `At` is
    the type of the points of the search."""

    shown = 0  # The index of the observation time at which the report shows the recovered flow.

    def __init__(self, observed: Sequence[Observed], background: Prior):
        self.simulation = background.simulation
        self.observed = observed
        self.background = background
        self.dt = step_length(self.simulation)
        self.steps = np.unique(np.concatenate([one.steps for one in observed]))

    def layout(self, field: str) -> Layout:
        """The layout of the coefficients of a field."""
        return self.simulation.model.transforms[field].layout

    def data(self, step: int) -> Data:
        """Values and weights of all observations at a step; zeros if there are none."""
        pairs = []
        for one in self.observed:
            at = np.flatnonzero(one.steps == step)
            index = at[0] if len(at) else 0
            pairs.append(
                (one.values[index], one.weight[index] * np.asarray(len(at) > 0, one.weight.dtype))
            )
        return tuple(pairs)

    def number(self, end: int) -> int:
        """The number of observed values until the step `end`."""
        return sum(int((one.weight[one.steps <= end] > 0).sum()) for one in self.observed)

    def segments(self, end: int) -> list[tuple[int, int]]:
        """The number of steps before each time of observations until the step `end`, and that
        step."""
        ends = [0, *(int(step) for step in self.steps if step <= end)]
        return [(b - a, b) for a, b in pairwise(ends)]

    def started(self, xi: Fields, mean: Fields, root: Mapping[str, jax.Array]) -> State:
        state = self.simulation.begin(replace(self.background, mean=mean, root=root).fields(xi))
        # The residual of the energy budget influences no step.
        return replace(state, memory=replace(state.memory, residual=None))

    @cached_property
    def start(self) -> Callable[[Fields], State]:
        """The compiled function from the control variables to the start."""
        # A function must not close over arrays that several processes share.
        return partial(jax.jit(self.started), mean=self.background.mean, root=self.background.root)

    @cached_property
    def shells(self) -> Callable[[str, jax.Array], jax.Array]:
        """The compiled function from a field's name and coefficients to half their sum of squares
        by shell."""

        def shells(name: str, field: jax.Array) -> jax.Array:
            layout = self.layout(name)
            return layout.shell_sum((abs(field) ** 2).reshape(-1, *layout.shape).sum(0)) / 2

        return jax.jit(shells, static_argnums=0)

    def spectra(self, fields: Fields) -> dict[str, np.ndarray]:
        """The wavenumbers of the shells, the spectrum of `fields` and that of the prior, for each
        uncertain field."""
        result: dict[str, np.ndarray] = {}
        for name in self.background.root:
            layout = self.layout(name)
            spectrum = np.asarray(jax.block_until_ready(self.shells(name, fields[name])))
            result |= {f"k_{name}": layout.shell_wavenumbers(), f"start_{name}": spectrum}
        return result | {f"prior_{n}": prior for n, prior in self.prior_shells().items()}

    def prior_shells(self) -> dict[str, np.ndarray]:
        """Half the prior's variance in each shell, by uncertain field."""
        variances = {}
        for name, root in self.background.root.items():
            of_component = np.asarray(jax.block_until_ready(self.shells(name, root)))
            variances[name] = freedom(self.simulation, name) * of_component
        return variances

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
    def stored(self, at: At) -> tuple[State, Mapping[str, Any]]:
        """Everything on which the next point depends: arrays, and numbers that JSON can hold."""

    @abstractmethod
    def template(self) -> State:
        """The names, shapes and types of the stored arrays."""

    @abstractmethod
    def loaded(self, state: State, numbers: Mapping[str, Any]) -> At:
        """The point that was `stored` so."""

    @abstractmethod
    def recovered(self, at: At, say: Callable[[str], None]) -> tuple[State, dict[str, Any]]:
        """The flow of the last point, and the arrays of the result. `say` logs a line."""
