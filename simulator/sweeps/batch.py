"""One compiled step for many runs: the model's numbers as arrays, batched with `vmap`.

A model is built anew inside the traced function, from its settings with arrays in place of numbers. So nothing of
a model has to be written for this, as long as it treats its numbers as numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simulator.models import MODELS, Model, State
from simulator.run.simulation import Simulation
from simulator.settings import Settings
from simulator.stepping import TimeStep, Until, advance_of

Values = dict[str, Any]
"""Scalars by key: `model.viscosity`, `time.dt`."""


class BatchedStep:
    """What `simulation` computes, for other values of `keys`: each function takes these values first."""

    def __init__(self, simulation: Simulation, keys: Sequence[str]):
        self._simulation, self.keys = simulation, tuple(keys)

    def values(self, numbers: Mapping[str, float]) -> Values:
        """One run's values, of the types that the step needs: the model computes in the fields' precision, the
        clock in double."""
        dtype = self._simulation.dtype
        return {
            key: np.asarray(numbers[key], np.float64 if key.startswith("time.") else dtype)
            for key in self.keys
        }

    def model(self, values: Values) -> Model:
        """The model with these values."""
        settings = self._simulation.config.model
        for key, value in values.items():
            block, _, rest = key.partition(".")
            if block == "model":
                settings = with_value(settings, rest, value)
        return MODELS[settings.kind](settings, self._simulation.transform)

    def time_step(self, values: Values) -> TimeStep:
        """How dt is chosen with these values."""
        time = self._simulation.config.time
        fixed, cfl, largest = (values.get(f"time.{n}", getattr(time, n)) for n in ("dt", "cfl", "max_dt"))
        return TimeStep(fixed, cfl, largest)

    def advance(self, values: Values, state: State, until: Until) -> State:
        """The loop over steps of one run; `vmap` makes it that of many."""
        return advance_of(self.model(values), self._simulation.integrator, self.time_step(values))(
            state, until
        )

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
        return jax.jit(lambda values, state: self.model(values).diagnostics(state.fields, state.time))

    @cached_property
    def spectra(self) -> Callable[[Values, State], dict[str, jax.Array]]:
        """Compiled: the shell spectra."""
        return jax.jit(lambda values, state: self.model(values).spectra(state.fields))

    def field(self, name: str) -> Callable[[Values, State], jax.Array]:
        """Compiled: the values of one field, evolved or derived, (..., x, y, z)."""
        if name not in self._fields:
            evolved = name in self._simulation.model.components
            inverse = self._simulation.transform.inverse

            def values_of(values: Values, state: State) -> jax.Array:
                if evolved:
                    return inverse(state.fields[name])
                return self.model(values).derived()[name](state.fields)

            self._fields[name] = jax.jit(values_of)
        return self._fields[name]

    @cached_property
    def _fields(self) -> dict[str, Callable[[Values, State], jax.Array]]:
        return {}


def with_value(settings: Any, key: str, value: Any) -> Any:
    """Settings with another value of `key` (`scalars.0.diffusivity`), not validated: it may be an array."""
    name, _, rest = key.partition(".")
    if isinstance(settings, tuple | list):
        i = int(name)
        inner = with_value(settings[i], rest, value) if rest else value
        return (*settings[:i], inner, *settings[i + 1 :])
    assert isinstance(settings, Settings)
    inner = with_value(getattr(settings, name), rest, value) if rest else value
    return settings.model_copy(update={name: inner})


def traceable(simulation: Simulation, keys: Sequence[str]) -> bool:
    """Whether everything that a run computes can be traced, batched, with arrays for `keys`. Raises what the
    tracing raises where it cannot. Needs no device: shapes alone."""
    step = BatchedStep(simulation, keys)

    def twice(leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((2, *leaf.shape), leaf.dtype)

    clock = np.float64(0)
    given = (dict.fromkeys(keys, 1.0), simulation.template, Until(clock, clock, np.int64(0)))
    values, state, until = jax.tree.map(twice, (step.values(given[0]), *given[1:]))
    jax.eval_shape(jax.vmap(step.advance), values, state, until)
    for measured in (step.diagnostics, step.spectra, *(step.field(name) for name in simulation.field_names)):
        jax.eval_shape(jax.vmap(measured), values, state)
    return True
