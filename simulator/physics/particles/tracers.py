"""Tracers: particles that move with the fluid."""

from typing import ClassVar, Literal

import jax

from simulator.physics.particles.sampled import ACCELERATION, VELOCITY, Fluid
from simulator.physics.particles.species import Memory, ParticleSettings, Records, Species


class TracerSettings(ParticleSettings):
    kind: Literal["tracer"] = "tracer"


class Tracers(Species):
    """dx/dt = u(x, t)."""

    Settings = TracerSettings
    advanced: ClassVar[tuple[str, ...]] = ("position",)

    def begin(self, records: Records, fluid: Fluid) -> dict[str, jax.Array]:
        return {"start_velocity": fluid((VELOCITY,), records["position"])[VELOCITY]}

    def motion(self, records: Records, fluid: Fluid, memory: Memory) -> tuple[jax.Array, jax.Array]:
        sampled = fluid((VELOCITY, ACCELERATION), records["position"])
        return sampled[VELOCITY], sampled[ACCELERATION]

    def rates(self, records: Records, fluid: Fluid, memory: Memory) -> dict[str, jax.Array]:
        return {"position": fluid((VELOCITY,), records["position"])[VELOCITY]}
