"""Paths of selected particles, and means of velocity, acceleration and dispersion over all
particles: trajectories.h5 and particle_statistics.h5."""

from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import AfterValidator, Field

from simulator.measure.kind import (
    AXES,
    Kind,
    Measured,
    SeriesCadence,
    Subject,
    Unsupported,
    distinct,
)
from simulator.measure.rows import binned
from simulator.physics import models
from simulator.physics.particles import Domain, ParticleSet
from simulator.physics.particles.interpolation import COMPONENTS
from simulator.physics.particles.particle_start import PairPlaces
from simulator.physics.particles.population import Population
from simulator.settings import Integer, Ratio
from simulator.spectral.arrays import ParticleVectors


class TrajectorySettings(SeriesCadence):
    count: Annotated[Integer, Field(ge=1, le=10**6)] = 1000
    """The largest number of particles of each species, with evenly spaced ids."""
    particles: Annotated[tuple[str, ...], AfterValidator(distinct)] | None = None
    """Names of the species; by default all."""
    sample: tuple[str, ...] = ()
    """Quantities of the fluid at the particles: velocity, acceleration, gradient and the names of
    scalar fields. Only for particles that move with a fluid."""


class Trajectories(Kind):
    name = "trajectories"
    description = "Paths of some particles in trajectories.h5."
    Settings = TrajectorySettings

    def measured(self, subject: Subject, settings: TrajectorySettings) -> Measured:
        """Paths of at most `count` particles of each species, with evenly spaced ids:
        `NAME/position_x`, ... over the coordinate `NAME_id`, also `NAME/displacement_x`, ..., other
        records and the quantities in `sample`."""
        particles = subject.particles
        names = particles.species(settings.particles)
        particles.check(settings.sample, particles.quantities, "sample")
        if settings.sample and (
            matter := [name for name in names if name not in particles.swarm.kinds]
        ):
            raise Unsupported(
                f"{matter[0]} is matter itself and moves with no fluid; leave sample out", "sample"
            )
        populations = particles.populations
        see = settings.sample
        strides = {name: -(-populations[name].count // settings.count) for name in names}
        stored = ("position", "displacement", "velocity")
        sampled = {f"fluid_{q}": COMPONENTS.get(q, 1) for q in see}
        records = {
            name: {r: 3 for r in stored if r in populations[name].records} | sampled
            for name in names
        }

        def compute(state: models.State) -> dict[str, jax.Array]:
            row: dict[str, jax.Array] = {}
            last = None
            for name in names:
                state = ready_after(populations[name], state, last)
                moving = state.particles[name]
                values = {**moving.records, **(particles.sampled(state, name, see) if see else {})}
                for record, components in records[name].items():
                    array = values[record] if values[record].ndim > 1 else values[record][None]
                    last = populations[name].chosen(moving, array, strides[name])
                    for i, variable in enumerate(_component_names(record, components)):
                        row[f"{name}/{variable}"] = last[i]
                last = values[next(reversed(values))]
            return row

        ids = {f"{name}_id": np.arange(0, populations[name].count, strides[name]) for name in names}
        kinds = [(name, record, n) for name in names for record, n in records[name].items()]
        variables = {
            f"{name}/{v}": (f"{name}_id",) for name, r, n in kinds for v in _component_names(r, n)
        }
        return Measured(
            ids, variables, compute, {"box": [float(n) for n in populations[names[0]].domain.box]}
        )


def _component_names(record: str, components: int) -> list[str]:
    ends = {1: [""], 3: [f"_{a}" for a in AXES], 9: [f"_{a}{b}" for a in AXES for b in AXES]}[
        components
    ]
    return [record + end for end in ends]


def ready_after(
    population: Population, state: models.State, last: jax.Array | None, *, replicated: bool = False
) -> models.State:
    """The state, with positions that depend on `last`, so that all processes exchange in the same
    order. `last` holds values of particles, distributed like them, or those that `chosen` gives to
    every device (`replicated`)."""
    if last is None:
        return state
    particles = state.particles[population.name]
    place = jax.sharding.PartitionSpec() if replicated else None
    position = population.domain.after(particles.records["position"], last, place)
    changed = {**state.particles, population.name: particles.with_records({"position": position})}
    return models.State(**{**vars(state), "particles": changed})


class ParticleStatisticsSettings(SeriesCadence):
    bins: Annotated[Integer, Field(ge=2, le=1000)] = 101
    """Number of bins of the acceleration's probability density."""
    range: Ratio = 25.0
    """The probability density extends by this many root mean squares to both sides."""


class ParticleStatistics(Kind):
    name = "particle_statistics"
    description = "Dispersion, velocity and acceleration of particles in particle_statistics.h5."
    Settings = ParticleStatisticsSettings

    def measured(self, subject: Subject, settings: ParticleStatisticsSettings) -> Measured:
        """Means over all particles of each species: velocity and acceleration; dispersion and
        autocorrelation of the velocity, if records hold the start; settling velocity, if a
        gravitational acceleration acts (`falling`); separations of pairs, if the particles start as
        pairs."""
        particles = subject.particles
        begun = {name: kind.species.settings.start for name, kind in particles.swarm.kinds.items()}
        pairs = {name: start for name, start in begun.items() if start.kind == "pairs"}
        populations = particles.populations
        falling = particles.swarm.falling
        edges = np.linspace(-settings.range, settings.range, settings.bins + 1)

        def compute(state: models.State) -> dict[str, jax.Array]:
            row: dict[str, jax.Array] = {}
            last = None
            replicated = False
            move = particles.motion(state)
            for name, population in populations.items():
                moving = ready_after(population, state, last, replicated=replicated).particles[name]
                velocity, acceleration = move(name, moving)
                means = _means(moving, velocity, acceleration, population.count)
                if name in falling:
                    drift = jnp.stack([means[f"mean_velocity_{a}"] for a in AXES])
                    pull = np.asarray(falling[name])
                    means["settling_velocity"] = drift @ (pull / np.linalg.norm(pull))
                scaled = acceleration / jnp.sqrt(means["acceleration_variance"] / 3)
                means["acceleration"] = _density(scaled, moving.valid, edges, population.domain)
                last = acceleration
                if name in pairs:
                    way = population.domain.after(moving.records["displacement"], acceleration)
                    last = population.chosen(moving, way, 1)
                    means |= _apart(last, pairs[name], population.domain)
                row |= {f"{name}/{key}": value for key, value in means.items()}
                replicated = name in pairs
            return row

        variables: dict[str, tuple[str, ...]] = {}
        for name, population in populations.items():
            keys = [*_mean_names(population), *(["settling_velocity"] if name in falling else [])]
            variables |= {f"{name}/{key}": () for key in keys}
            variables[f"{name}/acceleration"] = ("sigma",)
        coordinates = {"sigma": (edges[1:] + edges[:-1]) / 2}
        for name, start in pairs.items():
            coordinates[f"{name}_separation"] = np.array(start.separations)
            variables |= {
                f"{name}/{key}": (f"{name}_separation",)
                for key in ("pair_dispersion", "pair_change")
            }
        return Measured(coordinates, variables, compute)


def _mean_names(population: Population) -> list[str]:
    """The names of `_means`."""
    names = [f"mean_velocity_{a}" for a in AXES] + ["velocity_variance", "acceleration_variance"]
    if "displacement" in population.records:
        names += [*(f"dispersion_{a}" for a in AXES), "velocity_autocorrelation"]
    return names


def _means(
    particles: ParticleSet, velocity: ParticleVectors, acceleration: ParticleVectors, count: int
) -> dict[str, jax.Array]:
    def mean(values: jax.Array) -> jax.Array:
        return jnp.where(particles.valid, values, 0).sum(-1) / count

    square = mean((velocity * velocity).sum(0))
    drift = mean(velocity)
    means = {
        **{f"mean_velocity_{a}": drift[i] for i, a in enumerate(AXES)},
        "velocity_variance": square - (drift**2).sum(),
        "acceleration_variance": mean((acceleration**2).sum(0)),
    }
    if "displacement" in particles.records:
        displacement = particles.records["displacement"]
        start = particles.records["start_velocity"]
        product = mean((velocity * start).sum(0))
        means |= {f"dispersion_{a}": mean(displacement[i] ** 2) for i, a in enumerate(AXES)}
        means["velocity_autocorrelation"] = product / jnp.sqrt(
            square * mean((start * start).sum(0))
        )
    return means


def _apart(way: ParticleVectors, start: PairPlaces, domain: Domain) -> dict[str, jax.Array]:
    """The mean squares of the distance of a pair, and of its change since the start, for each
    separation."""
    pair = jnp.arange(way.shape[1] // 2)
    first = start.vectors(pair, domain)
    change = way[:, 1::2] - way[:, ::2]

    def mean(vectors: jax.Array) -> jax.Array:
        count = len(start.separations)
        which = pair % len(start.separations)
        sums = jnp.zeros(count).at[which].add((vectors**2).sum(0))
        return sums / jnp.zeros(count).at[which].add(1.0)

    return {"pair_dispersion": mean(first + change), "pair_change": mean(change)}


def _density(
    values: ParticleVectors, valid: jax.Array, edges: np.ndarray, domain: Domain
) -> jax.Array:
    """Probability density of the three components of `values` together, in bins of equal width."""
    bins = len(edges) - 1
    width = edges[1] - edges[0]

    def counted(values: jax.Array, valid: jax.Array) -> jax.Array:
        return binned(jnp.where(valid, (values - edges[0]) / width, -1), bins)[:, None]

    counts = domain.on_devices(counted, values, valid).sum(-1)
    return counts / (3 * valid.sum() * width)
