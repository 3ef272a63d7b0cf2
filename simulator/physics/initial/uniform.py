"""A homogeneous state."""

from typing import Literal

import jax
import jax.numpy as jnp

from simulator.errors import UserError
from simulator.physics.initial.initial import (
    Fields,
    Initial,
    ParticleMatter,
    StartFiles,
    from_values,
)
from simulator.physics.models import Equation
from simulator.physics.models.damping import absent
from simulator.physics.models.fields import along_axes
from simulator.physics.particles import ParticleSet
from simulator.settings import AxisVector, Positive, Settings


class UniformSettings(Settings):
    kind: Literal["uniform"] = "uniform"
    density: Positive = 1.0
    """Mass density everywhere."""
    velocity: AxisVector = (0.0, 0.0, 0.0)
    """Velocity of gas and particles, one number for each axis of the grid; a wave function rests."""


class Uniform(Initial):
    """The same density and velocity, or the wave function sqrt(density), everywhere; particles on a
    cubic lattice."""

    Settings = UniformSettings

    def build(self, model: Equation, files: StartFiles) -> Fields:
        s = self.settings
        transform = model.transform
        wanted = model.initial_shapes
        if "velocity" not in wanted and any(s.velocity):
            raise UserError(f"velocity: this model has no velocity ({', '.join(wanted)})")
        if not {"density", "psi", "velocity"}.intersection(wanted):
            raise UserError(
                f"kind: uniform gives density, psi and velocity, not {', '.join(wanted)}"
            )
        shape = transform.physical.seen_shape
        velocity = along_axes(transform.grid, "velocity", s.velocity)

        def values(*points):
            known = {
                "density": jnp.full(shape, s.density, transform.dtype),
                "psi": jnp.full(shape, jnp.sqrt(s.density), transform.dtype),
                "velocity": jnp.stack([jnp.full(shape, v, transform.dtype) for v in velocity]),
            }
            return {name: value for name, value in known.items() if name in wanted}

        return from_values(transform, values)

    def place(self, matter: ParticleMatter, files: StartFiles) -> ParticleSet:
        """Equal masses at undisturbed places."""
        speed = along_axes(matter.transform.grid, "velocity", self.settings.velocity)
        velocity = jnp.asarray(speed, jnp.float64)[:, None]
        if absent(*speed):
            return matter.arranged(self.settings.density)

        def motion(q: jax.Array) -> tuple[jax.Array, jax.Array]:
            return jnp.zeros_like(q), jnp.broadcast_to(velocity, q.shape)

        return matter.arranged(self.settings.density, motion)
