"""Particles that are displaced from a lattice."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from simulator.models.particle_component import ParticleComponent
from simulator.particles import ParticleSet
from simulator.particles.interpolation import Sampler
from simulator.particles.start import lattice_positions, lattice_shape
from simulator.spectral.operators import translate

Motion = tuple[jax.Array, jax.Array]
"""Displacements and velocities (3, entries)."""


def on_lattice(
    matter: ParticleComponent, density: float, motion: Callable[[jax.Array], Motion] | None = None
) -> ParticleSet:
    """Particles of equal masses on a cubic lattice, where they live; `motion` gives displacements and velocities at
    the lattice's points (3, entries).

    Raises UserError, beginning with the key `count`, where so many make no lattice.
    """
    population = matter.population
    points = lattice_positions(population.count, matter.domain)
    mass = density * matter.transform.grid.volume / population.count

    def start(ids: jax.Array) -> dict[str, jax.Array]:
        position = points(ids)["position"]
        return {
            "position": position,
            "velocity": jnp.zeros_like(position),
            "mass": jnp.full(ids.shape, mass, jnp.float64),
        }

    particles = population.made(start)
    if motion is None:
        return particles

    def moved(particles: ParticleSet) -> ParticleSet:
        position, valid = particles.records["position"], particles.valid
        displacement, velocity = (jnp.where(valid, found, 0) for found in motion(position))
        inside = jnp.where(valid, matter.domain.wrapped(position + displacement), 0)
        return particles.with_records({"position": inside, "velocity": velocity})

    return population.homed(jax.jit(moved)(particles))


def at_lattice(matter: ParticleComponent, modes: jax.Array) -> Callable[[jax.Array], jax.Array]:
    """The vector field of coefficients (3, *order) at the lattice's points, as a function of these (3, entries).

    It is moved by half a cell less a number of spacings, so that points of the lattice are points of the grid where
    there are at most as many; elsewhere a cubic spline is put through the values.
    """
    transform, domain = matter.transform, matter.domain
    cells = lattice_shape(matter.population.count, domain)
    spacing = transform.grid.spacing
    halves = [0.5 * length / n for length, n in zip(domain.box, cells, strict=True)]
    x, y, z = (half - h * (half // h) for half, h in zip(halves, spacing, strict=True))
    moved = partial(translate, transform.layout, shift=(x, y, z))
    sampler = Sampler(transform, "cubic_spline")
    return lambda position: sampler(moved(modes), position - jnp.asarray([x, y, z])[:, None])
