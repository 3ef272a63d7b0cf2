"""Particles as data sets, and back: onto the devices that held them, or onto any others."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simulator.archive.dataset import Axis, Dataset
from simulator.archive.reader import Snapshot, open_snapshot
from simulator.errors import RunFailure, UserError
from simulator.particles import Domain, ParticleSet
from simulator.particles.particle_set import NOBODY, id_sum
from simulator.particles.population import Population

_COMPONENTS = {3: ("x", "y", "z"), 9: tuple(i + j for i in "xyz" for j in "xyz")}


def particle_datasets(particles: ParticleSet, population: Population) -> Iterator[Dataset]:
    """The records of particles, `NAME.position` and so on, and `NAME.id`.

    Raises RunFailure if a particle is missing or duplicated, so that the ids do not add up.
    """
    name, domain = population.name, population.domain
    shares = _checked_shares(name, particles, population.count, domain)
    axis = (Axis(name=f"{name}.particle", size=sum(shares)),)
    for record, array in {"id": particles.id, **particles.records}.items():
        yield Dataset(
            f"{name}.{record}",
            array,
            axis,
            (_COMPONENTS[array.shape[0]],) if array.ndim > 1 else (),
            species=name,
            shares=shares,
            attributes={"shares": list(shares), "arrangement": _arrangement(domain)},
        )


def _arrangement(domain: Domain) -> list[list[int]]:
    """The arrangement of devices, which decides where a particle lives."""
    return [[cut.axis, cut.planes, cut.parts] for cut in domain.cuts]


def _checked_shares(name: str, particles: ParticleSet, total: int, domain: Domain) -> tuple[int, ...]:
    """The number of particles of each device, after a check that there are `total` and that their ids add up."""

    def look(particles: ParticleSet) -> tuple[jax.Array, jax.Array, jax.Array]:
        valid = particles.valid
        return particles.count, valid.sum(), jnp.where(valid, particles.id, 0).sum()

    counts, there, ids = jax.device_get(jax.jit(look, out_shardings=domain.everywhere)(particles))
    if int(counts.sum()) != total or int(there) != total or int(ids) != id_sum(total):
        raise RunFailure(
            f"{name}: {int(there)} particles whose ids add up to {int(ids)}, where {total} with the sum "
            f"{id_sum(total)} are expected: some are lost or doubled; all earlier output is intact"
        )
    return tuple(int(n) for n in counts)


class ParticlesOnDisk:
    """The particles of one species in a snapshot or checkpoint. Raises UserError if it has none of this name."""

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
        """The particles, distributed as they were written if the devices are arranged alike, else in equal shares
        that still have to be sent to their devices. Every process reads the shares of its devices."""
        shares = self._shares(domain)
        capacity = max(capacity, *shares)
        first = np.concatenate([[0], np.cumsum(shares)])

        def read(name: str, components: int, dtype: Any, empty: int | float) -> jax.Array:
            lead = (components,) if components else ()
            shape, sharding = (*lead, capacity * domain.devices), domain.sharding(len(lead) + 1)

            def part(index: Any) -> np.ndarray:
                start, stop, _ = index[-1].indices(shape[-1])
                out = np.full((*lead, stop - start), empty, dtype)
                for device in range(start // capacity, stop // capacity):
                    at, n = device * capacity - start, shares[device]
                    if n and name in self._fields:
                        out[..., at : at + n] = self._fields[name][..., first[device] : first[device] + n]
                return out

            return jax.make_array_from_callback(shape, sharding, part)

        counts = np.asarray(shares, np.int32)
        return ParticleSet(
            {name: read(name, n, np.float64, 0.0) for name, n in records.items()},
            read("id", 0, np.int64, NOBODY),
            jax.make_array_from_callback(counts.shape, domain.sharding(1), lambda index: counts[index]),
            jax.make_array_from_callback((), domain.everywhere, lambda index: np.array(0, np.int32)),
        )

    def _shares(self, domain: Domain) -> list[int]:
        stored = self._stored
        if stored.get("arrangement") == _arrangement(domain) and len(stored["shares"]) == domain.devices:
            return list(stored["shares"])
        owners = np.cumsum(domain.owners)
        parts = int(owners[-1])
        bounds = [self.count * i // parts for i in range(parts + 1)]
        return [bounds[n] - bounds[n - 1] if o else 0 for o, n in zip(domain.owners, owners, strict=True)]


def particles_in(path: str, name: str) -> ParticlesOnDisk:
    """The particles `name` in the snapshot or checkpoint `path`. Raises UserError if there are none."""
    return ParticlesOnDisk(open_snapshot(Path(path)), name)
