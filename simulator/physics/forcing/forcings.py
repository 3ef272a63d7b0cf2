"""All forces of a run."""

from collections.abc import Mapping

import jax

from simulator.physics.forcing.forcing import Forcing
from simulator.physics.models import Fields
from simulator.physics.models.tendency import added
from simulator.spectral.arrays import Number, Numbers, Whole


class Forcings:
    """The sum of forces, by name. The arrays in their memory have the names `NAME_FORCE`; those of a
    single force have the names that it gives."""

    def __init__(self, forces: Mapping[str, Forcing]):
        self.forces = forces
        self._keys = {name: tuple(jax.eval_shape(f.memory)) for name, f in forces.items()}

    def _key(self, key: str, name: str) -> str:
        return key if len(self.forces) == 1 else f"{key}_{name}"

    def _of(self, force: str, memory: Numbers) -> Numbers:
        return {key: memory[self._key(key, force)] for key in self._keys[force]}

    def memory(self) -> Numbers:
        """The first values of the arrays that forces carry from step to step."""
        return {
            self._key(key, name): array
            for name, force in self.forces.items()
            for key, array in force.memory().items()
        }

    def renewed(self, memory: Numbers, step: Whole, dt: Number) -> Numbers:
        """The memory after step number `step` of length dt."""
        new: dict[str, jax.Array] = {}
        for name, force in self.forces.items():
            renewed = force.renewed(self._of(name, memory), step, dt)
            new |= {self._key(key, name): array for key, array in renewed.items()}
        return new

    def each(self, fields: Fields, time: Number, memory: Numbers) -> dict[str, Fields]:
        """The accelerations (field/time) by each force, by field."""
        return {
            name: force.acceleration(fields, time, self._of(name, memory))
            for name, force in self.forces.items()
        }

    def acceleration(self, fields: Fields, time: Number, memory: Numbers) -> Fields:
        """The sum of the accelerations, by field."""
        total: Fields = {}
        for accelerations in self.each(fields, time, memory).values():
            total = added(total, accelerations)
        return total
