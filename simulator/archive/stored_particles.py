"""Particles in this program's snapshots and checkpoints."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from numpy.typing import DTypeLike

from simulator.archive.snapshot_reader import Snapshot
from simulator.errors import UserError
from simulator.physics.particles import Domain, ParticleSet
from simulator.physics.particles.particle_set import NOBODY


def arrangement(domain: Domain) -> list[list[int]]:
    """The arrangement of the devices, which determines the device of each particle."""
    return [[cut.axis, cut.planes, cut.parts] for cut in domain.cuts]


class ParticlesOnDisk:
    """The particles of one species in a snapshot or checkpoint. Raises UserError if the species is
    missing."""

    def __init__(self, snapshot: Snapshot, name: str) -> None:
        species = snapshot.particles
        if name not in species:
            raise UserError(
                f"{snapshot.path}: holds no particles {name!r}; it holds {', '.join(species) or 'none'}"
            )
        self._fields = species[name]
        self.count = self._fields["id"].size
        self.records = frozenset(self._fields) - {"id"}
        self._stored: Mapping[str, Any] = self._fields["id"].attributes

    def restore(self, domain: Domain, records: Mapping[str, int], capacity: int) -> ParticleSet:
        """The particles: if the devices are arranged as in the file, on the devices that wrote
        them, else in equal shares, and the particles still have to migrate. Every process reads the
        shares of its devices."""
        shares = self._shares(domain)
        capacity = max(capacity, *shares)
        first = np.concatenate([[0], np.cumsum(shares)])

        def read(name: str, components: int, dtype: DTypeLike, empty: int | float) -> jax.Array:
            lead = (components,) if components else ()
            shape = (*lead, capacity * domain.devices)
            sharding = domain.sharding(len(lead) + 1)

            def part(index: tuple[slice, ...] | None) -> np.ndarray:
                assert index is not None
                start, stop, _ = index[-1].indices(shape[-1])
                out = np.full((*lead, stop - start), empty, dtype)
                for device in range(start // capacity, stop // capacity):
                    at = device * capacity - start
                    n = shares[device]
                    if n and name in {*self.records, "id"}:
                        out[..., at : at + n] = self._values(name, first[device], first[device] + n)
                return out

            return jax.make_array_from_callback(shape, sharding, part)

        counts = np.asarray(shares, np.int32)
        return ParticleSet(
            {name: read(name, n, np.float64, 0.0) for name, n in records.items()},
            read("id", 0, np.int64, NOBODY),
            jax.make_array_from_callback(
                counts.shape, domain.sharding(1), lambda index: counts[index]
            ),
            jax.make_array_from_callback(
                (), domain.everywhere, lambda index: np.array(0, np.int32)
            ),
        )

    def _values(self, name: str, first: int, last: int) -> np.ndarray:
        return self._fields[name][..., first:last]

    def _shares(self, domain: Domain) -> list[int]:
        stored = self._stored
        if (
            stored.get("arrangement") == arrangement(domain)
            and len(stored["shares"]) == domain.devices
        ):
            return list(stored["shares"])
        return domain.shared_out(self.count)
