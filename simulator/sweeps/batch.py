"""One compiled step for many runs: the numbers of a configuration as arrays, batched with `vmap`.

A simulation is built anew inside the traced function, from settings with arrays in place of numbers. So nothing of
a model or a forcing has to be written for this, as long as it treats its numbers as numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simulator.models import State
from simulator.run.simulation import Simulation
from simulator.settings import Settings
from simulator.stepping import Until

Values = dict[str, Any]
"""Scalars by key: `model.viscosity`, `time.dt`."""


class BatchedStep:
    """What `simulation` computes, for other values of `keys`: each function takes these values first."""

    def __init__(self, simulation: Simulation, keys: Sequence[str]):
        self._simulation, self.keys = simulation, tuple(keys)

    def values(self, numbers: Mapping[str, float]) -> Values:
        """One run's values, of the types that the step needs: the equations are computed in the fields' precision,
        the clock in double."""
        dtype = self._simulation.dtype
        return {
            key: np.asarray(numbers[key], np.float64 if key.startswith("time.") else dtype)
            for key in self.keys
        }

    def variant(self, values: Values) -> Simulation:
        """The simulation with these values, which may be traced."""
        config = self._simulation.config
        for key, value in values.items():
            config = with_value(config, key, value)
        given = self._simulation
        return Simulation(config, cluster=given.cluster, inputs=given.inputs, report=given.report)

    def advance(self, values: Values, state: State, until: Until) -> State:
        """The loop over steps of one run; `vmap` makes it that of many."""
        return self.variant(values).advance(state, until)

    @cached_property
    def together(self) -> Callable[..., tuple[State, ...]]:
        """Compiled: (values, states, untils), a tuple over the runs each, to the runs' new states."""

        def advance_together(
            values: tuple[Values, ...], states: tuple[State, ...], untils: tuple[Until, ...]
        ) -> tuple[State, ...]:
            stacked = (
                jax.tree.map(lambda *leaves: jnp.stack(leaves), *each) for each in (values, states, untils)
            )
            found = jax.vmap(self.advance)(*stacked)
            return tuple(jax.tree.map(lambda leaf, i=i: leaf[i], found) for i in range(len(states)))

        name = self._simulation.transform.name
        advance_together.__name__ = f"advance_together_{type(self._simulation.model).__name__}_{name}"
        return jax.jit(advance_together)

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
        """Why the step cannot be traced, batched, with arrays for `keys`; None where it can. Needs no device."""
        until = Until(np.float64(0), np.float64(0), np.int64(0))
        given = (self.values(dict.fromkeys(self.keys, 1.0)), self._simulation.template, until)

        def twice(leaf: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((2, *leaf.shape), leaf.dtype)

        return _obstacle(jax.vmap(self.advance), *jax.tree.map(twice, given))

    def shares(self, measure: Callable[[Values, State], Any]) -> bool:
        """Whether one program of `measure` serves all runs: it traces with arrays for `keys`."""
        values = self.values(dict.fromkeys(self.keys, 1.0))
        return _obstacle(measure, values, self._simulation.template) is None


def _obstacle(function: Callable[..., Any], *arguments: Any) -> str | None:
    try:
        jax.eval_shape(function, *arguments)
    except (TypeError, ValueError, NotImplementedError, jax.errors.JAXTypeError) as error:
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return None


def with_value(settings: Any, key: str, value: Any) -> Any:
    """Settings with another value of `key` (`model.scalars.0.diffusivity`), not validated: it may be an array."""
    name, _, rest = key.partition(".")
    if isinstance(settings, tuple | list):
        i = int(name)
        inner = with_value(settings[i], rest, value) if rest else value
        return (*settings[:i], inner, *settings[i + 1 :])
    assert isinstance(settings, Settings)
    inner = with_value(getattr(settings, name), rest, value) if rest else value
    return settings.model_copy(update={name: inner})
