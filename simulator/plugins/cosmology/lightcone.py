"""Matter where it crosses the past light cone of a distant observer, projected along z."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from simulator.measure.kind import Carried, Measured, Subject, Unsupported
from simulator.physics.models import State
from simulator.physics.particles import Domain, ParticleSet
from simulator.plugins.gravity.composite import Composite
from simulator.plugins.gravity.cosmology import Background

LIGHT = 299792.458  # km/s


def lightcone(
    subject: Subject, observer: float, speed_of_light: float | None, first: float
) -> Measured:
    """`NAME_density/xy`: comoving surface density of the particles that cross the light cone
    between the previous row and this one, from the comoving distance `farthest` to `nearest`; 0 up
    to the time `first`.

    The plane z = observer + c int_tau a d tau', which falls to the observer as time goes on, and
    its periodic images are the light cone. A particle crosses where it meets one of them if it
    drifts with its present velocity; the error is the acceleration times the square of the time
    between rows, over 2."""
    model = subject.model
    background = model.background if isinstance(model, Composite) else None
    grid = subject.transform.grid
    if not isinstance(model, Composite) or not model.populations or background is None:
        raise Unsupported("needs particles that are matter, in an expanding box", of_model=False)
    light = speed_of_light or (LIGHT if model.settings.units != "dimensionless" else 0.0)
    if not light:
        raise Unsupported("is required, because the run has no units", "speed_of_light")
    cone = Cone(background, observer, light)
    limits = (first, background.time_of(1.0))

    def compute(state: State, times: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        ends = jnp.clip(jnp.stack([times["begin"], times["end"]]), *limits)
        row: dict[str, jax.Array] = {}
        row["farthest"], row["nearest"] = cone.height(ends) - observer
        for name, population in model.populations.items():
            particles = state.particles[name]
            row[f"{name}_density/xy"] = crossed(
                particles, population.domain, cone, state.time, ends
            )
        return row

    def update(state: State, times: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        return {"begin": jnp.where(times["end"] < 0, state.time, times["end"]), "end": state.time}

    def begin() -> dict[str, jax.Array]:
        return dict.fromkeys(("begin", "end"), jnp.float64(-1))

    axes = zip("xy", grid.shape, grid.spacing, strict=False)
    planes = {f"{name}_density/xy": ("x", "y") for name in model.populations}
    return Measured(
        {a: np.arange(n) * h for a, n, h in axes},
        {**planes, "farthest": (), "nearest": ()},
        compute,
        carried=Carried(begin, update, independent=True),
    )


@dataclass(frozen=True)
class Cone:
    """The past light cone of an observer far below the box, at the place `observer` along z: a
    plane that falls at the comoving speed of light."""

    background: Background
    observer: float
    light: float  # Speed of light in the units of the run.

    def height(self, time: jax.Array) -> jax.Array:
        """The place of the plane along z."""
        return self.observer + self.light * self.background.distance(time)

    def speed(self, time: jax.Array) -> jax.Array:
        """The speed of its fall."""
        return self.light * self.background.scale_factor(time)


def crossed(
    particles: ParticleSet, domain: Domain, cone: Cone, now: jax.Array, ends: jax.Array
) -> jax.Array:
    """The surface density (x, y) of particles where their drift meets the plane of the cone, or a
    periodic image of it, between the times `ends` (2,); `now` is that of their places."""
    (nx, ny, _), (lx, ly, lz) = domain.physical.grid.shape, domain.box

    def local(
        position: jax.Array, velocity: jax.Array, mass: jax.Array, now: jax.Array, ends: jax.Array
    ) -> jax.Array:
        """The masses (1, x, y) on the grid, of the particles of one device."""
        heights = cone.height(ends)
        above, below = heights[:, None] - position[2] - (ends - now)[:, None] * velocity[2]

        def image(turn: jax.Array, sums: jax.Array) -> jax.Array:
            shift = (jnp.ceil(below / lz) + turn) * lz
            time = ends[0] + (ends[1] - ends[0]) * (above - shift) / jnp.maximum(
                above - below, 1e-300
            )
            for _ in range(5):  # Newton's method, from nearly there
                gap = cone.height(time) - position[2] - (time - now) * velocity[2] - shift
                time = jnp.clip(time + gap / (cone.speed(time) + velocity[2]), *ends)
            x = (position[0] + (time - now) * velocity[0]) * (nx / lx)
            y = (position[1] + (time - now) * velocity[1]) * (ny / ly)
            return _deposited(sums, x, y, mass * (shift < above))

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


def _deposited(sums: jax.Array, x: jax.Array, y: jax.Array, mass: jax.Array) -> jax.Array:
    """Add masses at places in units of the spacing to a periodic grid, as clouds in cells."""
    nx, ny = sums.shape
    i = jnp.floor(x).astype(jnp.int32)
    j = jnp.floor(y).astype(jnp.int32)
    for p, q in ((0, 0), (0, 1), (1, 0), (1, 1)):
        share = mass * (1 - abs(x - i - p)) * (1 - abs(y - j - q))
        sums = sums.at[(i + p) % nx, (j + q) % ny].add(share)
    return sums
