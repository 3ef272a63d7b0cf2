"""Measurements of particles: paths of some of them, and statistics of all."""

from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from simulator.diagnostics.measured import Measured
from simulator.models import State
from simulator.particles import Domain, ParticleSet
from simulator.particles.population import Population, Populations
from simulator.particles.sampled import COMPONENTS

AXES = "xyz"
_MIXING = 0x1E3779B97F4A7C15
Sampled = Callable[[State, str, tuple[str, ...]], dict[str, jax.Array]]
"""(state, species, quantities) to the fluid at these particles, as records `fluid_velocity` and so on."""
Motion = Callable[[State], Callable[[str, ParticleSet], tuple[jax.Array, jax.Array]]]
"""A state to the function from a species and its particles to their velocity and acceleration, (3, entries) both."""


def _component_names(record: str, components: int) -> list[str]:
    """The names of a record's variables: the record's own, or one for each component."""
    ends = {1: [""], 3: [f"_{a}" for a in AXES], 9: [f"_{a}{b}" for a in AXES for b in AXES]}[components]
    return [record + end for end in ends]


def ready_after(population: Population, state: State, last: jax.Array | None) -> State:
    """The state, with the positions of a population available only after `last`, so that exchanges keep their
    order."""
    if last is None:
        return state
    particles = state.particles[population.name]
    position = population.domain.after(particles.records["position"], last)
    changed = {**state.particles, population.name: particles.with_records({"position": position})}
    return State(**{**vars(state), "particles": changed})


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

    def compute(state: State) -> dict[str, jax.Array]:
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


def near_planes(populations: Populations, planes: Mapping[str, tuple[str, str]], most: int) -> Measured:
    """Where particles within half a grid spacing of the mid-planes are, for pictures: `NAME/near_xy_x` and
    `NAME/near_xy_y`, ... over the coordinate `near`. If there are more than `most` of a species, some are picked by
    their ids, at each time the same ones; NaN where there are fewer."""

    def compute(state: State) -> dict[str, jax.Array]:
        row: dict[str, jax.Array] = {}
        for name, population in populations.items():
            particles = state.particles.get(name)  # snapshots that are measured again lack those of a fluid
            for plane, axes in planes.items():
                if particles is None:
                    found = jnp.full((2, most), jnp.nan)
                else:
                    found = _near(particles, population.domain, plane, most)
                row |= {f"{name}/near_{plane}_{axis}": found[i] for i, axis in enumerate(axes)}
        return row

    variables = {
        f"{name}/near_{plane}_{axis}": ("near",)
        for name in populations
        for plane, axes in planes.items()
        for axis in axes
    }
    return Measured({"near": np.arange(most)}, variables, compute)


def _near(particles: ParticleSet, domain: Domain, plane: str, most: int) -> jax.Array:
    """(2, most): positions in a mid-plane of the particles next to it, on every device."""
    along = [AXES.index(axis) for axis in plane]
    across = next(i for i in range(3) if i not in along)
    grid = domain.physical.grid
    spacing, middle = grid.spacing[across], grid.shape[across] // 2 * grid.spacing[across]
    held = min(particles.capacity, most)

    def local(ids: jax.Array, position: jax.Array) -> tuple[jax.Array, jax.Array]:
        near = (ids >= 0) & ((abs(position[across] - middle) <= spacing / 2) | (grid.shape[across] == 1))
        # Multiplied by a large odd number, ids lose every order that a lattice gives them.
        mixed = (ids * _MIXING) & jnp.iinfo(jnp.int64).max
        keys = jnp.where(near, mixed, jnp.iinfo(jnp.int64).max)
        first = jnp.argsort(keys)[:held]
        return keys[first], jnp.where(near, position[np.array(along)], jnp.nan)[:, first]

    if domain.cuts:
        spec = (domain.spec(1), domain.spec(2))
        local = jax.shard_map(
            local, mesh=domain.physical.mesh, in_specs=spec, out_specs=spec, check_vma=False
        )
    keys, places = local(particles.id, particles.records["position"])
    places = jax.lax.with_sharding_constraint(places, domain.everywhere)[:, jnp.argsort(keys)[:most]]
    return jnp.pad(places, ((0, 0), (0, most - places.shape[1])), constant_values=jnp.nan)


