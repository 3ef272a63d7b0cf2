"""The state of a run, which an equation evolves."""

from collections.abc import Callable
from dataclasses import dataclass, field

import jax

from simulator.physics.models.fields import Fields
from simulator.physics.models.memory import StateMemory
from simulator.physics.particles.particle_set import ParticleSet
from simulator.spectral.arrays import Number, Whole

Force = Callable[[Fields, jax.Array], Fields]
"""(fields, time) to accelerations, by name of the accelerated field."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Everything that influences the next step, and so the content of a checkpoint.

    With a fixed dt the time is origin + since * dt: it is not accumulated."""

    fields: Fields
    time: Number
    step: Whole
    dt: Number  # The size of the last step; 0 before the first.
    origin: Number
    since: Whole
    memory: StateMemory = field(default_factory=StateMemory)
    # Trees of fields that multistep integrators carry.
    history: dict[str, Fields] = field(default_factory=dict)
    particles: dict[str, ParticleSet] = field(default_factory=dict)  # By name: matter, or tracers.
