"""Species of particles that move with a fluid: the contract, tracers, and small spheres with
inertia."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
from pydantic import model_validator

from simulator.physics.names import is_word, naming
from simulator.physics.particles.interpolation import ACCELERATION, VELOCITY, Fluid, Interpolation
from simulator.physics.particles.particle_set import ParticleSet
from simulator.physics.particles.particle_start import RandomPlaces, Start, StoredPlaces
from simulator.settings import Count, Positive, Settings, Vector, wrong
from simulator.spectral.arrays import Number, Numbers, ParticleVectors

_WHAT = "particles; take a word of letters, digits and _, e.g. tracers"


class ParticleSettings(Settings):
    """Keys of every kind of particle that moves with a fluid."""

    name: Annotated[str, naming(_WHAT, is_word)]
    """Name of the particles in files."""
    count: Count | None = None
    """Number of particles; with start: snapshot that of the stored ones."""
    start: Start = RandomPlaces()
    """The initial positions: random, lattice, pairs, python or snapshot, or a block with such a
    kind and its keys."""
    stops_at: str | None = None
    """The name of a body of `terms`, a `relax` term of the velocity within a shape: particles that
    reach it stay with it."""
    interpolation: Interpolation = "cubic_spline"
    """Interpolation of the fluid's fields: cubic_spline (error of order dx^4) or linear (dx^2,
    cheaper)."""

    def given(self) -> bool:
        """Whether the number of particles is determined, by exactly one of `count` and a
        snapshot."""
        return (self.count is None) == isinstance(self.start, StoredPlaces)


Records = Mapping[str, jax.Array]


class Species:
    """One species in a run. Records are in double precision; vectors are (3, entries).

    The integrator of the fluid advances the records `advanced`, within its stages: `rates` is their
    explicit rate of change and `linear` the factor of a linear one, which is solved exactly."""

    Settings: ClassVar[type[ParticleSettings]]
    # Vector records that the integrator advances; `position` is among them.
    advanced: ClassVar[tuple[str, ...]]

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def gravity(self) -> tuple[float, float, float]:
        """The gravitational acceleration (length / time^2) that acts on the particles."""
        return (0.0, 0.0, 0.0)

    @property
    def records(self) -> dict[str, int]:
        """All records with their numbers of components (0: a scalar). `displacement` is the path
        since the start, through the faces of the box, `start_velocity` the velocity at the
        start."""
        return {**self.starts_with, "displacement": 3, "start_velocity": 3}

    @property
    def starts_with(self) -> Mapping[str, int]:
        """The records that a start may set."""
        return dict.fromkeys(self.advanced, 3)

    def begin(self, records: Records, fluid: Fluid) -> dict[str, ParticleVectors]:
        """The records that the start has not set, except those that are zero."""
        raise TypeError(f"{type(self).__name__} does not define begin")

    def motion(
        self, records: Records, fluid: Fluid, memory: Numbers
    ) -> tuple[ParticleVectors, ParticleVectors]:
        """Velocity (length/time) and acceleration (length/time^2) of the particles."""
        raise TypeError(f"{type(self).__name__} does not define motion")

    def memory(self, vorticity: Number) -> dict[str, jax.Array]:
        """Numbers by name that every step needs, from the rms vorticity (1/time) of the initial
        flow."""
        return {}

    def rates(self, records: Records, fluid: Fluid, memory: Numbers) -> dict[str, ParticleVectors]:
        """Explicit rates of change (1/time) of the records `advanced`, in any precision."""
        raise TypeError(f"{type(self).__name__} does not define rates")

    def linear(self, memory: Numbers) -> dict[str, Number]:
        """Factors (1/time) of linear rates, by record; records of `advanced` without a linear rate
        have no entry."""
        return {}

    def rate(
        self, particles: ParticleSet, spacing: Sequence[float], memory: Numbers
    ) -> Number | None:
        """The rate (1/time) of the particles that limits dt, besides the fluid's rate: dt = cfl /
        rate; None if there is no limit."""
        return None


def crossing_rate(particles: ParticleSet, spacing: Sequence[float]) -> Number:
    """The largest sum_i |v_i| / dx_i (1/time) of all particles, which have the record
    `velocity`."""
    v = particles.records["velocity"]
    total = sum(abs(v[i]) / h for i, h in enumerate(spacing))
    return jnp.where(particles.valid, total, 0).max()  # type: ignore[arg-type]


class TracerSettings(ParticleSettings):
    kind: Literal["tracer"] = "tracer"


class Tracers(Species):
    """dx/dt = u(x, t)."""

    Settings = TracerSettings
    advanced: ClassVar[tuple[str, ...]] = ("position",)

    def begin(self, records: Records, fluid: Fluid) -> dict[str, ParticleVectors]:
        return {"start_velocity": fluid((VELOCITY,), records["position"])[VELOCITY]}

    def motion(
        self, records: Records, fluid: Fluid, memory: Numbers
    ) -> tuple[ParticleVectors, ParticleVectors]:
        sampled = fluid((VELOCITY, ACCELERATION), records["position"])
        return sampled[VELOCITY], sampled[ACCELERATION]

    def rates(self, records: Records, fluid: Fluid, memory: Numbers) -> dict[str, ParticleVectors]:
        return {"position": fluid((VELOCITY,), records["position"])[VELOCITY]}


class InertialSettings(ParticleSettings):
    kind: Literal["inertial"] = "inertial"
    relaxation_time: Positive | None = None
    """tau: the time in which a particle adapts to the velocity of the fluid."""
    stokes_number: Positive | None = None
    """tau over the Kolmogorov time of the initial flow, (viscosity / dissipation)^(1/2) = 1 / rms
    vorticity."""
    density_ratio: Positive | None = None
    """Density of the particles over that of the fluid; by default they are so heavy that the
    fluid's acceleration has no effect on them."""
    gravity: Vector = (0.0, 0.0, 0.0)
    """Gravitational acceleration (length / time^2), without buoyancy."""

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        if (self.relaxation_time is None) == (self.stokes_number is None):
            raise wrong("relaxation_time", "give one of relaxation_time and stokes_number")
        return self


