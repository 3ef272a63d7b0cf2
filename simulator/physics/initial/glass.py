"""Particles in a glass: without order, as in a random set, but without its noise at large scales."""

from zlib import crc32

import jax
import jax.numpy as jnp

from simulator.physics.models.particle_component import ParticleComponent
from simulator.physics.particles import ParticleSet
from simulator.physics.particles.start import random_positions
from simulator.spectral.operators import gradient
from simulator.spectral.poisson import solve_poisson

STEPS = 64


def glass(matter: ParticleComponent, mass: float) -> ParticleSet:
    """Particles of equal masses at rest, where they live.

    From random places they are pushed apart by gravity with the opposite sign, without inertia (White,
    astro-ph/9410043, has it with inertia). A push s has div s = delta, the density contrast as the assignment puts it
    on the grid, which would remove the contrast at once if the grid resolved it.
    """
    population, transform, assignment = matter.population, matter.transform, matter.assignment
    # Components of one name differ from others, and a run from none of its restarts.
    places = random_positions(crc32(population.name.encode()), matter.domain)

    def start(ids: jax.Array) -> dict[str, jax.Array]:
        position = places(ids)["position"]
        return {
            "position": position,
            "velocity": jnp.zeros_like(position),
            "mass": jnp.full(ids.shape, mass, jnp.float64),
        }

    mean = mass * population.count / transform.grid.volume

    def push(particles: ParticleSet) -> ParticleSet:
        delta = transform.forward(matter.density(particles) / mean)
        way = gradient(transform.layout, solve_poisson(transform.layout, delta))
        position = particles.records["position"]
        return matter.settled(particles, position + assignment.interpolated(way, position))

    @jax.jit
    def pushed(particles: ParticleSet, step: jax.Array) -> tuple[ParticleSet, jax.Array]:
        """The particles after `STEPS`, or crowded before."""

        def unfinished(carry: tuple[ParticleSet, jax.Array]) -> jax.Array:
            particles, step = carry
            return (step < STEPS) & ~particles.crowded

        return jax.lax.while_loop(unfinished, lambda carry: (push(carry[0]), carry[1] + 1), (particles, step))

    particles, step = population.made(start), jnp.int32(0)
    while int(step) < STEPS:
        particles, step = pushed(particles, step)
        particles = population.homed(particles)
    return particles
