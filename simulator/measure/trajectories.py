"""Paths of some particles: trajectories.h5."""

from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field

from simulator.measure.cadence import SeriesCadence, distinct
from simulator.measure.kind import Kind, Subject, Unsupported
from simulator.settings import Integer

if TYPE_CHECKING:
    from simulator.diagnostics.measured import Measured


class TrajectorySettings(SeriesCadence):
    count: Annotated[Integer, Field(ge=1, le=10**6)] = 1000
    """The largest number of particles of each species, with evenly spaced ids."""
    particles: Annotated[tuple[str, ...], AfterValidator(distinct)] | None = None
    """Names of the species; by default all."""
    sample: tuple[str, ...] = ()
    """Quantities of the fluid at the particles: velocity, acceleration, gradient and the names of scalar fields; none
    for particles that are matter."""


class Trajectories(Kind):
    name = "trajectories"
    description = "Paths of some particles in trajectories.h5."
    Settings = TrajectorySettings

    def measured(self, subject: Subject, settings: TrajectorySettings) -> "Measured":
        from simulator.diagnostics.particles import trajectories

        particles = subject.particles
        names = particles.species(settings.particles)
        particles.check(settings.sample, particles.quantities, "sample")
        if settings.sample and (matter := [name for name in names if name not in particles.swarm.kinds]):
            raise Unsupported(
                f"{matter[0]} is matter itself and moves with no fluid; leave the key out", "sample"
            )
        return trajectories(particles.populations, particles.sampled, names, settings.count, settings.sample)
