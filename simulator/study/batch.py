"""One compiled step for many runs: numbers of the configuration become arrays, batched with `vmap`.

The simulation is rebuilt inside the traced function, from settings with arrays in place of numbers. Models and
forcings need no code for this as long as they do not branch on the values of their numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simulator.physics.models import State
from simulator.simulation import members
from simulator.simulation.advance import Until
from simulator.simulation.simulation import Simulation

Values = dict[str, Any]
"""Scalars by key: `model.viscosity`, `time.dt`."""


class BatchedStep:
    """The functions of `simulation` for other values of `keys`, which are their first argument."""

    def __init__(self, simulation: Simulation, keys: Sequence[str]):
        self._simulation, self.keys = simulation, tuple(keys)

    def values(self, numbers: Mapping[str, float]) -> Values:
        """The values of one run in the types of the step: the precision of the fields, double for the clock."""
        dtype = self._simulation.dtype
        return {
            key: np.asarray(numbers[key], np.float64 if key.startswith("time.") else dtype)
            for key in self.keys
        }

    def variant(self, values: Values) -> Simulation:
        """The simulation with these values, which may be traced."""
        return self._simulation.varied(values)

    def advance(self, values: Values, state: State, until: Until) -> State:
        """The loop over steps of one run, to be batched by `vmap`."""
        return self.variant(values).advance(state, until)

    @cached_property
    def together(self) -> Callable[..., tuple[State, ...]]:
        """Compiled: the new states of all runs from (values, states, untils), each a tuple over the runs."""

        def advance_together(
            values: tuple[Values, ...], states: tuple[State, ...], untils: tuple[Until, ...]
        ) -> tuple[State, ...]:
            stacked = (
                jax.tree.map(lambda *leaves: jnp.stack(leaves), *each) for each in (values, states, untils)
            )
            result = jax.vmap(self.advance)(*stacked)
            return tuple(jax.tree.map(lambda leaf, i=i: leaf[i], result) for i in range(len(states)))

        name = self._simulation.transform.name
        advance_together.__name__ = f"advance_together_{type(self._simulation.model).__name__}_{name}"
        return jax.jit(advance_together)

    @cached_property
    def on_parts(self) -> Callable[[Values, State, Until], State]:
        """Compiled: the same with the runs along a leading axis that is laid over the parts of the devices."""
        simulation = self._simulation

        def advance(values: Values, state: State, until: Until) -> State:
            return self.advance(values, state, until)

        advance.__name__ = f"advance_{type(simulation.model).__name__}_{simulation.transform.name}"
        mesh = simulation.transform.layout.mesh
        return members.together(advance, mesh, shardings=simulation.shardings(simulation.template))

    @cached_property
    def diagnostics(self) -> Callable[[Values, State], dict[str, jax.Array]]:
        """Compiled: the scalars of diagnostics.csv."""
        return jax.jit(lambda values, state: self.variant(values).diagnostics(state))

    @cached_property
    def spectra(self) -> Callable[[Values, State], dict[str, jax.Array]]:
        """Compiled: the shell spectra."""
        return jax.jit(lambda values, state: self.variant(values).spectra(state))

    def field(self, name: str) -> Callable[[Values, State], jax.Array]:
        """Compiled: the values of one field, evolved or derived, (..., x, y, z)."""
        if name not in self._fields:
            self._fields[name] = jax.jit(lambda values, state: self.variant(values).values(name)(state))
        return self._fields[name]

    @cached_property
    def _fields(self) -> dict[str, Callable[[Values, State], jax.Array]]:
        return {}

    def why_not(self) -> str | None:
        """The reason why the batched step cannot be traced with arrays for `keys`, or None. Needs no device."""
        until = Until(np.float64(0), np.float64(0), np.int64(0))
        arguments = (self.values(dict.fromkeys(self.keys, 1.0)), self._simulation.template, until)

        def twice(leaf: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((2, *leaf.shape), leaf.dtype)

        return _obstacle(jax.vmap(self.advance), *jax.tree.map(twice, arguments))

    def shares(self, measure: Callable[[Values, State], Any]) -> bool:
        """Whether one program of `measure` serves all runs, because it can be traced with arrays for `keys`."""
        values = self.values(dict.fromkeys(self.keys, 1.0))
        return _obstacle(measure, values, self._simulation.template) is None


def _obstacle(function: Callable[..., Any], *arguments: Any) -> str | None:
    try:
        jax.eval_shape(function, *arguments)
    except (TypeError, ValueError, NotImplementedError, jax.errors.JAXTypeError) as error:
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return None
