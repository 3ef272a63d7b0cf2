"""A plane wave of density at rest, or its growing mode."""

from typing import Annotated, Literal, Self

import jax
import jax.numpy as jnp
from pydantic import Field, model_validator

from simulator.errors import UserError
from simulator.physics.initial.initial import Fields, Initial, StartFiles, from_values
from simulator.physics.models import Equation
from simulator.physics.models.fields import along_axes
from simulator.physics.particles import ParticleSet
from simulator.plugins.gravity.density import attracting
from simulator.plugins.gravity.lattice import Motion, arranged
from simulator.plugins.gravity.particle_component import ParticleComponent
from simulator.settings import Integer, Positive, Real, Settings, wrong
from simulator.spectral import Transform
from simulator.spectral.arrays import root


class JeansWaveSettings(Settings):
    kind: Literal["jeans_wave"] = "jeans_wave"
    density: Positive = 1.0
    """Mean density."""
    amplitude: Real = 1e-6
    """Relative amplitude of the density wave."""
    mode: Annotated[tuple[Integer, ...], Field(min_length=2, max_length=3)] | None = None
    """Wave vector in units of 2 pi / L_i, one number for each axis of the grid; by default one wave
    along x."""

    @model_validator(mode="after")
    def _a_wave(self) -> Self:
        if self.mode is not None and not any(self.mode):
            raise wrong("mode", "is 0; a wave needs a wave vector, e.g. [1, 0, 0]")
        if abs(self.amplitude) >= 1:
            raise wrong(
                "amplitude", f"must be below 1, for a positive density, not {self.amplitude:g}"
            )
        return self


class JeansWave(Initial):
    """density (1 + amplitude cos(k . x)) at rest, or the eigenmode that grows if gravity exceeds
    pressure.

    Gas: a standing wave, delta = A cos(omega t) cos(k . x), omega^2 = k^2 c^2 - 4 pi G rho; if that
    is negative the velocity is the growing mode's, so that delta = A exp(gamma t) cos(k . x).
    Waves: the same with omega^2 = (hbar/2m)^2 k^4 + k^2 g rho - 4 pi G rho. Particles: a lattice
    with displacements -A k / k^2 sin(k . q) and the velocities of the growing mode, omega^2 = -4 pi
    G rho."""

    Settings = JeansWaveSettings

    def build(self, model: Equation, files: StartFiles) -> Fields:
        s = self.settings
        transform = model.transform
        matter = attracting(model, "jeans_wave")
        k = self._wave_vector(transform)
        k2 = sum(q * q for q in k)
        growth = root(jnp.maximum(0.0, -matter.jeans_frequency_squared(k2, s.density)))
        shape = transform.physical.seen_shape

        def values(*points):
            phase = sum(q * p for q, p in zip(k, points, strict=True))
            wave = jnp.broadcast_to(s.amplitude * jnp.cos(phase), shape)
            # delta_t + div v = 0: v = -(k / k^2) delta_t's integral.
            drift = -growth * s.amplitude / k2 * jnp.sin(phase)
            velocity = [jnp.broadcast_to(q * drift, shape) for q in k]
            density = s.density * (1 + wave)
            return matter.moving(
                density, jnp.stack(velocity), lambda unit: growth * wave / (k2 * unit)
            )

        return from_values(transform, values)

    def place(self, matter: ParticleComponent, files: StartFiles) -> ParticleSet:
        s = self.settings
        k = self._wave_vector(matter.transform)
        k2 = sum(q * q for q in k)
        growth = root(jnp.maximum(0.0, -matter.jeans_frequency_squared(k2, s.density)))

        def motion(q: jax.Array) -> Motion:
            phase = sum(a * x for a, x in zip(k, q, strict=True))
            displacement = -s.amplitude / k2 * jnp.asarray(k)[:, None] * jnp.sin(phase)
            return displacement, growth * displacement

        return arranged(matter, s.density, motion)

    def _wave_vector(self, transform: Transform) -> list[float]:
        grid = transform.grid
        kept = grid.seen(grid.kept)
        mode = along_axes(grid, "mode", self.settings.mode or (1, 0, 0)[: len(kept)])
        if any(abs(m) > n for m, n in zip(mode, kept, strict=True)):
            raise UserError(f"mode: {mode} is beyond the modes that the grid keeps, {kept}")
        return [m * unit for m, unit in zip(mode, grid.seen(grid.fundamental), strict=True)]
