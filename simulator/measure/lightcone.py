"""Matter where it crosses the past light cone of a distant observer, projected along z: lightcone.h5."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from simulator.measure.kind import Carried, Kind, Measured, SeriesCadence, Subject, Unsupported
from simulator.measure.lazy import Domain, ParticleSet, jax, jnp, lax, models
from simulator.settings import Positive, Real

LIGHT = 299792.458  # km/s
Cone: TypeAlias = "Callable[[jax.Array], tuple[jax.Array, jax.Array]]"


class LightconeSettings(SeriesCadence):
    observer: Real = 0.0
    """The place along z that the light reaches today, at a = 1."""
    speed_of_light: Positive | None = None
    """In the units of the run; by default that of model.units in km/s."""


class Lightcone(Kind):
    name = "lightcone"
    description = "Particles on the past light cone of a distant observer, projected along z, in lightcone.h5."
    Settings = LightconeSettings

    def measured(self, subject: Subject, settings: LightconeSettings) -> Measured:
        """`NAME_density/xy`: the mass over the area (comoving) of the particles of a component that cross the light
        cone between the previous row and this one, from the comoving distance `farthest` to `nearest`; up to the
        first of a list of times in `every` rows are empty.

        The light that arrives today is at the time tau in the plane z = observer + c int_tau a d tau', which sweeps
        the box and its periodic images. Particles cross it where their drift from the row's place with the row's
        velocity does, which is off by acceleration times the square of the time between rows, over 2."""
        model, background = subject.model, subject.model.background
        if not model.populations or background is None:
            raise Unsupported("needs particles that are matter, in an expanding box", of_model=False)
        units = model.settings.units
        light = settings.speed_of_light or (LIGHT if units != "dimensionless" else None)
        if light is None:
            raise Unsupported("is required, because the run has no units", "speed_of_light")
        (nx, ny, _), today = subject.transform.grid.shape, background.time_of(1.0)
        begin = settings.every[0] if isinstance(settings.every, tuple) else 0.0

        def cone(time: jax.Array) -> tuple[jax.Array, jax.Array]:
            return settings.observer + light * background.distance(time), light * background.scale_factor(time)

        def compute(state: models.State, times: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
            ends = jnp.clip(jnp.stack([times["begin"], times["end"]]), begin, today)
            far = cone(ends)[0] - settings.observer
            row = {"farthest": far[0], "nearest": far[1]}
            for name, population in model.populations.items():
                particles = state.particles[name]
                row[f"{name}_density/xy"] = crossed(particles, population.domain, cone, state.time, ends)
            return row

        def update(state: models.State, times: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
            return {"begin": jnp.where(times["end"] < 0, state.time, times["end"]), "end": state.time}

        spacing = subject.transform.grid.spacing
        variables = {f"{name}_density/xy": ("x", "y") for name in model.populations}
        carried = Carried(lambda: {"begin": jnp.float64(-1), "end": jnp.float64(-1)}, update)
        places = {"x": np.arange(nx) * spacing[0], "y": np.arange(ny) * spacing[1]}
        return Measured(places, {**variables, "farthest": (), "nearest": ()}, compute, carried=carried)


def crossed(particles: ParticleSet, domain: Domain, cone: Cone, now: jax.Array, ends: jax.Array) -> jax.Array:
    """The surface density (x, y) of particles where their drift meets the plane z = cone(time)[0], which falls at the
    speed cone(time)[1], or a periodic image of it, between the times `ends` (2,); `now` is that of their places."""
    (nx, ny, _), (lx, ly, lz) = domain.physical.grid.shape, domain.box

    def local(*given: jax.Array) -> jax.Array:
        position, velocity, mass, now, ends = given
        heights, length = cone(ends)[0], ends[1] - ends[0]
        above = heights[0] - position[2] - (ends[0] - now) * velocity[2]
        below = heights[1] - position[2] - (ends[1] - now) * velocity[2]
        first = jnp.ceil(below / lz)

        def image(turn: jax.Array, sums: jax.Array) -> jax.Array:
            shift = (first + turn) * lz
            time = ends[0] + length * (above - shift) / jnp.maximum(above - below, 1e-300)
            for _ in range(5):  # Newton's method, from nearly there
                height, speed = cone(time)
                gap = height - position[2] - (time - now) * velocity[2] - shift
                time = jnp.clip(time + gap / (speed + velocity[2]), ends[0], ends[1])
            weight = jnp.where(shift < above, mass, 0)
            x, y = ((position[i] + (time - now) * velocity[i]) * n for i, n in enumerate((nx / lx, ny / ly)))
            i, j = jnp.floor(x), jnp.floor(y)
            for p, q in ((0, 0), (0, 1), (1, 0), (1, 1)):
                share = weight * (1 - abs(x - i - p)) * (1 - abs(y - j - q))
                sums = sums.at[((i + p) % nx).astype(jnp.int32), ((j + q) % ny).astype(jnp.int32)].add(share)
            return sums

        # All devices look at as many images as a particle can meet.
        images = jnp.ceil((heights[0] - heights[1]) / lz).astype(jnp.int32) + 2
        return lax.fori_loop(0, images, image, jnp.zeros((nx, ny), jnp.float64))[None]

    mass = jnp.where(particles.valid, particles.records["mass"], 0)
    given = particles.records["position"], particles.records["velocity"], mass, now, ends
    none = jax.sharding.PartitionSpec()
    specs = domain.spec(2), domain.spec(2), domain.spec(1), none, none
    parts = domain.mapped(local, specs, jax.sharding.PartitionSpec(domain.names))(*given)
    return parts.sum(0) * (nx / lx) * (ny / ly)
