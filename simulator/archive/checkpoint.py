"""A state as data sets, and back, in the same layout or mode by mode in another."""

from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from simulator.archive.dataset import Axis, Dataset
from simulator.archive.reader import open_snapshot
from simulator.archive.restore import restore
from simulator.archive.stored_particles import ParticlesOnDisk, particle_datasets
from simulator.models import Model, State
from simulator.particles.population import Populations
from simulator.spectral import Layout, Transform
from simulator.spectral.layout import PhysicalLayout

_CLOCK = ("time", "step", "dt", "origin", "since")
_COMPONENTS = ("x", "y", "z")
CARRIED = ("memory_", "history_", "series_")
"""Prefixes of the names in a checkpoint that are not fields: arrays of model, forcing, integrator and series."""


def spectral_axes(layout: Layout) -> tuple[Axis, ...]:
    """The layout's axes in storage's terms."""
    shape, names = dict(zip("xyz", layout.grid.shape, strict=True)), layout.grid.names
    return tuple(Axis.modes(names[a], layout.mode_numbers[a], points=shape[a]) for a in layout.seen_order)


def physical_axes(transform: Transform | PhysicalLayout) -> tuple[Axis, ...]:
    """The grid's axes in storage's terms."""
    grid = transform.grid
    sizes = zip(grid.names.values(), grid.seen(grid.shape), grid.seen(grid.spacing), strict=True)
    return tuple(Axis.uniform(name, n, h) for name, n, h in sizes)


def component_names(lead: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    return tuple(_COMPONENTS[:n] if n <= 3 else tuple(map(str, range(n))) for n in lead)


def datasets(state: State, model: Model, populations: Populations = MappingProxyType({})) -> list[Dataset]:
    """Everything that the next step needs, at full precision. `populations`: those of the state's particles."""

    def field(stored: str, name: str, array: jax.Array) -> Dataset:
        layout = model.transform_of(name).layout
        lead = component_names(array.shape[:-3])
        return Dataset(stored, layout.as_seen(array), spectral_axes(layout), lead, hermitian=layout.half)

    fields = [field(name, name, array) for name, array in state.fields.items()]
    clock = [Dataset(name, np.asarray(getattr(state, name))) for name in _CLOCK]
    memory = [Dataset(f"memory_{name}", np.asarray(value)) for name, value in state.memory.items()]
    history = [
        field(_history_name(kept, name), name, array)
        for kept, tree in state.history.items()
        for name, array in tree.items()
    ]
    particles: list[Dataset] = []
    for name, found in state.particles.items():
        particles += particle_datasets(found, populations[name])
    return [*fields, *clock, *memory, *history, *particles]


def load(folder: Path, like: State, model: Model, populations: Populations = MappingProxyType({})) -> State:
    """The state stored in `folder`, in the layouts of the model, with the particles where they live. `like` tells
    names, shapes and types; buffers of particles may be larger than there."""
    snapshot = open_snapshot(folder)

    def field(stored: str, name: str, array: jax.Array) -> jax.Array:
        layout = model.transform_of(name).layout
        rank = array.ndim - 3 + len(layout.seen_order)
        sharding, axes = layout.seen_sharding(rank), spectral_axes(layout)
        modes = restore(snapshot, stored, sharding, axes, layout.seen_shape, dtype=np.dtype(array.dtype))
        return layout.from_seen(modes)

    replicated = NamedSharding(model.transform.layout.mesh, PartitionSpec())

    def small(stored: str, array: jax.Array) -> jax.Array:
        value = np.asarray(snapshot[stored][...]).reshape(array.shape)
        return jax.make_array_from_callback(array.shape, replicated, lambda index: value[index])

    return State(
        {name: field(name, name, array) for name, array in like.fields.items()},
        **{name: small(name, getattr(like, name)) for name in _CLOCK},
        memory={name: small(f"memory_{name}", value) for name, value in like.memory.items()},
        history={
            kept: {name: field(_history_name(kept, name), name, array) for name, array in tree.items()}
            for kept, tree in like.history.items()
        },
        particles={
            name: populations[name].restored(ParticlesOnDisk(snapshot, name)) for name in like.particles
        },
    )


def _history_name(kept: str, field: str) -> str:
    return f"history_{kept}_{field}"
