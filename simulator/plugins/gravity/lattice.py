"""Particles on a lattice or in a glass, and displaced from there. A glass has no order, like a
random set, but without the noise of a random set at large scales."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from zlib import crc32

import jax
import jax.numpy as jnp

from simulator.physics.particles import ParticleSet
from simulator.physics.particles.interpolation import Sampler
from simulator.physics.particles.particle_start import (
    Positions,
    lattice_positions,
    lattice_shape,
    random_positions,
)
from simulator.spectral.arrays import ParticleVectors, SpectralVector, Whole
from simulator.spectral.operators import gradient, solve_poisson
from simulator.spectral.random import Stream

if TYPE_CHECKING:
    from simulator.plugins.gravity.particle_component import ParticleComponent

Motion = tuple[ParticleVectors, ParticleVectors]
"""Displacements (length) and velocities (length/time)."""


def arranged(
    matter: ParticleComponent,
    density: float,
    motion: Callable[..., Motion] | None = None,
    *arrays: jax.Array,
) -> ParticleSet:
    """Particles of equal masses, each on the device that owns its place. `motion(positions,
    *arrays)` is the displacement and velocity of the particles at their undisturbed positions. The
    `arrays` are arguments, because a compiled function must not close over arrays on devices
    of several processes. With `matter.places` the particles stay on the devices of these.

    Raises UserError, beginning with the key `count`, if no lattice has so many points."""
    population = matter.population
    mass = density * matter.transform.grid.volume / population.count
    places = matter.places
    if places is None:
        particles = undisturbed(matter, mass)
    else:
        particles = places.with_records({"mass": jnp.full(places.id.shape, mass, jnp.float64)})
    if motion is None:
        return particles

    def moved(particles: ParticleSet, *arrays: jax.Array) -> ParticleSet:
        position = particles.records["position"]
        valid = particles.valid
        displacement, velocity = (
            jnp.where(valid, vector, 0) for vector in motion(position, *arrays)
        )
        inside = jnp.where(valid, matter.domain.wrapped(position + displacement), 0)
        return particles.with_records({"position": inside, "velocity": velocity})

    return (
        population.homed(jax.jit(moved)(particles, *arrays))
        if places is None
        else moved(particles, *arrays)
    )


def undisturbed(matter: ParticleComponent, mass: float) -> ParticleSet:
    """Particles of equal masses at rest on a cubic lattice or in a glass."""
    if matter.settings.arrangement == "glass":
        return glass(matter, mass)
    return matter.population.placed(
        _resting(lattice_positions(matter.population.count, matter.domain), mass)
    )


def _resting(places: Positions, mass: float) -> Callable[[jax.Array], dict[str, jax.Array]]:
    """The function from ids to records of particles of equal masses at rest at these places."""

    def start(ids: jax.Array) -> dict[str, jax.Array]:
        position = places(ids)["position"]
        masses = jnp.full(ids.shape, mass, jnp.float64)
        return {"position": position, "velocity": jnp.zeros_like(position), "mass": masses}

    return start


def lattice_shift(matter: ParticleComponent) -> tuple[float, float, float]:
    """The displacement (length) of the lattice from the grid along each axis, below a spacing; 0
    for a glass."""
    if matter.settings.arrangement == "glass":
        return 0.0, 0.0, 0.0
    domain = matter.domain
    spacing = matter.transform.grid.spacing
    cells = lattice_shape(matter.population.count, domain)
    halves = [0.5 * length / n for length, n in zip(domain.box, cells, strict=True)]
    x, y, z = (half - h * (half // h) for half, h in zip(halves, spacing, strict=True))
    return x, y, z


def at_lattice(
    matter: ParticleComponent, moved: SpectralVector, position: ParticleVectors
) -> ParticleVectors:
    """A vector field at the undisturbed positions, in double precision, from the coefficients of
    the field translated by `lattice_shift`: where a position is a point of the lattice, the value
    at the grid point that was moved there; elsewhere the value of a cubic spline."""
    sampler = Sampler(matter.transform, "cubic_spline")
    shift = jnp.asarray(lattice_shift(matter))[:, None]
    return sampler(moved, position - shift).astype(jnp.float64)


STEPS = 64


def glass(matter: ParticleComponent, mass: float) -> ParticleSet:
    """Particles of equal masses at rest, each on the device that owns its place.

    Repulsive gravity pushes the particles apart from random places, without inertia (White,
    astro-ph/9410043, uses inertia). A push s has div s = delta, the density contrast as the
    assignment puts it on the grid, which would remove the contrast at once if the grid resolved
    it."""
    population = matter.population
    transform = matter.transform
    assignment = matter.assignment
    # The seed is the component's name: components differ from each other, and restarts of a run do
    # not.
    seed = crc32(population.name.encode())
    places = random_positions(seed, matter.domain, Stream.GLASS)

    mean = mass * population.count / transform.grid.volume

    def push(particles: ParticleSet) -> ParticleSet:
        delta = transform.forward(matter.density(particles) / mean)
        way = gradient(transform.layout, solve_poisson(transform.layout, delta))
        position = particles.records["position"]
        return matter.settled(particles, position + assignment.interpolated(way, position))

    @jax.jit
    def pushed(particles: ParticleSet, step: Whole) -> tuple[ParticleSet, jax.Array]:
        """The particles after `STEPS` steps, or after the step in which buffers become too small
        (`crowded`)."""

        def unfinished(carry: tuple[ParticleSet, jax.Array]) -> jax.Array:
            particles, step = carry
            return (step < STEPS) & ~particles.crowded

        return jax.lax.while_loop(
            unfinished, lambda carry: (push(carry[0]), carry[1] + 1), (particles, step)
        )

    particles = population.placed(_resting(places, mass))
    step = jnp.int32(0)
    while int(step) < STEPS:
        particles, step = pushed(particles, step)
        particles = population.homed(particles)
    return particles
