"""A state as data sets, and back: in its own layout or mode by mode into another."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from simulator.models import State
from simulator.spectral import Layout, Transform
from simulator.storage import Axis, Dataset, open_snapshot, restore

_CLOCK = ("time", "step", "dt", "origin", "since")
_COMPONENTS = ("x", "y", "z")


def spectral_axes(layout: Layout) -> tuple[Axis, ...]:
    """The layout's axes as storage knows them."""
    shape = dict(zip("xyz", layout.grid.shape, strict=True))
    return tuple(Axis.modes(a, layout.labels[a], points=shape[a]) for a in layout.order)


def physical_axes(transform: Transform) -> tuple[Axis, ...]:
    grid = transform.grid
    return tuple(Axis.uniform(a, n, h) for a, n, h in zip("xyz", grid.shape, grid.spacing, strict=True))


def component_names(lead: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    return tuple(_COMPONENTS[:n] if n <= 3 else tuple(map(str, range(n))) for n in lead)


def datasets(state: State, transform: Transform, own: Mapping[str, Transform] | None = None) -> list[Dataset]:
    """Everything that the next step needs, at full precision. `own`: transforms of fields that do not have
    `transform`."""
    layout = transform.layout
    axes = spectral_axes(layout)

    def field(name: str, array: jax.Array) -> Dataset:
        its = (own or {}).get(name, transform).layout
        return Dataset(name, array, spectral_axes(its), component_names(array.shape[:-3]), hermitian=its.half)

    fields = [field(name, array) for name, array in state.fields.items()]
    clock = [Dataset(name, np.asarray(getattr(state, name))) for name in _CLOCK]
    memory = [_memory_dataset(name, value, layout, axes) for name, value in state.memory.items()]
    return [*fields, *clock, *memory]


def _memory_dataset(name: str, value: Any, layout: Layout, axes: tuple[Axis, ...]) -> Dataset:
    stored = f"memory_{name}"
    if value.ndim >= 3 and value.shape[-3:] == layout.shape:
        return Dataset(stored, value, axes, component_names(value.shape[:-3]), hermitian=layout.half)
    return Dataset(stored, np.asarray(value))


def load(
    folder: Path, like: State, transform: Transform, own: Mapping[str, Transform] | None = None
) -> State:
    """The state stored in `folder`, on the layout of `transform`, or of a field's `own`. `like` tells names, shapes
    and types."""
    snapshot = open_snapshot(folder)
    layout = transform.layout

    def field(name: str, array: jax.Array) -> jax.Array:
        its = (own or {}).get(name, transform).layout
        sharding, axes = its.sharding(array.ndim), spectral_axes(its)
        return restore(snapshot, name, sharding, axes, its.shape, dtype=np.dtype(array.dtype))

    replicated = NamedSharding(layout.mesh, PartitionSpec())

    def small(name: str, array: jax.Array) -> jax.Array:
        value = np.asarray(snapshot[name][...]).reshape(array.shape)
        return jax.make_array_from_callback(array.shape, replicated, lambda index: value[index])

    def memory(name: str, array: jax.Array) -> jax.Array:
        spectral = array.ndim >= 3 and array.shape[-3:] == layout.shape
        return (field if spectral else small)(f"memory_{name}", array)

    return State(
        {name: field(name, array) for name, array in like.fields.items()},
        **{name: small(name, getattr(like, name)) for name in _CLOCK},
        memory={name: memory(name, value) for name, value in like.memory.items()},
    )
