"""Velocity, acceleration and, with a fluid, dispersion of particles: particle_statistics.h5."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from simulator.measure.cadence import SeriesCadence
from simulator.measure.kind import Kind, Subject
from simulator.settings import Integer, Ratio

if TYPE_CHECKING:
    from simulator.diagnostics.measured import Measured


class ParticleStatisticsSettings(SeriesCadence):
    bins: Annotated[Integer, Field(ge=2, le=1000)] = 101
    """Number of bins of the acceleration's probability density."""
    range: Ratio = 25.0
    """The density extends by this many root mean squares to both sides."""


class ParticleStatistics(Kind):
    name = "particle_statistics"
    description = "Dispersion, velocity and acceleration of particles in particle_statistics.h5."
    Settings = ParticleStatisticsSettings

    def measured(self, subject: Subject, settings: ParticleStatisticsSettings) -> "Measured":
        from simulator.diagnostics.particles import statistics

        particles = subject.particles
        return statistics(
            particles.populations, particles.motion, particles.swarm.falling, settings.bins, settings.range
        )
