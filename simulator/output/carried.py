"""Arrays that a kind of series carries from row to row, on the devices and through checkpoints."""

from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from simulator.measure import Carried
from simulator.simulation.checkpoint import component_names, physical_axes, spectral_axes
from simulator.spectral import Layout, Transform
from simulator.storage import Axis, Dataset, open_snapshot, restore

Memory = Mapping[str, jax.Array]


class CarriedArrays:
    """The arrays of one series. `prefix` distinguishes their names in a checkpoint from those of other series."""

    def __init__(self, carried: Carried, transform: Transform, prefix: str):
        self._carried, self._transform, self._prefix = carried, transform, prefix
        template = jax.eval_shape(carried.begin)
        self.template = {
            name: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=self._sharding(name, a.ndim))
            for name, a in template.items()
        }
        """Shapes, types and shardings."""

    def _sharding(self, name: str, rank: int) -> NamedSharding:
        place = self._carried.places.get(name)
        everywhere = NamedSharding(self._transform.layout.mesh, PartitionSpec())
        return everywhere if place is None else place.sharding(rank)

    def _axes(self, name: str) -> tuple[Axis, ...]:
        place = self._carried.places[name]
        return spectral_axes(place) if isinstance(place, Layout) else physical_axes(place)

    def begin(self) -> Memory:
        """The arrays of a run's first row."""
        return jax.jit(self._carried.begin, out_shardings={n: a.sharding for n, a in self.template.items()})()

    def placed(self, memory: Memory) -> dict[str, jax.Array]:
        """The arrays with the shardings of `template`; for compiled functions."""
        return {n: jax.lax.with_sharding_constraint(memory[n], a.sharding) for n, a in self.template.items()}

    def datasets(self, memory: Memory) -> list[Dataset]:
        """The arrays as a checkpoint stores them."""
        datasets = []
        for name, array in memory.items():
            place = self._carried.places.get(name)
            if place is None:
                datasets.append(Dataset(self._prefix + name, np.asarray(array)))
                continue
            hermitian = isinstance(place, Layout) and place.half
            components = component_names(array.shape[:-3])
            datasets.append(
                Dataset(self._prefix + name, array, self._axes(name), components, hermitian=hermitian)
            )
        return datasets

    def load(self, folder: Path) -> Memory:
        """The arrays of a checkpoint, or those of a first row if the series is newer than the checkpoint."""
        snapshot = open_snapshot(folder)
        if not all(self._prefix + name in snapshot for name in self.template):
            return self.begin()
        memory = {}
        for name, like in self.template.items():
            stored = self._prefix + name
            place = self._carried.places.get(name)
            if place is None:
                value = np.asarray(snapshot[stored][...], like.dtype).reshape(like.shape)
                memory[name] = jax.make_array_from_callback(
                    like.shape, like.sharding, lambda index, value=value: value[index]
                )
            else:
                memory[name] = restore(
                    snapshot, stored, like.sharding, self._axes(name), place.shape, dtype=like.dtype
                )
        return memory
