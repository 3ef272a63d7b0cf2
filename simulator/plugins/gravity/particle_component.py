"""Particles as one kind of matter among others: cold dark matter, stars, black holes."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from simulator.physics.models.fields import DENSITY, DerivedField, MatterFields, by_name
from simulator.physics.particles.domain import Domain
from simulator.physics.particles.migration import settled
from simulator.physics.particles.particle_set import ParticleSet
from simulator.physics.particles.population import Population
from simulator.physics.particles.species import crossing_rate
from simulator.physics.user_function import UserFiles
from simulator.plugins.gravity.assignment import Assignment, Scheme, cloud, compensated_cloud
from simulator.plugins.gravity.component import (
    PARTICLES,
    Component,
    ComponentName,
    Gravity,
    Potential,
    Work,
)
from simulator.plugins.gravity.cosmology import Background
from simulator.plugins.gravity.density import SelfGravity, by_axis
from simulator.plugins.gravity.lattice import Motion, arranged
from simulator.plugins.gravity.matter_kernels import drifted, fastest_after, kicked, leapt
from simulator.settings import Count, Flag, NonNegative, Settings
from simulator.spectral import Transform
from simulator.spectral.arrays import (
    Number,
    OfModes,
    ParticleVectors,
    PhysicalScalar,
    SpectralScalar,
)
from simulator.spectral.operators import gradient

COMPENSATED_WIDTH = 0.85
"""Grid spacings. The widest with which waves at half the grid's Nyquist wavenumber grow from a =
0.02 to 1 by 90 % of what linear theory says, or more: attraction is 0.965 there, and 0.9999 at a
quarter."""
RECORDS = {
    "position": 3,
    "velocity": 3,
    "mass": 0,
}  # Records of a particle, and their components (0: a scalar).


def accelerated(particles: ParticleSet, pull: jax.Array) -> ParticleVectors:
    """Accelerations in double precision; 0 in empty entries."""
    return jnp.where(particles.valid, pull, 0).astype(jnp.float64)


class ParticleComponentSettings(Settings):
    kind: Literal["particles"]
    name: ComponentName = "particles"
    """The prefix of the component's columns, and the name of the particles in files."""
    count: Count
    """The number of particles."""
    arrangement: Literal["lattice", "glass"] = "lattice"
    """The undisturbed places from which a start displaces the particles: a cubic lattice, or a
    glass, in which random particles have been pushed apart until their noise was gone."""
    assignment: Scheme = "pcs"
    """Weights that assign mass to the grid and interpolate forces: cic, tsc or pcs, over 2, 3 or 4
    points of an axis."""
    softening: Literal["compensated"] | NonNegative = "compensated"
    """compensated: structure grows as in linear theory up to half the grid's Nyquist wavenumber;
    forces between two particles oscillate about Newton's, by 18 % at 3 grid spacings and 5 to 9 %
    beyond 4. A number: the diameter of a particle in grid spacings; its mass lies in a sphere of
    linearly falling density, and the force between two is Newton's where these do not overlap. 0:
    points, as sharp as the grid's modes allow."""
    interlacing: Flag = False
    """Put mass on two grids that are half a cell apart, which cancels the largest aliases of the
    density and of the force, for twice the deposits, interpolations and their transforms."""
    reproducible: Flag = False
    """Sum up masses as whole numbers: the same density on any number of devices; with interlacing
    on either grid."""


