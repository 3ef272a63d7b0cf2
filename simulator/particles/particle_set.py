"""Particles on devices: bounded buffers, of which the first entries hold particles."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np

NOBODY = -1
"""The id of an empty entry."""
EACH_MOST = 2**31 - 2
"""Entries of a device's buffer."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ParticleSet:
    """The particles of one species. A device holds those that lie in its slab or pencil.

    Every device has a buffer of `capacity` entries; its particles are the first `count` of them, and the others have
    the id -1. Entries are the last axis of every array, sharded over all axes of the mesh.
    """

    records: dict[str, jax.Array]
    """Per particle, double: vectors (3, entries) such as `position`, scalars (entries,)."""
    id: jax.Array
    """(entries,) int64, from 0; a particle keeps its own."""
    count: jax.Array
    """(devices,) int32."""
    needed: jax.Array
    """Entries that the fullest device needs. Above `capacity` some particles are not where they live, because there
    was no room: the buffers have to grow before the next step."""

    @property
    def devices(self) -> int:
        return self.count.shape[0]

    @property
    def capacity(self) -> int:
        """Entries of one device's buffer."""
        return self.id.shape[0] // self.devices

    @property
    def valid(self) -> jax.Array:
        """(entries,): True where there is a particle."""
        return self.id >= 0

    @property
    def crowded(self) -> jax.Array:
        """Whether the buffers have to grow before the next step."""
        return self.needed > self.capacity

    def without(self, record: str) -> Self:
        """The particles without one of their records."""
        return replace(self, records={name: a for name, a in self.records.items() if name != record})

    def with_records(self, records: Mapping[str, jax.Array]) -> Self:
        return replace(self, records={**self.records, **records})


def capacity_for(count: int, devices: int) -> int:
    """Entries for a device's share of particles that lie at random: a quarter more, and five standard deviations."""
    if devices == 1:
        return max(count, 1)
    share = count / devices
    return min(count, ceil(1.25 * share + 5 * sqrt(share) + 16))


def grown(particles: ParticleSet, capacity: int) -> ParticleSet:
    """The same particles in larger buffers of `capacity` entries; every device copies its own."""
    devices, had = particles.devices, particles.capacity

    def larger(array: jax.Array, empty: int | float) -> jax.Array:
        apart = array.reshape(*array.shape[:-1], devices, had)
        room = [(0, 0)] * (apart.ndim - 1) + [(0, capacity - had)]
        return jnp.pad(apart, room, constant_values=empty).reshape(*array.shape[:-1], devices * capacity)

    return replace(
        particles,
        records={name: larger(array, 0.0) for name, array in particles.records.items()},
        id=larger(particles.id, NOBODY),
    )


def id_sum(count: int) -> int:
    """The sum of the ids 0 to count - 1, as int64 arithmetic has it."""
    return int(np.array(count * (count - 1) // 2 % 2**64, np.uint64).astype(np.int64))
