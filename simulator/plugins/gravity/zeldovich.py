"""A Zel'dovich wave in gas or particles."""

import math
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from pydantic import Field

from simulator.errors import UserError
from simulator.physics.initial.initial import (
    Fields,
    Initial,
    StartFiles,
    from_values,
)
from simulator.physics.models import Equation
from simulator.physics.particles import ParticleSet
from simulator.plugins.gravity.density import attracting
from simulator.plugins.gravity.lattice import Motion, arranged
from simulator.plugins.gravity.particle_component import ParticleComponent
from simulator.settings import Points, Positive, Real, Settings
from simulator.spectral.grid import AXES


class ZeldovichWaveSettings(Settings):
    kind: Literal["zeldovich_wave"] = "zeldovich_wave"
    density: Positive = 1.0
    """Mean density."""
    amplitude: Annotated[Real, Field(gt=-1, lt=1)] = 0.1
    """A in the displacement A sin(k q) / k; the sheets cross when it has grown to 1."""
    axis: Literal["x", "y", "z"] = "x"
    """Direction of the wave vector."""
    mode: Points = 1
    """Number of waves in the box along the axis."""


class ZeldovichWave(Initial):
    """Cold gas that has been displaced from q to x = q + A exp(gamma t) sin(k q) / k, gamma =
    sqrt(4 pi G rho).

    In one dimension this growing mode is exact until sheets cross: density rho / (1 + A exp(gamma
    t) cos(k q)), velocity gamma A exp(gamma t) sin(k q) / k. Zel'dovich, Astron. Astrophys. 5, 84
    (1970), without expansion. Particles begin on a lattice with these displacements; in an
    expanding box, where A grows like D(a), too."""

    Settings = ZeldovichWaveSettings

    def build(self, model: Equation, files: StartFiles) -> Fields:
        matter = attracting(model, "zeldovich_wave", "density")
        s = self.settings
        transform = model.transform
        i = AXES.index(s.axis)
        grid = transform.grid
        if s.axis not in grid.names.values():
            raise UserError(f"axis: the grid has no {s.axis}; give x or y")
        k = s.mode * grid.seen(grid.fundamental)[i]
        growth = jnp.sqrt(4 * math.pi * matter.gravity * s.density)

        def values(*points):
            x = points[i]
            q = x
            for _ in range(60):  # Newton's method, from a point where it converges
                q = q - (q + s.amplitude * jnp.sin(k * q) / k - x) / (1 + abs(s.amplitude))
            for _ in range(4):
                q = q - (q + s.amplitude * jnp.sin(k * q) / k - x) / (
                    1 + s.amplitude * jnp.cos(k * q)
                )
            shape = transform.physical.seen_shape
            still = jnp.zeros(shape, x.dtype)
            speed = jnp.broadcast_to(growth * s.amplitude * jnp.sin(k * q) / k, shape)
            return {
                "density": jnp.broadcast_to(s.density / (1 + s.amplitude * jnp.cos(k * q)), shape),
                "velocity": jnp.stack([speed if j == i else still for j in range(len(shape))]),
            }

        return from_values(transform, values)

    def place(self, matter: ParticleComponent, files: StartFiles) -> ParticleSet:
        s = self.settings
        i = "xyz".index(self.settings.axis)
        k = s.mode * matter.transform.grid.fundamental[i]
        if matter.background is None:
            growth = jnp.sqrt(4 * math.pi * matter.gravity * s.density)
        else:
            now = matter.background.grown(matter.background.settings.start)
            growth = now.speed / now.first

        def motion(q: jax.Array) -> Motion:
            displacement = jnp.zeros_like(q).at[i].set(s.amplitude * jnp.sin(k * q[i]) / k)
            return displacement, growth * displacement

        return arranged(matter, s.density, motion)
