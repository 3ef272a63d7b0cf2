"""Particles on the devices that own their planes of the grid. A new kind is a file in this package
and a line in `PARTICLES`."""

from simulator.physics.particles.domain import Domain
from simulator.physics.particles.particle_set import ParticleSet
from simulator.physics.particles.species import Inertial, Species, Tracers

PARTICLES: dict[str, type[Species]] = {"tracer": Tracers, "inertial": Inertial}

__all__ = ["PARTICLES", "Domain", "ParticleSet", "Species"]
