"""Velocity, acceleration and, with a fluid, dispersion of particles: particle_statistics.h5."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, TypeAlias

import numpy as np
from pydantic import Field

from simulator.measure.kind import AXES, Kind, Measured, SeriesCadence, Subject
from simulator.measure.lazy import ParticleSet, Populations, jax, jnp, models
from simulator.measure.trajectories import ready_after
from simulator.settings import Integer, Ratio


class ParticleStatisticsSettings(SeriesCadence):
    bins: Annotated[Integer, Field(ge=2, le=1000)] = 101
    """Number of bins of the acceleration's probability density."""
    range: Ratio = 25.0
    """The density extends by this many root mean squares to both sides."""


class ParticleStatistics(Kind):
    name = "particle_statistics"
    description = "Dispersion, velocity and acceleration of particles in particle_statistics.h5."
    Settings = ParticleStatisticsSettings

    def measured(self, subject: Subject, settings: ParticleStatisticsSettings) -> Measured:
        particles = subject.particles
        return statistics(
            particles.populations, particles.motion, particles.swarm.falling, settings.bins, settings.range
        )


Motion: TypeAlias = "Callable[[models.State], Callable[[str, ParticleSet], tuple[jax.Array, jax.Array]]]"
"""A state to the function from a species and its particles to their velocity and acceleration, (3, entries) both."""


def statistics(
    populations: Populations, motion: Motion, falling: Mapping[str, Sequence[float]], bins: int, reach: float
) -> Measured:
    """Means over all particles of each species: velocity, acceleration, dispersion and autocorrelation where the
    start is known, settling velocity of species that feel a gravitational acceleration (`falling`)."""
    edges = np.linspace(-reach, reach, bins + 1)

    def compute(state: models.State) -> dict[str, jax.Array]:
        row: dict[str, jax.Array] = {}
        last, move = None, motion(state)
        for name, population in populations.items():
            particles = ready_after(population, state, last).particles[name]
            velocity, acceleration = move(name, particles)
            means = _means(particles, velocity, acceleration, population.count)
            if name in falling:
                drift = jnp.stack([means[f"mean_velocity_{a}"] for a in AXES])
                means["settling_velocity"] = drift @ _direction(falling[name])
            means["acceleration"] = _density(particles, acceleration, means["acceleration_variance"], edges)
            row |= {f"{name}/{key}": value for key, value in means.items()}
            last = acceleration
        return row

    variables: dict[str, tuple[str, ...]] = {}
    for name, population in populations.items():
        keys = [f"mean_velocity_{a}" for a in AXES] + ["velocity_variance", "acceleration_variance"]
        if "displacement" in population.records:
            keys += [*(f"dispersion_{a}" for a in AXES), "velocity_autocorrelation"]
        if name in falling:
            keys.append("settling_velocity")
        variables |= {f"{name}/{key}": () for key in keys}
        variables[f"{name}/acceleration"] = ("sigma",)
    return Measured({"sigma": (edges[1:] + edges[:-1]) / 2}, variables, compute)


def _direction(pull: Sequence[float]) -> np.ndarray:
    return np.asarray(pull) / np.linalg.norm(pull)


def _means(
    particles: ParticleSet, velocity: jax.Array, acceleration: jax.Array, count: int
) -> dict[str, jax.Array]:
    def mean(values: jax.Array) -> jax.Array:
        return jnp.where(particles.valid, values, 0).sum(-1) / count

    square, drift = mean((velocity * velocity).sum(0)), mean(velocity)
    means = {
        **{f"mean_velocity_{a}": drift[i] for i, a in enumerate(AXES)},
        "velocity_variance": square - (drift**2).sum(),
        "acceleration_variance": mean((acceleration**2).sum(0)),
    }
    if "displacement" in particles.records:
        displacement, start = particles.records["displacement"], particles.records["start_velocity"]
        product = mean((velocity * start).sum(0))
        means |= {f"dispersion_{a}": mean(displacement[i] ** 2) for i, a in enumerate(AXES)}
        means["velocity_autocorrelation"] = product / jnp.sqrt(square * mean((start * start).sum(0)))
    return means


def _density(
    particles: ParticleSet, acceleration: jax.Array, variance: jax.Array, edges: np.ndarray
) -> jax.Array:
    """Probability density of the three components together, in units of their root mean square."""
    scaled = acceleration / jnp.sqrt(variance / 3)
    width = edges[1] - edges[0]
    number = jnp.floor((scaled - edges[0]) / width)
    inside = particles.valid & (number >= 0) & (number < len(edges) - 1)
    # One sum per bin: there are few bins, and this avoids a scatter across devices.
    counts = jax.lax.map(
        lambda b: jnp.where(inside & (number == b), 1.0, 0.0).sum(),
        jnp.arange(len(edges) - 1, dtype=number.dtype),
    )
    return counts / (3 * particles.valid.sum() * width)
