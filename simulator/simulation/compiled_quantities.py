"""The quantities of a state as compiled programs, each compiled once."""

from collections.abc import Callable
from functools import cached_property

import jax

from simulator.physics.forcing import Forcing
from simulator.physics.models import Fields, Model, State
from simulator.physics.particles.swarm import Swarm
from simulator.simulation import quantities


class CompiledQuantities:
    """Quantities computed from a state of a simulation. The members of an ensemble share the programs."""

    model: Model
    forcing: Forcing | None
    swarm: Swarm

    @cached_property
    def template(self) -> State:
        """Shapes and types of a state, without computing one."""
        raise NotImplementedError

    @cached_property
    def diagnostics(self) -> Callable[[State], dict[str, jax.Array]]:
        """The compiled function from a state to the scalars of diagnostics.csv."""
        return jax.jit(lambda state: quantities.diagnostics_of(self.model, self.forcing, state))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the diagnostics, in the model's order."""
        return quantities.columns_of(self.model, self.forcing, self.template)

    @cached_property
    def spectra(self) -> Callable[[State], dict[str, jax.Array]]:
        """Compiled: the shell spectra of a state."""
        return jax.jit(lambda state: self.model.spectra(self.model.contents(state)))

    def sampled(self, name: str, names: tuple[str, ...]) -> Callable[[State], dict[str, jax.Array]]:
        """The compiled function from a state to the fluid's quantities `names` at the positions of the particles
        `name`, as records `fluid_velocity` and so on."""
        key = f"{name} {names}"
        if key not in self._sampled:
            self._sampled[key] = jax.jit(
                lambda state: quantities.sampled(self.model, self.forcing, self.swarm, state, name, names)
            )
        return self._sampled[key]

    @cached_property
    def _sampled(self) -> dict[str, Callable[[State], dict[str, jax.Array]]]:
        return {}

    @cached_property
    def field_names(self) -> tuple[str, ...]:
        """The fields that output may request."""
        return tuple(self.model.specs())

    def values(self, name: str) -> Callable[[State], jax.Array]:
        """The compiled function from a state to the values of one field, evolved or derived, (..., x, y, z) or, in
        two dimensions, (..., x, y), zero in padding. Raises KeyError, which lists the fields, for another name."""
        if name not in self.field_names:
            self.model.spec(name)
        if name not in self._values:
            self._values[name] = jax.jit(
                lambda state: self.model.field_values(name, self.model.contents(state))
            )
        return self._values[name]

    @cached_property
    def _values(self) -> dict[str, Callable[[State], jax.Array]]:
        return {}

    @cached_property
    def are_finite(self) -> Callable[[Fields], dict[str, jax.Array]]:
        """The compiled function that tells for each field whether it is finite everywhere."""
        return jax.jit(quantities.are_finite)
