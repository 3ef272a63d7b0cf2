"""Fields of a snapshot or checkpoint as coefficients on another grid."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from simulator.archive.checkpoint import CARRIED, physical_axes, spectral_axes
from simulator.archive.dataset import Axis
from simulator.archive.reader import Snapshot, open_snapshot
from simulator.archive.restore import restore
from simulator.errors import UserError
from simulator.processes.mesh import spatial
from simulator.spectral import Grid, Layout, Transform, make_transform
from simulator.spectral.layout import padded


class StoredFields:
    """The source of `initial.kind: snapshot`: a snapshot (values) or a checkpoint (modes). Raises UserError if `path`
    is neither."""

    def __init__(self, path: str):
        self._snapshot: Snapshot = open_snapshot(Path(path))
        entries = {
            n: f.entry for n, f in self._snapshot.items() if f.entry.is_mesh and not n.startswith(CARRIED)
        }
        if not entries:
            raise UserError(f"{path}: holds no field")
        self.components = {n: tuple(len(c) for c in entry.components) for n, entry in entries.items()}
        axes = {a.name: a for a in next(iter(entries.values())).axes}
        self._modes = axes["x"].labels is not None
        shape = [_points(axes[a]) for a in "xyz" if a in axes]
        box = self._snapshot.attributes.get("box")
        if box is None:
            raise UserError(f"{path}: does not store its box; take a snapshot instead")
        self.grid = Grid.of(shape, [float(length) for length in box], "none")

    def coefficients(self, name: str, transform: Transform) -> jax.Array:
        """The modes of field `name` in the layout of `transform`; zero where the stored grid has no mode."""
        layout, lead = transform.layout, len(self.components[name])
        kind = np.result_type(transform.dtype, np.complex64)
        if self._modes:
            sharding, axes = layout.seen_sharding(lead + len(layout.seen_order)), spectral_axes(layout)
            field = restore(self._snapshot, name, sharding, axes, layout.seen_shape, kind)
            return jax.jit(lambda f: jnp.where(layout.mask, layout.from_seen(f), 0))(field)
        stored = make_transform(
            self.grid,
            list(layout.mesh.devices.flat),
            transform.dtype,
            real=layout.real,
            every=not layout.real,  # a wave function also has its Nyquist planes
        )
        dtype = transform.dtype if layout.real else kind
        values = restore(
            self._snapshot,
            name,
            stored.physical.seen_sharding(lead + len(stored.physical.seen_order)),
            physical_axes(stored),
            stored.physical.seen_shape,
            dtype,
        )
        modes = jax.jit(lambda v: stored.forward(stored.physical.from_seen(v)))(values)
        # The same parts on the same devices, expressed in the other mesh.
        over = {stored.layout.order.index(a): layout.mesh.axis_names for a in stored.layout.sharded}
        spec = PartitionSpec(*(None,) * lead, *(over.get(i) for i in range(3)))
        modes = jax.device_put(modes, NamedSharding(layout.mesh, spec))
        return jax.jit(lambda m: resized(m, stored.layout, layout))(modes)


def _points(axis: Axis) -> int:
    return axis.size if axis.points is None else axis.points


def resized(modes: jax.Array, source: Layout, target: Layout) -> jax.Array:
    """Modes in another layout, at the same or another resolution; no device ever holds a whole field.

    An axis is changed while it lies whole on every device: x and y first, z after exchanging z for y.
    """
    assert source.sharded.keys() <= {"z"} and source.half == target.half
    lead = modes.ndim - 3
    modes = jnp.transpose(modes, (*range(lead), *(lead + source.order.index(a) for a in "zyx")))
    for axis in "xy":
        modes = _matched(modes, lead + "zyx".index(axis), axis, source, target)
    parts, y = target.devices, modes.shape[lead + 1]
    modes = jnp.pad(modes, [(0, 0)] * (lead + 1) + [(0, padded(y, parts) - y), (0, 0)])
    if parts > 1:
        spec = PartitionSpec(*(None,) * (lead + 1), tuple(spatial(target.mesh)), None)
        modes = lax.with_sharding_constraint(modes, NamedSharding(target.mesh, spec))
    modes = _matched(modes, lead, "z", source, target)[..., :y, :]
    modes = jnp.transpose(modes, (*range(lead), *(lead + "zyx".index(a) for a in target.order)))
    return target.constrain(jnp.where(target.mask, modes, 0))


def _matched(modes: jax.Array, position: int, axis: str, source: Layout, target: Layout) -> jax.Array:
    """The target's wavenumbers along one axis; zero where the source has no mode."""
    places = {int(k): i for i, k in enumerate(source.mode_numbers[axis])}
    index = np.array([places.get(int(k), -1) for k in target.padded_mode_numbers(axis)])
    shape = [-1 if i == position else 1 for i in range(modes.ndim)]
    return jnp.where((index >= 0).reshape(shape), jnp.take(modes, np.maximum(index, 0), axis=position), 0)
