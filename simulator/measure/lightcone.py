"""Matter where it crosses the past light cone of a distant observer, projected along z:
lightcone.h5."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from simulator.measure.kind import Carried, Kind, Measured, SeriesCadence, Subject, Unsupported
from simulator.physics import models
from simulator.physics.models.composite import Composite
from simulator.physics.models.split_equation import background_of
from simulator.physics.particles import Domain, ParticleSet
from simulator.settings import Positive, Real

LIGHT = 299792.458  # km/s


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
        """`NAME_density/xy`: comoving surface density of the particles that cross the light cone
        between the previous row and this one, from the comoving distance `farthest` to `nearest`; 0
        up to the first time of a list.

        Particles cross where their drift from the row's place with the row's velocity meets the
        plane z = observer + c int_tau a d tau', or an image: off by the acceleration times the
        square of the time between rows, over 2."""
        model = subject.model
        background = background_of(model)
        grid = subject.transform.grid
        if not isinstance(model, Composite) or not model.populations or background is None:
            raise Unsupported(
                "needs particles that are matter, in an expanding box", of_model=False
            )
        light = settings.speed_of_light or (
            LIGHT if model.settings.units != "dimensionless" else 0.0
        )
        if not light:
            raise Unsupported("is required, because the run has no units", "speed_of_light")
        limits = (
            settings.every[0] if isinstance(settings.every, tuple) else 0.0,
            background.time_of(1.0),
        )

        def cone(time: jax.Array) -> tuple[jax.Array, jax.Array]:
            return settings.observer + light * background.distance(
                time
            ), light * background.scale_factor(time)

        def compute(state: models.State, times: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
            ends = jnp.clip(jnp.stack([times["begin"], times["end"]]), *limits)
            row: dict[str, jax.Array] = {}
            row["farthest"], row["nearest"] = cone(ends)[0] - settings.observer
            for name, population in model.populations.items():
                particles = state.particles[name]
                row[f"{name}_density/xy"] = crossed(
                    particles, population.domain, cone, state.time, ends
                )
            return row

        def update(state: models.State, times: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
            return {
                "begin": jnp.where(times["end"] < 0, state.time, times["end"]),
                "end": state.time,
            }

        carried = Carried(
            lambda: dict.fromkeys(("begin", "end"), jnp.float64(-1)), update, independent=True
        )
        places = {
            a: np.arange(n) * h for a, n, h in zip("xy", grid.shape, grid.spacing, strict=False)
        }
        variables: Any = dict.fromkeys(
            (f"{name}_density/xy" for name in model.populations), ("x", "y")
        )
        return Measured(
            places, {**variables, "farthest": (), "nearest": ()}, compute, carried=carried
        )


def crossed(
    particles: ParticleSet, domain: Domain, cone: Callable, now: jax.Array, ends: jax.Array
) -> jax.Array:
    """The surface density (x, y) of particles where their drift meets the plane z = cone(time)[0],
    which falls at the speed cone(time)[1], or a periodic image of it, between the times `ends`
    (2,); `now` is that of their places."""
    (nx, ny, _), (lx, ly, lz) = domain.physical.grid.shape, domain.box

    def local(
        position: jax.Array, velocity: jax.Array, mass: jax.Array, now: jax.Array, ends: jax.Array
    ) -> jax.Array:
        heights = cone(ends)[0]
        length = ends[1] - ends[0]
        above, below = heights[:, None] - position[2] - (ends - now)[:, None] * velocity[2]

        def image(turn: jax.Array, sums: jax.Array) -> jax.Array:
            shift = (jnp.ceil(below / lz) + turn) * lz
            time = ends[0] + length * (above - shift) / jnp.maximum(above - below, 1e-300)
            for _ in range(5):  # Newton's method, from nearly there
                height, speed = cone(time)
                gap = height - position[2] - (time - now) * velocity[2] - shift
                time = jnp.clip(time + gap / (speed + velocity[2]), *ends)
            x, y = (
                (position[i] + (time - now) * velocity[i]) * n
                for i, n in enumerate((nx / lx, ny / ly))
            )
            i = jnp.floor(x).astype(jnp.int32)
            j = jnp.floor(y).astype(jnp.int32)
            weight = mass * (shift < above)
            for p, q in ((0, 0), (0, 1), (1, 0), (1, 1)):
                share = weight * (1 - abs(x - i - p)) * (1 - abs(y - j - q))
                sums = sums.at[(i + p) % nx, (j + q) % ny].add(share)
            return sums

        # All devices look at as many images as a particle can meet.
        images = jnp.ceil((heights[0] - heights[1]) / lz).astype(jnp.int32) + 2
        return lax.fori_loop(0, images, image, jnp.zeros((nx, ny), jnp.float64))[None]

    records = particles.records
    vectors = domain.spec(2)
    specs = (vectors, vectors, domain.spec(1), PartitionSpec(), PartitionSpec())
    mapped = domain.mapped(local, specs, PartitionSpec(domain.names))
    mass = jnp.where(particles.valid, records["mass"], 0)
    crossing = mapped(records["position"], records["velocity"], mass, now, ends).sum(0)
    return crossing * (nx / lx) * (ny / ly)
