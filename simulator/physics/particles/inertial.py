"""Small spheres with inertia, dragged along by the fluid."""

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

import jax
import jax.numpy as jnp
from pydantic import model_validator

from simulator.physics.particles.particle_set import ParticleSet
from simulator.physics.particles.sampled import ACCELERATION, VELOCITY, Fluid
from simulator.physics.particles.species import Memory, ParticleSettings, Records, Species, crossing_rate
from simulator.settings import Positive, Vector, wrong


class InertialSettings(ParticleSettings):
    kind: Literal["inertial"] = "inertial"
    relaxation_time: Positive | None = None
    """tau: the time in which a particle adapts to the velocity of the fluid."""
    stokes_number: Positive | None = None
    """tau over the Kolmogorov time of the initial flow, (viscosity / dissipation)^(1/2) = 1 / rms vorticity."""
    density_ratio: Positive | None = None
    """Density of the particles over that of the fluid; by default they are so heavy that the fluid's acceleration has
    no effect on them."""
    gravity: Vector = (0.0, 0.0, 0.0)
    """Gravitational acceleration (length / time^2), without buoyancy."""

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        if (self.relaxation_time is None) == (self.stokes_number is None):
            raise wrong("relaxation_time", "give one of relaxation_time and stokes_number")
        return self


class Inertial(Species):
    """dx/dt = v,  dv/dt = (u - v) / tau + beta Du/Dt + (1 - beta) g,  beta = 3 / (2 rho_p / rho_f + 1).

    The forces are Stokes drag, the fluid's acceleration with the added mass, and gravity with buoyancy; the drag -v /
    tau is solved exactly. Without `density_ratio` beta is 0. Maxey & Riley, Phys. Fluids 26, 883 (1983), without the
    history force and the corrections for the flow's curvature; Calzavarini et al., J. Fluid Mech. 607, 13 (2008), eq.
    2.1.
    """

    Settings = InertialSettings
    advanced: ClassVar[tuple[str, ...]] = ("position", "velocity")

    @property
    def beta(self) -> float:
        ratio = self.settings.density_ratio
        return 0.0 if ratio is None else 3 / (2 * ratio + 1)

    @property
    def gravity(self) -> tuple[float, float, float]:
        return self.settings.gravity

    @property
    def _key(self) -> str:
        return f"{self.name}_relaxation_time"

    def memory(self, vorticity: jax.Array) -> dict[str, jax.Array]:
        s = self.settings
        if s.relaxation_time is not None:
            return {}
        return {self._key: s.stokes_number / vorticity.astype(jnp.float64)}

    def relaxation_time(self, memory: Memory) -> jax.Array:
        """tau in double precision."""
        tau = self.settings.relaxation_time
        return memory[self._key] if tau is None else jnp.float64(tau)

    def begin(self, records: Records, fluid: Fluid) -> dict[str, jax.Array]:
        """The particles start with the velocity of the fluid, unless the start sets another."""
        velocity = records.get("velocity")
        if velocity is None:
            velocity = fluid((VELOCITY,), records["position"])[VELOCITY]
        return {"velocity": velocity, "start_velocity": velocity}

    def motion(self, records: Records, fluid: Fluid, memory: Memory) -> tuple[jax.Array, jax.Array]:
        velocity = records["velocity"]
        explicit = self.rates(records, fluid, memory)["velocity"]
        return velocity, explicit + self.linear(memory)["velocity"] * velocity

    def rates(self, records: Records, fluid: Fluid, memory: Memory) -> dict[str, jax.Array]:
        beta, tau = self.beta, self.relaxation_time(memory)
        gravity = (1 - beta) * jnp.asarray(self.settings.gravity)[:, None]
        if beta == 0:
            acceleration = gravity
            sampled = fluid((VELOCITY,), records["position"])
        else:
            sampled = fluid((VELOCITY, ACCELERATION), records["position"])
            acceleration = beta * sampled[ACCELERATION] + gravity
        return {"position": records["velocity"], "velocity": sampled[VELOCITY] / tau + acceleration}

    def linear(self, memory: Memory) -> dict[str, jax.Array]:
        return {"velocity": -1 / self.relaxation_time(memory)}

    def rate(self, particles: ParticleSet, spacing: Sequence[float], memory: Memory) -> jax.Array:
        return jnp.maximum(crossing_rate(particles, spacing), 1 / self.relaxation_time(memory))
