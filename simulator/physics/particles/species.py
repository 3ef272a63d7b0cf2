"""A species of particles: its settings, its records, and its equation of motion."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from pydantic import AfterValidator

from simulator.errors import shown
from simulator.physics.particles.interpolation import Interpolation
from simulator.physics.particles.particle_set import ParticleSet
from simulator.physics.particles.sampled import Fluid
from simulator.physics.particles.start import RandomPlaces, Start, StoredPlaces
from simulator.settings import Count, Settings

LONGEST_NAME = 64


def _usable(name: str) -> str:
    if not name.isidentifier() or len(name) > LONGEST_NAME:
        raise ValueError(
            f"{shown(name)} cannot name particles; take a word of letters, digits and _, e.g. tracers"
        )
    return name


ParticleName = Annotated[str, AfterValidator(_usable)]


class ParticleSettings(Settings):
    """Keys of every kind of particle that moves with a fluid."""

    name: ParticleName
    """Name of the particles in files."""
    count: Count | None = None
    """Number of particles; with start: snapshot that of the stored ones."""
    start: Start = RandomPlaces()
    """The initial positions: random, lattice, python or snapshot, or a block with such a kind and its keys."""
    interpolation: Interpolation = "cubic_spline"
    """Interpolation of the fluid's fields: cubic_spline (error of order dx^4) or linear (dx^2, cheaper)."""

    def given(self) -> bool:
        """Whether the number of particles is determined, by exactly one of `count` and a snapshot."""
        return (self.count is None) == isinstance(self.start, StoredPlaces)


Memory = Mapping[str, jax.Array]
Records = Mapping[str, jax.Array]


class Species:
    """One species in a run. Records are double precision; vectors are (3, entries).

    The integrator of the fluid advances the records `advanced`, within its stages: `rates` is their explicit rate of
    change and `linear` the factor of a linear one, which is solved exactly.
    """

    Settings: ClassVar[type[ParticleSettings]]
    advanced: ClassVar[tuple[str, ...]]
    """Vector records that the integrator advances; `position` is among them."""

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
        """All records with their numbers of components (0: a scalar). `displacement` is the path since the start,
        through the faces of the box, `start_velocity` the velocity at the start."""
        return {**dict.fromkeys(self.advanced, 3), "displacement": 3, "start_velocity": 3}

    @property
    def starts_with(self) -> Mapping[str, int]:
        """The records that a start may set."""
        return dict.fromkeys(self.advanced, 3)

    def begin(self, records: Records, fluid: Fluid) -> dict[str, jax.Array]:
        """The records that the start has not set, except those that are zero."""
        raise TypeError(f"{type(self).__name__} does not define begin")

    def motion(self, records: Records, fluid: Fluid, memory: Memory) -> tuple[jax.Array, jax.Array]:
        """Velocity and acceleration of the particles, (3, entries) both."""
        raise TypeError(f"{type(self).__name__} does not define motion")

    def memory(self, vorticity: jax.Array) -> dict[str, jax.Array]:
        """Numbers that the steps need, from the rms vorticity (1/time) of the initial flow."""
        return {}

    def rates(self, records: Records, fluid: Fluid, memory: Memory) -> dict[str, jax.Array]:
        """Explicit rates of change of `advanced`."""
        raise TypeError(f"{type(self).__name__} does not define rates")

    def linear(self, memory: Memory) -> dict[str, jax.Array]:
        """Factors (1/time) of the linear rates of `advanced` that have one."""
        return {}

    def rate(self, particles: ParticleSet, spacing: Sequence[float], memory: Memory) -> jax.Array | None:
        """The rate (1/time) that limits dt in addition to the fluid's: dt = cfl / rate; None if there is none."""
        return None


def crossing_rate(particles: ParticleSet, spacing: Sequence[float]) -> jax.Array:
    """The largest sum_i |v_i| / dx_i of particles with a velocity."""
    v = particles.records["velocity"]
    total = sum(abs(v[i]) / h for i, h in enumerate(spacing))
    return jnp.where(particles.valid, total, 0).max()  # type: ignore[arg-type]
