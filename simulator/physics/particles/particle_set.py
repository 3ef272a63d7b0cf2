"""Particles on devices: bounded buffers whose first entries hold particles."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from simulator.spectral.arrays import ParticleIds, Truth, Whole

NOBODY = -1  # The id of an empty entry.
EACH_MOST = 2**31 - 2  # The largest number of entries in a device's buffer.


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ParticleSet:
    """The particles of one species. A device holds the particles that lie in its slab or pencil.

    Every device has a buffer of `capacity` entries; the first `count` entries hold its particles,
    and the others have the id -1. Entries are the last axis of every array, sharded over all axes
    of the mesh."""

    records: dict[str, jax.Array]
    """Data of each particle in double precision: vectors (3, entries) such as `position`, scalars
    (entries,)."""
    id: ParticleIds  # int64, starting at 0; a particle keeps its id.
    count: Int[Array, "device"]  # int32: the number of particles on each device.
    needed: Whole
    """The number of entries that the fullest device needs. If it exceeds `capacity`, some particles
    are not on their device, which had no room: the buffers have to grow before the next step."""

    @property
    def devices(self) -> int:
        return self.count.shape[0]

    @property
    def capacity(self) -> int:
        """Number of entries of one device's buffer."""
        return self.id.shape[0] // self.devices

    @property
    def valid(self) -> Bool[Array, "particle"]:
        """True for entries that hold a particle."""
        return self.id >= 0

    @property
    def crowded(self) -> Truth:
        """Whether the buffers have to grow before the next step."""
        return self.needed > self.capacity

    def without(self, record: str) -> Self:
        """The particles without one of their records."""
        return replace(
            self, records={name: a for name, a in self.records.items() if name != record}
        )

    def with_records(self, records: Mapping[str, jax.Array]) -> Self:
        return replace(self, records={**self.records, **records})


def capacity_for(count: int, devices: int) -> int:
    """The number of entries for one device's share of `count` randomly distributed particles: the
    share, a quarter more, and five standard deviations."""
    if devices == 1:
        return max(count, 1)
    share = count / devices
    return min(count, ceil(1.25 * share + 5 * sqrt(share) + 16))


def grown(particles: ParticleSet, capacity: int) -> ParticleSet:
    """The same particles in larger buffers of `capacity` entries; every device copies its
    entries."""
    devices = particles.devices
    had = particles.capacity

    def larger(array: jax.Array, empty: int | float) -> jax.Array:
        by_device = array.reshape(*array.shape[:-1], devices, had)
        room = [(0, 0)] * (by_device.ndim - 1) + [(0, capacity - had)]
        return jnp.pad(by_device, room, constant_values=empty).reshape(
            *array.shape[:-1], devices * capacity
        )

    return replace(
        particles,
        records={name: larger(array, 0.0) for name, array in particles.records.items()},
        id=larger(particles.id, NOBODY),
    )


def id_sum(count: int) -> int:
    """The sum of the ids 0 to count - 1 in int64 arithmetic."""
    return int(np.array(count * (count - 1) // 2 % 2**64, np.uint64).astype(np.int64))
