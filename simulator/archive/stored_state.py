"""Converts states to data sets, and restores states onto any devices, at any resolution."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec
from numpy.typing import DTypeLike

from simulator.archive.array_file import ArrayFile
from simulator.archive.manifest import NAME as MANIFEST
from simulator.archive.manifest import Axis
from simulator.archive.restore import restored_array
from simulator.archive.shard import Dataset
from simulator.archive.snapshot_reader import Snapshot, configuration_of, open_snapshot
from simulator.archive.stored_particles import ParticlesOnDisk, arrangement
from simulator.cluster.mesh import spatial
from simulator.errors import RunFailure, UserError
from simulator.physics.initial.initial import ForeignParticles
from simulator.physics.models import Equation, State
from simulator.physics.particles import Domain, ParticleSet
from simulator.physics.particles.particle_set import id_sum
from simulator.physics.particles.particle_start import StoredParticles
from simulator.physics.particles.population import Population, Populations
from simulator.physics.stored_values import StoredValues
from simulator.simulation.error_control import NEXT, with_controller
from simulator.simulation.inputs import Inputs
from simulator.simulation.simulation import Simulation
from simulator.spectral import Grid, Layout, Transform, make_transform
from simulator.spectral.layout import PhysicalLayout, padded
from simulator.spectral.sheared import ShearedTransform

_CLOCK = ("time", "step", "dt", "origin", "since")
_COMPONENTS = ("x", "y", "z")
Conversion = Callable[[jax.Array], jax.Array]
CARRIED = ("memory_", "history_", "series_")
"""Prefixes of a checkpoint's arrays that belong to model, forcing, integrator or series and are not
fields."""


def spectral_axes(layout: Layout) -> tuple[Axis, ...]:
    """The axes of a spectral layout, as the manifest describes them."""
    shape = dict(zip("xyz", layout.grid.shape, strict=True))
    names = layout.grid.names
    return tuple(
        Axis.modes(names[a], layout.mode_numbers[a], points=shape[a]) for a in layout.seen_order
    )


def physical_axes(transform: Transform | PhysicalLayout) -> tuple[Axis, ...]:
    """The axes of the grid, as the manifest describes them."""
    grid = transform.grid
    sizes = zip(grid.names.values(), grid.seen(grid.shape), grid.seen(grid.spacing), strict=True)
    return tuple(Axis.uniform(name, n, h) for name, n, h in sizes)


def component_labels(lead: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    return tuple(_COMPONENTS[:n] if n <= 3 else tuple(map(str, range(n))) for n in lead)


def field_dataset(name: str, array: jax.Array, place: Layout | PhysicalLayout) -> Dataset:
    """An array (..., modes or points) in this layout, to be stored under `name`."""
    spectral = isinstance(place, Layout)
    axes = spectral_axes(place) if spectral else physical_axes(place)
    lead = component_labels(array.shape[:-3])
    return Dataset(name, place.as_seen(array), axes, lead, hermitian=spectral and place.half)


def restored_field(
    snapshot: Snapshot,
    name: str,
    like: jax.Array | jax.ShapeDtypeStruct,
    place: Layout | PhysicalLayout,
) -> jax.Array:
    """A stored array in this layout; `like` has the type and the number of axes of the result."""
    axes = spectral_axes(place) if isinstance(place, Layout) else physical_axes(place)
    sharding = place.seen_sharding(like.ndim - 3 + len(place.seen_order))
    return place.from_seen(
        restored_array(snapshot, name, sharding, axes, place.seen_shape, np.dtype(like.dtype))
    )


def datasets(
    state: State, model: Equation, populations: Populations = MappingProxyType({})
) -> list[Dataset]:
    """All arrays that influence the next step, at full precision. `populations` belong to the
    state's particles."""

    def field(stored: str, name: str, array: jax.Array) -> Dataset:
        return field_dataset(stored, array, model.transforms[name].layout)

    fields = [field(name, name, array) for name, array in state.fields.items()]
    clock = [Dataset(name, np.asarray(getattr(state, name))) for name in _CLOCK]
    memory = [
        Dataset(f"memory_{name}", np.asarray(value)) for name, value in state.memory.named.items()
    ]
    history = [
        field(_history_name(kind, name), name, array)
        for kind, tree in state.history.items()
        for name, array in tree.items()
    ]
    particles: list[Dataset] = []
    for name, moving in state.particles.items():
        particles += particle_datasets(moving, populations[name])
    return [*fields, *clock, *memory, *history, *particles]


