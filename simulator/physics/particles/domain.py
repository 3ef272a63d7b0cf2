"""The distribution of particles: each lives on the device that owns its plane of the grid. Also the
exchange of ghost planes between neighbouring devices."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Bool, Int

from simulator.cluster.mesh import spatial
from simulator.spectral import PhysicalLayout, Transform
from simulator.spectral.arrays import Combination, ParticleIds, ParticleVectors
from simulator.spectral.collectives import after
from simulator.spectral.grid import AXES
from simulator.spectral.transform import Tree


class _Round(NamedTuple):
    """One exchange of ghost planes: `planes[device]` fill the receiver's slots starting at
    `first`."""

    pairs: tuple[tuple[int, int], ...]
    first: int
    planes: Int[np.ndarray, "device plane"]  # Planes of the sender's own block.
    receives: Bool[np.ndarray, "device"]  # True for devices that receive.


@dataclass(frozen=True)
class Cut:
    """An axis of physical space that is cut over the devices. Planes are padded at the end, so that
    the last devices may own fewer planes than `extent`, or no planes."""

    axis: int
    name: str  # Name of the mesh's axis.
    planes: int  # Number of planes without padding.
    parts: int
    extent: int  # Number of planes per device, padding included.

    @property
    def owners(self) -> int:
        """The number of devices along the axis that own a plane. They are the first devices, and
        form a ring."""
        return -(-self.planes // self.extent)

    def owner(self, plane: jax.Array) -> jax.Array:
        return lax.div(plane, jnp.int32(self.extent))

    def rounds(self, below: int, above: int) -> tuple[_Round, ...]:
        """The exchanges that give every owner `below` planes before its own and `above` after them.

        The slots of the extended block are numbered from -below. If planes divide evenly there is
        one exchange for each neighbour."""
        rounds: list[_Round] = []
        for slot in range(-below, self.extent + above):
            waiting = self._transfers(slot)
            while waiting:
                # A device sends one plane at a time.
                by_source = {transfer[1]: transfer for transfer in reversed(waiting)}
                now = sorted(by_source.values())
                self._add(rounds, slot, now)
                waiting = [transfer for transfer in waiting if transfer not in now]
        return tuple(rounds)

    def _transfers(self, slot: int) -> list[tuple[int, int, int]]:
        """The devices that do not own the plane in their slot, the devices that do, and its number
        there."""
        transfers = []
        for device in range(self.owners):
            place = device * self.extent + slot
            if not (0 <= slot < self.extent and place < self.planes):
                transfers.append((device, *divmod(place % self.planes, self.extent)))
        return transfers

    def _add(
        self, rounds: list[_Round], slot: int, transfers: Sequence[tuple[int, int, int]]
    ) -> None:
        pairs = tuple((source, device) for device, source, _ in transfers)
        planes = np.zeros((self.parts, 1), np.int32)
        receives = np.zeros(self.parts, bool)
        for device, source, plane in transfers:
            planes[source] = plane
            receives[device] = True
        last = rounds[-1] if rounds else None
        if last is not None and last.pairs == pairs and last.first + last.planes.shape[1] == slot:
            rounds[-1] = last._replace(planes=np.concatenate([last.planes, planes], axis=1))
        else:
            rounds.append(_Round(pairs, slot, planes, receives))


@dataclass(frozen=True, eq=False)
class Domain:
    """The parts of the box that the devices own: the places of particles, and the blocks (..., x,
    y, z) of fields."""

    physical: PhysicalLayout
    native: bool = False  # Whether particles are sorted and selected in native code.
    threads: int = 1  # The threads of a device, which share the work of native code.

    @classmethod
    def of(cls, transform: Transform) -> Self:
        return cls(transform.physical, transform.kernels == "native", transform.threads)

    @cached_property
    def cuts(self) -> tuple[Cut, ...]:
        layout = self.physical
        cuts = []
        for i, axis in enumerate(AXES):
            parts = layout.parts(axis)
            if axis in layout.sharded and parts > 1:
                name = layout.sharded[axis]
                cuts.append(Cut(i, name, layout.valid[i], parts, layout.shape[i] // parts))
        return tuple(cuts)

    @property
    def devices(self) -> int:
        return self.physical.devices

    @property
    def box(self) -> tuple[float, float, float]:
        return self.physical.grid.box

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(spatial(self.physical.mesh))

    def spec(self, rank: int) -> PartitionSpec:
        """Partition of an array whose last axis counts entries of particles, or of a number."""
        return PartitionSpec(*(None,) * (rank - 1), self.names) if rank else PartitionSpec()

    def sharding(self, rank: int) -> NamedSharding:
        return NamedSharding(self.physical.mesh, self.spec(rank))

    @property
    def everywhere(self) -> NamedSharding:
        return self.physical.everywhere

    def mapped(
        self, local: Callable[..., Any], in_specs: Tree, out_specs: Tree
    ) -> Callable[..., Any]:
        """The function on global arrays that applies `local` to every device's blocks
        (`jax.shard_map`)."""
        mesh = self.physical.mesh
        return jax.shard_map(
            local, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
        )

    def on_devices(self, local: Callable[..., Any], *arrays: Tree) -> Any:
        """`local` of every device's parts of arrays: numbers, and arrays whose last axis counts
        entries of particles, or devices. So are its results."""
        if not self.cuts:
            return local(*arrays)
        shapes = jax.eval_shape(local, *arrays)

        def place(array: jax.Array) -> PartitionSpec:
            return self.spec(len(array.shape))

        in_specs = jax.tree.map(place, arrays)
        return self.mapped(local, in_specs, jax.tree.map(place, shapes))(*arrays)

    @cached_property
    def owners(self) -> Bool[np.ndarray, "device"]:
        """True for the devices, in the order of the mesh, that own planes."""
        space = spatial(self.physical.mesh)
        owns = np.ones(tuple(space.values()), bool)
        for cut in self.cuts:
            along = np.arange(cut.parts) < cut.owners
            shape = [1] * owns.ndim
            shape[list(space).index(cut.name)] = cut.parts
            owns &= along.reshape(shape)
        return owns.ravel()

    def shared_out(self, count: int) -> list[int]:
        """Numbers of entries of each device, in the order of the mesh: of `count` an equal share
        for every owner."""
        numbers = np.cumsum(self.owners)
        bounds = [count * i // int(numbers[-1]) for i in range(int(numbers[-1]) + 1)]
        return [
            bounds[n] - bounds[n - 1] if owns else 0
            for owns, n in zip(self.owners, numbers, strict=True)
        ]

    def wrapped(self, position: ParticleVectors) -> ParticleVectors:
        """Positions (length) mapped into the box, 0 <= x < L; NaN stays NaN."""
        box = jnp.asarray(self.box, position.dtype)[:, None]
        inside = position - box * jnp.floor(position / box)
        return jnp.where(inside >= box, 0, inside)

    def plane(self, position: ParticleVectors, axis: int) -> ParticleIds:
        """The index of the plane at or below each position; positions lie in the box."""
        n = self.physical.grid.shape[axis]
        spacing = self.physical.grid.spacing[axis]
        return jnp.clip(jnp.floor(position[axis] / spacing).astype(jnp.int32), 0, n - 1)

    def starts(self, below: int) -> Mapping[int, jax.Array]:
        """Along every cut axis the index of the first plane of a device's block, which begins with
        `below` ghost planes. To be called inside shard_map."""
        return {cut.axis: lax.axis_index(cut.name) * cut.extent - below for cut in self.cuts}

    def after(
        self, array: jax.Array | Combination, before: jax.Array, place: PartitionSpec | None = None
    ) -> Any:
        """The function `after` for arrays of particles, which are distributed over all devices, or
        for the last array of a combination; `before` may also be a number, or values (x, y, z) on
        the grid, or any array with its distribution `place`."""
        if not self.cuts:
            return array
        if isinstance(array, Combination):
            return replace(
                array, arrays=(*array.arrays[:-1], self.after(array.arrays[-1], before, place))
            )
        spec = self.spec(array.ndim)
        if place is None:
            place = self.physical.spec if before.ndim == 3 else self.spec(before.ndim)
        return self.mapped(after, (spec, place), spec)(array, before)

    def extended(self, block: jax.Array, below: int, above: int, before: jax.Array) -> jax.Array:
        """A device's block (..., x, y, z), extended by the neighbours' planes along every cut axis,
        corners included. The exchange starts after `before` is computed. To be called inside
        shard_map."""
        for cut in self.cuts:
            axis = block.ndim - 3 + cut.axis
            room = [(below, above) if i == axis else (0, 0) for i in range(block.ndim)]
            block = before = _filled(jnp.pad(block, room), cut, axis, below, above, before)
        return block

    def filled(
        self, block: jax.Array, order: str, below: int, above: int, before: jax.Array
    ) -> jax.Array:
        """An array (*order, ...) that has room for the neighbours' planes, with these planes filled
        in as in `extended`."""
        for cut in self.cuts:
            block = before = _filled(block, cut, order.index(AXES[cut.axis]), below, above, before)
        return block


def _filled(
    block: jax.Array, cut: Cut, axis: int, below: int, above: int, before: jax.Array
) -> jax.Array:
    device = lax.axis_index(cut.name)
    for pairs, first, planes, receives in cut.rounds(below, above):
        sent = jnp.take(block, below + jnp.asarray(planes)[device], axis=axis)
        received = before = lax.ppermute(after(sent, before), cut.name, pairs)
        start = below + first
        if not receives.all():
            old = lax.slice_in_dim(block, start, start + planes.shape[1], axis=axis)
            received = jnp.where(jnp.asarray(receives)[device], received, old)
        block = lax.dynamic_update_slice_in_dim(block, received, start, axis)
    return block