class Inertial(Species):
    """dx/dt = v,  dv/dt = (u - v) / tau + beta Du/Dt + (1 - beta) g,  beta = 3 / (2 rho_p / rho_f +
    1).

    The forces are Stokes drag, the fluid's acceleration with the added mass, and gravity with
    buoyancy; the drag -v / tau is solved exactly. Without `density_ratio` beta is 0. Maxey & Riley,
    Phys. Fluids 26, 883 (1983), without the history force and the corrections for the flow's
    curvature; Calzavarini et al., J. Fluid Mech. 607, 13 (2008), eq. 2.1."""

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

    def memory(self, vorticity: Number) -> dict[str, jax.Array]:
        s = self.settings
        if s.relaxation_time is not None:
            return {}
        return {self._key: s.stokes_number / vorticity.astype(jnp.float64)}

    def relaxation_time(self, memory: Numbers) -> Number:
        """tau (time) in double precision."""
        tau = self.settings.relaxation_time
        return memory[self._key] if tau is None else jnp.float64(tau)

    def begin(self, records: Records, fluid: Fluid) -> dict[str, ParticleVectors]:
        """The particles start with the velocity of the fluid, unless the start sets another."""
        velocity = records.get("velocity")
        if velocity is None:
            velocity = fluid((VELOCITY,), records["position"])[VELOCITY]
        return {"velocity": velocity, "start_velocity": velocity}

    def motion(
        self, records: Records, fluid: Fluid, memory: Numbers
    ) -> tuple[ParticleVectors, ParticleVectors]:
        velocity = records["velocity"]
        explicit = self.rates(records, fluid, memory)["velocity"]
        return velocity, explicit + self.linear(memory)["velocity"] * velocity

    def rates(self, records: Records, fluid: Fluid, memory: Numbers) -> dict[str, ParticleVectors]:
        beta = self.beta
        tau = self.relaxation_time(memory)
        gravity = (1 - beta) * jnp.asarray(self.settings.gravity)[:, None]
        if beta == 0:
            acceleration = gravity
            sampled = fluid((VELOCITY,), records["position"])
        else:
            sampled = fluid((VELOCITY, ACCELERATION), records["position"])
            acceleration = beta * sampled[ACCELERATION] + gravity
        return {"position": records["velocity"], "velocity": sampled[VELOCITY] / tau + acceleration}

    def linear(self, memory: Numbers) -> dict[str, Number]:
        return {"velocity": -1 / self.relaxation_time(memory)}

    def rate(self, particles: ParticleSet, spacing: Sequence[float], memory: Numbers) -> Number:
        return jnp.maximum(crossing_rate(particles, spacing), 1 / self.relaxation_time(memory))
