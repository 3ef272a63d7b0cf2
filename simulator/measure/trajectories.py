"""Paths of some particles: trajectories.h5."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, TypeAlias

import numpy as np
from pydantic import AfterValidator, Field

from simulator.measure.kind import AXES, Kind, Measured, SeriesCadence, Subject, Unsupported, distinct
from simulator.measure.lazy import COMPONENTS, Population, Populations, jax, models
from simulator.settings import Integer


class TrajectorySettings(SeriesCadence):
    count: Annotated[Integer, Field(ge=1, le=10**6)] = 1000
    """The largest number of particles of each species, with evenly spaced ids."""
    particles: Annotated[tuple[str, ...], AfterValidator(distinct)] | None = None
    """Names of the species; by default all."""
    sample: tuple[str, ...] = ()
    """Quantities of the fluid at the particles: velocity, acceleration, gradient and the names of scalar fields; none
    for particles that are matter."""


class Trajectories(Kind):
    name = "trajectories"
    description = "Paths of some particles in trajectories.h5."
    Settings = TrajectorySettings

    def measured(self, subject: Subject, settings: TrajectorySettings) -> Measured:
        particles = subject.particles
        names = particles.species(settings.particles)
        particles.check(settings.sample, particles.quantities, "sample")
        if settings.sample and (matter := [name for name in names if name not in particles.swarm.kinds]):
            raise Unsupported(
                f"{matter[0]} is matter itself and moves with no fluid; leave the key out", "sample"
            )
        return trajectories(particles.populations, particles.sampled, names, settings.count, settings.sample)


Sampled: TypeAlias = "Callable[[models.State, str, tuple[str, ...]], dict[str, jax.Array]]"
"""(state, species, quantities) to the fluid at these particles, as records `fluid_velocity` and so on."""


def _component_names(record: str, components: int) -> list[str]:
    """The names of a record's variables: the record's own, or one for each component."""
    ends = {1: [""], 3: [f"_{a}" for a in AXES], 9: [f"_{a}{b}" for a in AXES for b in AXES]}[components]
    return [record + end for end in ends]


def ready_after(population: Population, state: models.State, last: jax.Array | None) -> models.State:
    """The state, with the positions of a population available only after `last`, so that exchanges keep their
    order."""
    if last is None:
        return state
    particles = state.particles[population.name]
    position = population.domain.after(particles.records["position"], last)
    changed = {**state.particles, population.name: particles.with_records({"position": position})}
    return models.State(**{**vars(state), "particles": changed})


def trajectories(
    populations: Populations, sampled: Sampled, names: Sequence[str], most: int, see: tuple[str, ...]
) -> Measured:
    """Paths of at most `most` particles of each of the species `names`, with evenly spaced ids: `NAME/position_x`,
    ... over the coordinate `NAME_id`, with `NAME/displacement_x`, ..., other records, and the quantities `see`."""
    strides = {name: -(-populations[name].count // most) for name in names}
    records = {
        name: {
            **{r: 3 for r in ("position", "displacement", "velocity") if r in populations[name].records},
            **{f"fluid_{q}": COMPONENTS.get(q, 1) for q in see},
        }
        for name in names
    }

    def compute(state: models.State) -> dict[str, jax.Array]:
        row: dict[str, jax.Array] = {}
        last = None
        for name in names:
            state = ready_after(populations[name], state, last)
            particles = state.particles[name]
            values = {**particles.records, **(sampled(state, name, see) if see else {})}
            for record, components in records[name].items():
                array = values[record] if values[record].ndim > 1 else values[record][None]
                last = populations[name].chosen(particles, array, strides[name])
                for i, variable in enumerate(_component_names(record, components)):
                    row[f"{name}/{variable}"] = last[i]
            last = values[next(reversed(values))]
        return row

    return Measured(
        {f"{name}_id": np.arange(0, populations[name].count, strides[name]) for name in names},
        {
            f"{name}/{variable}": (f"{name}_id",)
            for name in names
            for record, components in records[name].items()
            for variable in _component_names(record, components)
        },
        compute,
        {"box": [float(length) for length in populations[names[0]].domain.box]},
    )