class ParticleComponent(SelfGravity, Component):
    """dx/dt = v, dv/dt = -grad Phi. Drift and kick are exact each.

    The mass of the particles is put on the grid by B-splines, whose window is divided out of the
    modes. The acceleration is computed from the modes of the potential and interpolated with the
    same weights, whose window is divided out, too. Both are multiplied by the transform of a
    particle's cloud. Forces between particles are then equal and opposite, and the momentum of all
    matter is conserved to round-off. Hockney & Eastwood, Computer Simulation Using Particles
    (1988), chapters 5 and 8."""

    Settings = ParticleComponentSettings
    places: ParticleSet | None = None  # In a gradient by the start: the undisturbed particles.

    def __init__(
        self,
        settings: ParticleComponentSettings,
        gravity: Gravity,
        make: Callable[..., Transform],
        files: UserFiles,
    ):
        """Raises UserError, beginning with the key, if the devices cannot hold so many
        particles."""
        self.settings = settings
        self.gravity = gravity.constant
        self.units = gravity.units
        self.background = Background(gravity.cosmology) if gravity.cosmology else None
        self.transform = make(real=True, every=True)
        self.alone = self
        population = Population(settings.name, RECORDS, settings.count, Domain.of(self.transform))
        self.population: Population = population  # pyright: ignore[reportIncompatibleVariableOverride]
        total = settings.count if settings.reproducible else None
        self.assignment = Assignment(
            self.transform, settings.assignment, total, settings.interlacing
        )

    def arranged(
        self, density: float, motion: Callable[[jax.Array], Motion] | None = None
    ) -> ParticleSet:
        """See `lattice.arranged`."""
        return arranged(self, density, motion)

    @property
    def domain(self) -> Domain:
        return self.assignment.domain

    def source(self, fields: MatterFields) -> tuple[PhysicalScalar, None]:
        return self.density(fields[PARTICLES]), None

    def density(self, particles: ParticleSet) -> PhysicalScalar:
        """Mass density (mass/length^3) on the grid, zero in padding."""
        grid = self.transform.grid
        records = particles.records
        mass = self.assignment.density(records["position"], records["mass"], particles.count)
        return mass * (grid.points / grid.volume)

    def sharpened(self, modes: SpectralScalar) -> SpectralScalar:
        """Coefficients divided by the window of the assignment."""
        return modes * self._sharpening(modes.real.dtype)

    def softened(self, modes: SpectralScalar) -> SpectralScalar:
        """The density of clouds from the density of points: coefficients times the transform of a
        cloud."""
        return modes * self._softening(modes.real.dtype)

    def clouds(self, modes: SpectralScalar) -> SpectralScalar:
        """The density of clouds, `softened`, from the masses on the grid, `sharpened`; by one real
        factor, because a product of complex numbers takes much longer."""
        dtype = modes.real.dtype
        return modes * (self._softening(dtype) * self._sharpening(dtype))

    def _sharpening(self, dtype: DTypeLike) -> OfModes:
        return self.assignment.window(self.transform.layout, dtype, -1)

    def _softening(self, dtype: DTypeLike) -> OfModes:
        softening = self.settings.softening
        layout = self.transform.layout
        spacing = max(self.transform.grid.spacing)
        if softening == "compensated":
            return compensated_cloud(layout, COMPENSATED_WIDTH * spacing, dtype)
        return (
            cloud(layout, softening * spacing, dtype) if softening else jnp.ones((1, 1, 1), dtype)
        )

    def acceleration(self, particles: ParticleSet, potential: Potential) -> ParticleVectors:
        """The acceleration (length/time^2) of each particle in double precision; 0 in empty
        entries."""
        return accelerated(particles, self.pulled({PARTICLES: particles}, None, potential))

    def pulled(self, fields: MatterFields, work: Work, potential: Potential) -> jax.Array:
        """The acceleration in the transform's precision; 0 in empty entries."""
        pull = -gradient(self.transform.layout, self.clouds(potential.modes))
        particles = fields[PARTICLES]
        return self.assignment.interpolated(pull, particles.records["position"], particles.count)

    def kick(
        self, fields: MatterFields, work: Work, potential: Potential, time: Number, duration: Number
    ) -> tuple[Any, jax.Array]:
        particles = fields[PARTICLES]
        spacing = self.transform.grid.spacing
        assert work is not None
        velocity = particles.records["velocity"]
        fastest = None
        if self.domain.native:
            arguments = work, velocity, particles.count, jnp.asarray(duration, jnp.float64)
            velocity, fastest = self.domain.on_devices(
                partial(kicked, self.domain.threads, spacing), *arguments
            )
        else:
            velocity = velocity + duration * accelerated(particles, work)
        new = particles.with_records({"velocity": velocity})
        rate = crossing_rate(new, spacing) if fastest is None else fastest.max()
        return {PARTICLES: new}, jax.lax.stop_gradient(rate + potential.fall)

    def rate_after(
        self, particles: ParticleSet, work: jax.Array, potential: Potential, duration: Number
    ) -> Number:
        """The rate of a `kick`, in native code, which leaves the velocities as they are."""
        local = partial(fastest_after, self.domain.threads, self.transform.grid.spacing)
        velocity = particles.records["velocity"]
        fastest = self.domain.on_devices(local, work, velocity, particles.count, duration)
        return fastest.max() + potential.fall

    def drift(self, fields: MatterFields, duration: Number) -> Any:
        particles = fields[PARTICLES]
        position = particles.records["position"]
        velocity = particles.records["velocity"]
        if not self.domain.native:
            return {PARTICLES: self.settled(particles, position + duration * velocity)}
        arguments = position, velocity, particles.count, jnp.asarray(duration, jnp.float64)
        position = self.domain.on_devices(
            partial(drifted, self.domain.threads, self.domain.box), *arguments
        )
        return {PARTICLES: settled(particles.with_records({"position": position}), self.domain)}

    def leap(
        self, particles: ParticleSet, work: jax.Array, lengths: tuple[Number, Number, Number]
    ) -> tuple[Any, ParticleSet]:
        """The particles after two kicks and a drift in native code, and before them those between
        the kicks, to go back to if a device may lack the room for its particles; lengths (time) of
        0 change no bit."""
        domain = self.domain
        records = particles.records
        shared = bool(domain.cuts)

        def of(velocity: jax.Array, position: jax.Array, *others: jax.Array) -> ParticleSet:
            mass, ids = others or (records["mass"], particles.id)
            return replace(
                particles,
                records={"position": position, "velocity": velocity, "mass": mass},
                id=ids,
            )

        moving = (records["position"], records["mass"], particles.id)[: 3 if shared else 1]
        first, second, drift = (jnp.asarray(length, jnp.float64) for length in lengths)
        velocity = records["velocity"]
        arguments = work, velocity, particles.count, (first, second, drift)
        local = partial(leapt, domain.threads, domain.box, shared)
        arrays = domain.on_devices(local, *arguments, *moving)
        old = of(*arrays[4:]) if shared else None
        return old, settled(of(*arrays[:4]), domain)

    def settled(self, particles: ParticleSet, position: ParticleVectors) -> ParticleSet:
        """The particles at other positions, which may lie outside of the box, each on the device
        that owns its place."""
        inside = jnp.where(particles.valid, self.domain.wrapped(position), 0)
        return settled(particles.with_records({"position": inside}), self.domain)

    def diagnostics(self, fields: MatterFields, time: Number) -> dict[str, Number]:
        """The energy is the kinetic energy, the box mean of rho v^2 / 2; `shot_noise` is V sum m^2
        / (sum m)^2, P(k) of particles at random places."""
        particles = fields[PARTICLES]
        volume = self.transform.grid.volume
        velocity = particles.records["velocity"]
        mass = jnp.where(particles.valid, particles.records["mass"], 0)
        kinetic = 0.5 * (mass * (velocity**2).sum(0)).sum() / volume
        total = mass.sum()
        fastest = jnp.where(particles.valid, (velocity**2).sum(0), 0).max()
        momentum = (mass * velocity).sum(-1) / volume
        return {
            "energy": kinetic,
            "kinetic_energy": kinetic,
            "mass": total,
            "max_speed": jnp.sqrt(fastest),
            "shot_noise": volume * (mass**2).sum() / total**2,
            **by_axis(self.transform.grid, "mean_momentum", momentum),
            "rate": crossing_rate(particles, self.transform.grid.spacing),
        }

    def derived(self) -> Mapping[str, DerivedField]:
        return by_name(DerivedField(DENSITY, lambda fields: self.density(fields[PARTICLES])))

    def jeans_frequency_squared(self, k2: float, density: float) -> float:
        """omega^2 = -4 pi G rho of a small wave in particles at rest."""
        a = self.background.settings.start if self.background else 1.0
        return -4 * math.pi * a * self.gravity * density
