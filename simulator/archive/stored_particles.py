"""Particles in files: in this program's snapshots and checkpoints, and in GADGET's HDF5 files."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np

from simulator.archive.snapshot_reader import Snapshot
from simulator.errors import UserError
from simulator.files import reason
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

        def read(name: str, components: int, dtype: Any, empty: int | float) -> jax.Array:
            lead = (components,) if components else ()
            shape, sharding = (*lead, capacity * domain.devices), domain.sharding(len(lead) + 1)

            def part(index: Any) -> np.ndarray:
                start, stop, _ = index[-1].indices(shape[-1])
                out = np.full((*lead, stop - start), empty, dtype)
                for device in range(start // capacity, stop // capacity):
                    at, n = device * capacity - start, shares[device]
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


class GadgetParticles(ParticlesOnDisk):
    """The particles of one type in a file, or in all files of a snapshot, in the file's units.
    Every process reads the particles of its devices only. `header` has the attributes of Header,
    Parameters and Units."""

    records = frozenset({"position", "velocity", "mass"})

    def __init__(self, path: str, kind: int, numbered: bool) -> None:
        """`numbered`: ids are the places in the file. Raises UserError if there are no such
        particles."""
        self._group, self._numbered, self._stored = f"PartType{kind}", numbered, {}
        first = Path(path)
        self.header = self._header(first)
        if "NumPart_ThisFile" not in self.header or "BoxSize" not in self.header:
            raise UserError(
                f"{path}: is no GADGET file; its group Header has no NumPart_ThisFile or no BoxSize"
            )
        count = int(np.ravel(self.header.get("NumFilesPerSnapshot", 1))[0])
        self.files = [first] if count == 1 else _beside(first, count)
        each = [self._header(file)["NumPart_ThisFile"][kind] for file in self.files]
        self._first = np.concatenate([[0], np.cumsum(np.asarray(each, np.int64))])
        self.count = int(self._first[-1])
        if not self.count:
            there = [str(n) for n, held in enumerate(self.header["NumPart_Total"]) if held]
            raise UserError(
                f"{path}: holds no particles of type {kind}; it holds types {', '.join(there) or 'none'}"
            )
        self._mass = float(self.header["MassTable"][kind])

    def _header(self, path: Path) -> dict[str, Any]:
        try:
            with h5py.File(path, "r", locking=False) as file:
                groups = [
                    file[name].attrs for name in ("Units", "Parameters", "Header") if name in file
                ]
                return {name: value for group in groups for name, value in group.items()}
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {reason(error)}") from None

    def _values(self, name: str, first: int, last: int) -> np.ndarray:
        if name == "id" and self._numbered:
            return np.arange(first, last)
        if name == "mass" and self._mass:
            return np.full(last - first, self._mass)
        stored = {
            "position": "Coordinates",
            "velocity": "Velocities",
            "mass": "Masses",
            "id": "ParticleIDs",
        }[name]
        parts = []
        for path, begin, end in zip(self.files, self._first[:-1], self._first[1:], strict=True):
            if begin < last and end > first:
                with h5py.File(path, "r", locking=False) as file:
                    found = file.get(f"{self._group}/{stored}")
                    if not isinstance(found, h5py.Dataset):
                        raise UserError(f"{path}: {self._group} has no {stored}")
                    parts.append(found[max(first - begin, 0) : min(last, end) - begin])
        return np.concatenate(parts).T


def _beside(first: Path, count: int) -> list[Path]:
    """All files of a snapshot: NAME.0.hdf5, NAME.1.hdf5, ..., or NAME.hdf5.0, ..."""
    found = re.fullmatch(r"(.*\.)\d+(\.\w+)?", first.name)
    if found is None:
        raise UserError(
            f"{first}: is one of {count} files of a snapshot; give the first of them, as in NAME.0.hdf5"
        )
    return [first.with_name(f"{found[1]}{n}{found[2] or ''}") for n in range(count)]