def load_state(
    folder: Path, like: State, model: Equation, populations: Populations = MappingProxyType({})
) -> State:
    """The state stored in `folder`, in the layouts of the model, with each particle on the device
    of its position. `like` has the names, shapes and types of the arrays; the buffers of particles
    may become larger."""
    snapshot = open_snapshot(folder)

    def field(stored: str, name: str, array: jax.Array) -> jax.Array:
        return restored_field(snapshot, stored, array, model.transforms[name].layout)

    replicated = model.transform.layout.everywhere

    def small(stored: str, array: jax.Array) -> jax.Array:
        return small_array(snapshot, stored, array.shape, replicated)

    def earlier(kind: str, tree: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        return {n: field(_history_name(kind, n), n, array) for n, array in tree.items()}

    return State(
        {name: field(name, name, array) for name, array in like.fields.items()},
        **{name: small(name, getattr(like, name)) for name in _CLOCK},
        memory=like.memory.restored(lambda name, array: small(f"memory_{name}", array)),
        history={kind: earlier(kind, tree) for kind, tree in like.history.items()},
        particles={
            name: populations[name].restored(ParticlesOnDisk(snapshot, name))
            for name in like.particles
        },
    )


def small_array(
    snapshot: Snapshot,
    name: str,
    shape: tuple[int, ...],
    sharding: jax.sharding.Sharding,
    dtype: DTypeLike | None = None,
) -> jax.Array:
    """A small stored array, of which every process reads all values."""
    value = np.asarray(snapshot[name][...], dtype).reshape(shape)
    return jax.make_array_from_callback(shape, sharding, lambda index: value[index])


def restored_state(simulation: Simulation, folder: Path) -> State:
    """The state stored in `folder`, on the devices of the simulation."""
    like = simulation.template
    asked = simulation.time_step.error
    # The run may have taken its steps by a CFL number before.
    anew = asked is not None and f"memory_{NEXT}" not in open_snapshot(folder)
    if anew:
        like = replace(like, memory=replace(like.memory, control={}))
    state = load_state(folder, like, simulation.model, simulation.populations)
    if anew:
        state = jax.jit(lambda s: with_controller(s, simulation.config.time.stop, asked, s.dt))(
            state
        )
    return simulation.completed(state)


def _history_name(kind: str, field: str) -> str:
    return f"history_{kind}_{field}"


_RECORD_COMPONENTS = {3: ("x", "y", "z"), 9: tuple(i + j for i in "xyz" for j in "xyz")}


def particle_datasets(particles: ParticleSet, population: Population) -> Iterator[Dataset]:
    """The records of particles, `NAME.position` and so on, and `NAME.id`.

    Raises RunFailure if a particle is missing or duplicated, so that the ids do not add up."""
    name = population.name
    domain = population.domain
    shares = _checked_shares(name, particles, population.count, domain)
    axis = (Axis(name=f"{name}.particle", size=sum(shares)),)
    for record, array in {"id": particles.id, **particles.records}.items():
        names = (_RECORD_COMPONENTS[array.shape[0]],) if array.ndim > 1 else ()
        said = {"shares": list(shares), "arrangement": arrangement(domain)}
        yield Dataset(
            f"{name}.{record}", array, axis, names, species=name, shares=shares, attributes=said
        )


def _checked_shares(
    name: str, particles: ParticleSet, total: int, domain: Domain
) -> tuple[int, ...]:
    """The number of particles on each device. Raises RunFailure if their sum or that of their ids
    is wrong."""

    def look(particles: ParticleSet) -> tuple[jax.Array, jax.Array, jax.Array]:
        valid = particles.valid
        return particles.count, valid.sum(), jnp.where(valid, particles.id, 0).sum()

    counts, there, ids = jax.device_get(jax.jit(look, out_shardings=domain.everywhere)(particles))
    if int(counts.sum()) != total or int(there) != total or int(ids) != id_sum(total):
        raise RunFailure(
            f"{name}: {int(there)} particles whose ids add up to {int(ids)}, where {total} with the sum "
            f"{id_sum(total)} are expected: particles are lost or duplicated; all earlier output is intact"
        )
    return tuple(int(n) for n in counts)


class RunInputs(Inputs):
    """The input files of a run, with the snapshots and arrays of other runs and programs.

    These are not copied: the run records the checksums of arrays and of the manifests of
    snapshots, which hold those of the shards."""

    def opened(self, path: str) -> Snapshot:
        """A snapshot or checkpoint whose shards are checked when they are read."""
        snapshot = open_snapshot(Path(path), checked=True)
        self.digest(snapshot.path / MANIFEST)
        return snapshot

    def snapshot(self, path: str) -> "StoredFields":
        return StoredFields(self.opened(path))

    def clock(self, path: str) -> tuple[float, Mapping[str, Any]]:
        """The time of a snapshot or checkpoint, and the configuration of its run."""
        snapshot = self.opened(path)
        return snapshot.time, configuration_of(snapshot.manifest)

    def particles(self, path: str, name: str) -> ParticlesOnDisk:
        return ParticlesOnDisk(self.opened(path), name)

    def array(self, path: str, dataset: str | None) -> StoredValues:
        """An array of values on the grid in a file of another program."""
        stored = ArrayFile(path, dataset)
        self.digest(stored.path)
        return stored

    def foreign(self, particles: ForeignParticles) -> StoredParticles:
        """Particles in the files of another program."""
        for file in particles.files:
            self.digest(file)
        return particles


class StoredFields:
    """The fields of a snapshot (values) or checkpoint (modes). Raises UserError if it is
    neither."""

    def __init__(self, snapshot: Snapshot):
        self._snapshot = snapshot
        path = snapshot.path
        entries = {
            n: f.entry
            for n, f in self._snapshot.items()
            if f.entry.is_mesh and not n.startswith(CARRIED)
        }
        if not entries:
            raise UserError(f"{path}: holds no field")
        self.components = {
            n: tuple(len(c) for c in entry.components) for n, entry in entries.items()
        }
        axes = {a.name: a for a in next(iter(entries.values())).axes}
        self._modes = axes["x"].labels is not None
        shape = [axes[a].points or axes[a].size for a in "xyz" if a in axes]
        box = self._snapshot.attributes.get("box")
        if box is None:
            raise UserError(f"{path}: does not store its box; take a snapshot instead")
        self.grid = Grid.of(shape, [float(length) for length in box], "none")

    def coefficients(self, name: str, transform: Transform) -> jax.Array:
        """The modes of field `name` in the layout of `transform`; zero where the stored grid has no
        mode."""
        layout = transform.layout
        components = self.components[name]
        if self._modes:
            like = jax.ShapeDtypeStruct((*components, *layout.shape), transform.complex_dtype)
            field = restored_field(self._snapshot, name, like, layout)
            return jax.jit(lambda f: jnp.where(layout.mask, f, 0))(field)
        stored, to_modes, to_layout = _conversion(self.grid, transform)
        dtype = transform.value_dtype
        like = jax.ShapeDtypeStruct((*components, *stored.physical.shape), dtype)
        modes = to_modes(restored_field(self._snapshot, name, like, stored.physical))
        # The same parts on the same devices, expressed in the other mesh.
        over = {stored.layout.order.index(a): layout.mesh.axis_names for a in stored.layout.sharded}
        spec = PartitionSpec(*(None,) * len(components), *(over.get(i) for i in range(3)))
        return to_layout(jax.device_put(modes, NamedSharding(layout.mesh, spec)))


@lru_cache(maxsize=2)  # All snapshots of a run share the programs.
def _conversion(grid: Grid, transform: Transform) -> tuple[Transform, Conversion, Conversion]:
    """The transform of values stored on a grid, its compiled `forward`, and the compiled function
    from its modes to those of `transform`."""
    layout = transform.layout
    devices = list(layout.mesh.devices.flat)
    real = layout.real
    # A wave function also has its Nyquist planes.
    stored = make_transform(grid, devices, transform.dtype, real=real, every=not real)
    if isinstance(transform, ShearedTransform):
        stored = ShearedTransform(stored, transform.tilt)
    return stored, jax.jit(stored.forward), jax.jit(lambda m: resized(m, stored.layout, layout))


def resized(modes: jax.Array, source: Layout, target: Layout) -> jax.Array:
    """Modes in another layout, at the same or another resolution; no device ever holds a whole
    field.

    An axis is resized while every device holds all of it: x and y first, z after an exchange of z
    for y."""
    assert source.sharded.keys() <= {"z"} and source.half == target.half
    lead = modes.ndim - 3
    modes = jnp.transpose(modes, (*range(lead), *(lead + source.order.index(a) for a in "zyx")))
    for axis in "xy":
        modes = _matched(modes, lead + "zyx".index(axis), axis, source, target)
    parts = target.devices
    y = modes.shape[lead + 1]
    modes = jnp.pad(modes, [(0, 0)] * (lead + 1) + [(0, padded(y, parts) - y), (0, 0)])
    if parts > 1:
        spec = PartitionSpec(*(None,) * (lead + 1), tuple(spatial(target.mesh)), None)
        modes = lax.with_sharding_constraint(modes, NamedSharding(target.mesh, spec))
    modes = _matched(modes, lead, "z", source, target)[..., :y, :]
    modes = jnp.transpose(modes, (*range(lead), *(lead + "zyx".index(a) for a in target.order)))
    return target.constrain(jnp.where(target.mask, modes, 0))


def _matched(
    modes: jax.Array, position: int, axis: str, source: Layout, target: Layout
) -> jax.Array:
    """The modes with the target's wavenumbers along one axis; zero for wavenumbers that the source
    lacks."""
    places = {int(k): i for i, k in enumerate(source.mode_numbers[axis])}
    index = np.array([places.get(int(k), -1) for k in target.padded_mode_numbers(axis)])
    shape = [-1 if i == position else 1 for i in range(modes.ndim)]
    return jnp.where(
        (index >= 0).reshape(shape), jnp.take(modes, np.maximum(index, 0), axis=position), 0
    )
