"""Particles on a lattice or in a glass, and displaced from there. A glass has no order, like a random set, but
without the noise of a random set at large scales."""

from collections.abc import Callable
from zlib import crc32

import jax
import jax.numpy as jnp

from simulator.physics.models.particle_component import ParticleComponent
from simulator.physics.particles import ParticleSet
from simulator.physics.particles.interpolation import Sampler
from simulator.physics.particles.start import Positions, lattice_positions, lattice_shape, random_positions
from simulator.spectral.operators import gradient, solve_poisson

Motion = tuple[jax.Array, jax.Array]  # Displacements and velocities (3, entries).


def arranged(
    matter: ParticleComponent, density: float, motion: Callable[..., Motion] | None = None, *given: jax.Array
) -> ParticleSet:
    """Particles of equal masses, where they live; `motion` gives displacements and velocities at their undisturbed
    places (3, entries). Arrays that it needs are `given` to it after these: those on devices of several
    processes have to be arguments of what is compiled.

    Raises UserError, beginning with the key `count`, where so many make no lattice.
    """
    population = matter.population
    mass = density * matter.transform.grid.volume / population.count
    particles = glass(matter, mass) if matter.settings.arrangement == "glass" else lattice(matter, mass)
    if motion is None:
        return particles

    def moved(particles: ParticleSet, *given: jax.Array) -> ParticleSet:
        position, valid = particles.records["position"], particles.valid
        displacement, velocity = (jnp.where(valid, found, 0) for found in motion(position, *given))
        inside = jnp.where(valid, matter.domain.wrapped(position + displacement), 0)
        return particles.with_records({"position": inside, "velocity": velocity})

    return population.homed(jax.jit(moved)(particles, *given))


def lattice(matter: ParticleComponent, mass: float) -> ParticleSet:
    """Particles of equal masses at rest on a cubic lattice."""
    return matter.population.made(_resting(lattice_positions(matter.population.count, matter.domain), mass))


def _resting(places: Positions, mass: float) -> Callable[[jax.Array], dict[str, jax.Array]]:
    """The start of particles of equal masses at these places."""

    def start(ids: jax.Array) -> dict[str, jax.Array]:
        position = places(ids)["position"]
        masses = jnp.full(ids.shape, mass, jnp.float64)
        return {"position": position, "velocity": jnp.zeros_like(position), "mass": masses}

    return start


def lattice_shift(matter: ParticleComponent) -> tuple[float, float, float]:
    """By how much the lattice is moved against points of the grid, along each axis: less than a spacing; 0 for a
    glass."""
    if matter.settings.arrangement == "glass":
        return 0.0, 0.0, 0.0
    domain, spacing = matter.domain, matter.transform.grid.spacing
    cells = lattice_shape(matter.population.count, domain)
    halves = [0.5 * length / n for length, n in zip(domain.box, cells, strict=True)]
    x, y, z = (half - h * (half // h) for half, h in zip(halves, spacing, strict=True))
    return x, y, z


def at_lattice(matter: ParticleComponent, moved: jax.Array, position: jax.Array) -> jax.Array:
    """A vector field at undisturbed places (3, entries), double, from the coefficients (3, *order) of the field moved
    by `lattice_shift`: values at points of the grid where these are the lattice's, and elsewhere a cubic spline
    through them."""
    sampler = Sampler(matter.transform, "cubic_spline")
    shift = jnp.asarray(lattice_shift(matter))[:, None]
    return sampler(moved, position - shift).astype(jnp.float64)


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

    particles, step = population.made(_resting(places, mass)), jnp.int32(0)
    while int(step) < STEPS:
        particles, step = pushed(particles, step)
        particles = population.homed(particles)
    return particles