def statistics(
    populations: Populations,
    motion: Motion,
    falling: Mapping[str, Sequence[float]],
    bins: int,
    reach: float,
) -> Measured:
    """Means over all particles of each species: velocity, acceleration, dispersion and autocorrelation where the
    start is known, settling velocity of species that feel a gravitational acceleration (`falling`)."""
    edges = np.linspace(-reach, reach, bins + 1)

    def compute(state: State) -> dict[str, jax.Array]:
        row: dict[str, jax.Array] = {}
        last, move = None, motion(state)
        for name, population in populations.items():
            particles = ready_after(population, state, last).particles[name]
            velocity, acceleration = move(name, particles)
            means = _means(particles, velocity, acceleration, population.count)
            if name in falling:
                drift = jnp.stack([means[f"mean_velocity_{a}"] for a in AXES])
                means["settling_velocity"] = drift @ _direction(falling[name])
            means["acceleration"] = _density(particles, acceleration, means["acceleration_variance"], edges)
            row |= {f"{name}/{key}": value for key, value in means.items()}
            last = acceleration
        return row

    variables: dict[str, tuple[str, ...]] = {}
    for name, population in populations.items():
        keys = [f"mean_velocity_{a}" for a in AXES] + ["velocity_variance", "acceleration_variance"]
        if "displacement" in population.records:
            keys += [*(f"dispersion_{a}" for a in AXES), "velocity_autocorrelation"]
        if name in falling:
            keys.append("settling_velocity")
        variables |= {f"{name}/{key}": () for key in keys}
        variables[f"{name}/acceleration"] = ("sigma",)
    return Measured({"sigma": (edges[1:] + edges[:-1]) / 2}, variables, compute)


def _direction(pull: Sequence[float]) -> np.ndarray:
    return np.asarray(pull) / np.linalg.norm(pull)


def _means(
    particles: ParticleSet, velocity: jax.Array, acceleration: jax.Array, count: int
) -> dict[str, jax.Array]:
    def mean(values: jax.Array) -> jax.Array:
        return jnp.where(particles.valid, values, 0).sum(-1) / count

    square, drift = mean((velocity * velocity).sum(0)), mean(velocity)
    means = {
        **{f"mean_velocity_{a}": drift[i] for i, a in enumerate(AXES)},
        "velocity_variance": square - (drift**2).sum(),
        "acceleration_variance": mean((acceleration**2).sum(0)),
    }
    if "displacement" in particles.records:
        displacement, start = particles.records["displacement"], particles.records["start_velocity"]
        product = mean((velocity * start).sum(0))
        means |= {f"dispersion_{a}": mean(displacement[i] ** 2) for i, a in enumerate(AXES)}
        means["velocity_autocorrelation"] = product / jnp.sqrt(square * mean((start * start).sum(0)))
    return means


def _density(
    particles: ParticleSet, acceleration: jax.Array, variance: jax.Array, edges: np.ndarray
) -> jax.Array:
    """Probability density of the three components together, in units of their root mean square."""
    scaled = acceleration / jnp.sqrt(variance / 3)
    width = edges[1] - edges[0]
    number = jnp.floor((scaled - edges[0]) / width)
    inside = particles.valid & (number >= 0) & (number < len(edges) - 1)
    # One sum per bin: there are few bins, and this avoids a scatter across devices.
    counts = jax.lax.map(
        lambda b: jnp.where(inside & (number == b), 1.0, 0.0).sum(),
        jnp.arange(len(edges) - 1, dtype=number.dtype),
    )
    return counts / (3 * particles.valid.sum() * width)
