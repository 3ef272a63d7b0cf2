"""Reads snapshots lazily, through the manifest and never through the virtual data sets.

Files are opened one at a time and closed again, so that any number of shards needs only a handful
of file descriptors; a slice opens only the shards that it overlaps."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import DTypeLike

from simulator.archive.manifest import (
    BlockEntry,
    Damaged,
    FieldEntry,
    Manifest,
    Piece,
    ShardEntry,
    component_names,
    load_filters,
    read_manifest,
)
from simulator.archive.rounding import KEPT, energies_of, energy_problem, values_of
from simulator.archive.seal import ALTERED
from simulator.config.yaml12 import parse_yaml
from simulator.files import checksum, pieces_of, reason
from simulator.words import Shown


def configuration_of(manifest: Manifest) -> dict[str, Any]:
    """The resolved configuration of the run that wrote a snapshot; empty if it is not stored."""
    value = parse_yaml(manifest.attributes.get("configuration") or "{}", "configuration").value
    return value if isinstance(value, dict) else {}


class Snapshot(Shown, Mapping[str, "StoredField"]):
    """A committed snapshot or checkpoint: a mapping from names to lazily read fields.

    `.step`, `.time` (double), `.attributes` (as saved), `.fields` (names), `.path`, `.manifest`."""

    def __init__(self, path: Path, manifest: Manifest, checked: bool = False) -> None:
        """`checked`: a process compares each shard that it reads with its checksum."""
        self._sound: set[str] | None = set() if checked else None  # Shards that are as written.
        self.path = path
        self.manifest = manifest
        self.step = manifest.step
        self.time = manifest.time
        self.attributes = dict(manifest.attributes)

    @property
    def fields(self) -> list[str]:
        return list(self.manifest.fields)

    @property
    def error(self) -> tuple[float, float] | None:
        """The error that was asked of rounded fields, and the largest that was measured in a shell
        of wavenumbers; None if the snapshot is exact."""
        records = [e.rounded for e in self.manifest.fields.values() if e.rounded is not None]
        if not records:
            return None
        return records[0].asked, max(record.measured for record in records)

    @property
    def particles(self) -> "dict[str, dict[str, StoredField]]":
        """The records of particles by species and name: `particles["tracers"]["position"]` is (3,
        count), `particles["tracers"]["id"]` (count,). All records of a snapshot have the same order
        of particles, which differs between snapshots; the id identifies a particle."""
        species: dict[str, dict[str, StoredField]] = {}
        for name, entry in self.manifest.fields.items():
            if entry.species is not None:
                record = name.removeprefix(f"{entry.species}.")
                species.setdefault(entry.species, {})[record] = self[name]
        return species

    def __getitem__(self, name: str) -> "StoredField":
        if name not in self.manifest.fields:
            raise KeyError(
                f"{self.path} has no field {name!r}; its fields are {', '.join(self.fields)}"
            )
        kind = StoredField if self.manifest.fields[name].rounded is None else RoundedField
        return kind(self.path, self.manifest, name, self._sound)

    def __iter__(self) -> Iterator[str]:
        return iter(self.manifest.fields)

    def __len__(self) -> int:
        return len(self.manifest.fields)

    def shown(self) -> tuple[str, dict[str, Any]]:
        rows = {name: f"{stored.shape} {stored.dtype}" for name, stored in self.items()}
        return f"snapshot {self.path}: step {self.step}, t = {self.time:g}", rows

    def __repr__(self) -> str:
        shapes = ", ".join(f"{n} {f.shape}" for n, f in self.manifest.fields.items())
        return f"<Snapshot step {self.step}, time {self.time:g}: {shapes}>"


def open_snapshot(path: str | Path, checked: bool = False) -> Snapshot:
    """Open a committed folder; `path` is the folder, its manifest, or its index file. With
    `checked`, a process compares each shard that it reads with its checksum.

    Reads only the manifest. Raises UserError if `path` is not a snapshot or checkpoint of this
    program, Damaged (a RunFailure) if the manifest is damaged."""
    folder = snapshot_folder(Path(path))
    manifest = read_manifest(folder)
    load_filters(manifest.compression)
    return Snapshot(folder, manifest, checked)


def snapshot_folder(path: Path) -> Path:
    """The committed folder of `path`: the folder itself, its manifest, its index file or its
    sidecar."""
    if path.suffix in (".h5", ".vtkhdf") and path.with_suffix("").is_dir():
        return path.with_suffix("")
    if path.name == "manifest.json":
        return path.parent
    return path


class LazyArray:
    """An array on disk. Integers, slices (any step) and `...` read the selected part as a numpy
    array; `numpy.asarray` reads the whole array."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a single number has no length")
        return self.shape[0]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("the array must be read from disk: copy=False is not possible")
        return np.asarray(self[...], dtype or self.dtype)

    def __getitem__(self, index: object) -> np.ndarray:
        raise NotImplementedError


class StoredField(LazyArray):
    """One field on disk: shape (components..., n0, n1, ...), without padding.

    `.axes`: the trailing axes, without the component axes in front of them. `.pieces`: the blocks
    of the field, each in one shard. Reading raises Damaged if a shard is missing or damaged."""

    def __init__(
        self, folder: Path, manifest: Manifest, name: str, sound: set[str] | None = None
    ) -> None:
        self._folder = folder
        self._sound = sound
        self.name = name
        self.entry: FieldEntry = self._entry(manifest)
        self.shape = self.entry.shape
        self.dtype = np.dtype(self.entry.dtype)
        self.axes = self.entry.axes
        self.attributes = dict(self.entry.attributes)
        self.pieces: Sequence[Piece] = list(manifest.pieces(name))

    def _entry(self, manifest: Manifest) -> FieldEntry:
        return manifest.fields[self.name]

    def __repr__(self) -> str:
        return f"<{self.name} {self.shape} {self.dtype} in {self._folder}>"

    def __getitem__(self, index: object) -> np.ndarray:
        ranges, dropped = selected(index, self.shape)
        flipped = tuple(slice(None, None, -1 if r.step < 0 else 1) for r in ranges)
        rising = [r[::-1] if r.step < 0 else r for r in ranges]
        out = np.empty([len(r) for r in rising], self.dtype)
        if out.size:
            leading = len(self.entry.components)
            targets = []
            for number, (component, path) in enumerate(self.entry.component_paths(self.name)):
                selection = list(zip(rising, component, strict=False))
                if all(i in selected for selected, i in selection):
                    place = tuple(selected.index(i) for selected, i in selection)
                    targets.append((number, path, out[(*place, ...)]))
            self._fill(targets, rising[leading:])
        return out[flipped].reshape([len(r) for r, d in zip(ranges, dropped, strict=True) if not d])

    def read(self, component: tuple[int, ...], bounds: tuple[slice, ...]) -> np.ndarray:
        """One component between the given bounds of each axis."""
        return self[(*component, *bounds)]

    def _fill(self, targets: list[tuple[int, str, np.ndarray]], ranges: list[range]) -> None:
        """Read components, given by their numbers and paths, into arrays."""
        touched = [(p, cut) for p in self.pieces if (cut := _overlap(p, ranges)) is not None]
        for file, group in itertools.groupby(touched, key=lambda t: t[0].shard.file):
            path = self._folder / file
            group = list(group)
            try:
                self._check(group[0][0].shard)
                with _opened(path) as shard:
                    for piece, (source, destination) in group:
                        for _, component, out in targets:
                            stored = shard[f"{component}/{piece.number}"]
                            expected = piece.block.shape, self.dtype
                            if (
                                not isinstance(stored, h5py.Dataset)
                                or (stored.shape, stored.dtype) != expected
                            ):
                                raise Damaged(f"{path}: {component} does not match the manifest")
                            stored.read_direct(out, source, destination)
            except FileNotFoundError:
                raise Damaged(
                    f"{path}: missing; `simulator verify` lists all missing files"
                ) from None
            except (OSError, KeyError, RuntimeError, ValueError) as error:
                raise Damaged(f"{path}: cannot be read ({reason(error)})") from error

    def _check(self, shard: ShardEntry) -> None:
        """Raises Damaged, once the checks are asked for, if a shard is not as it was written."""
        if self._sound is None or shard.file in self._sound:
            return
        path = self._folder / shard.file
        if checksum(pieces_of(path)) != (shard.bytes, shard.xxh3):
            raise Damaged(f"{path}: {ALTERED}")
        self._sound.add(shard.file)


class _Integers(StoredField):
    """The integers of a rounded field: (components..., part, modes)."""

    def _entry(self, manifest: Manifest) -> FieldEntry:
        return manifest.fields[self.name].stored


class RoundedField(StoredField):
    """The values of a rounded field, which are one block: a part of it needs whole components,
    some of which stay in memory."""

    def __init__(
        self, folder: Path, manifest: Manifest, name: str, sound: set[str] | None = None
    ) -> None:
        super().__init__(folder, manifest, name, sound)
        self.integers = _Integers(folder, manifest, name, sound)
        block = BlockEntry(start=(0,) * len(self.axes), shape=self.entry.extents)
        self.pieces = [Piece(manifest.shards[0], 0, block)]
        files = tuple(shard.xxh3 for shard in manifest.shards)
        self._key = (folder.absolute(), files, name, sound is None)

    def _fill(self, targets: list[tuple[int, str, np.ndarray]], ranges: list[range]) -> None:
        part = tuple(slice(r.start, r.stop, r.step) for r in ranges)
        components = list(component_names(self.entry.components))
        for number, _, out in targets:
            make = partial(self._values, number, components[number][0])
            out[...] = KEPT.get((*self._key, number), make)[part]

    def _values(self, number: int, component: tuple[int, ...]) -> np.ndarray:
        return values_of(self.entry, number, self.integers[(*component, ...)])

    def problem(self) -> str | None:
        """Whether the integers have other energies than the field had, beyond the stated error."""
        sums: np.ndarray | float = 0.0
        for piece in self.integers.pieces:
            start, shape = piece.block.start, piece.block.shape
            bounds = [slice(i, i + n) for i, n in zip(start, shape, strict=True)]
            for component, _ in component_names(self.entry.components):
                part = self.integers[(*component, slice(None), *bounds)]
                sums = sums + energies_of(self.entry, start, part)
        return energy_problem(self.entry, np.asarray(sums), self.name)


def _opened(path: Path) -> h5py.File:
    """Opens an HDF5 file without locks, which the file systems of clusters often lack. Raises
    OSError."""
    try:
        return h5py.File(path, "r", locking=False)
    except OSError as error:
        if "locking flag" not in str(error):
            raise
        return h5py.File(path, "r")  # this process has opened the file already, with locks


def _overlap(
    piece: Piece, ranges: list[range]
) -> tuple[tuple[slice, ...], tuple[slice, ...]] | None:
    """The part of `ranges` within the block, as a hyperslab of the block and of the output; None if
    it is empty."""
    source = []
    destination = []
    for r, start, n in zip(ranges, piece.block.start, piece.block.shape, strict=True):
        first = max(0, -((r.start - start) // r.step))  # ceil((start - r.start) / step)
        last = min(len(r), -((r.start - start - n) // r.step))  # one past the last
        if first >= last:
            return None
        begin = r.start + first * r.step - start
        source.append(slice(begin, begin + (last - first - 1) * r.step + 1, r.step))
        destination.append(slice(first, last))
    return tuple(source), tuple(destination)


def selected(index: object, shape: tuple[int, ...]) -> tuple[list[range], list[bool]]:
    """The selected indices of each axis, and whether the result lacks the axis (after an integer
    index)."""
    items = list(index) if isinstance(index, tuple) else [index]
    if (missing := len(shape) - sum(i is not Ellipsis for i in items)) < 0:
        raise IndexError(f"{len(items)} indices for {len(shape)} axes")
    spot = next((n for n, i in enumerate(items) if i is Ellipsis), len(items))
    items[spot : spot + 1] = [slice(None)] * missing
    ranges = []
    dropped = []
    for item, n in zip(items, shape, strict=True):
        if isinstance(item, slice):
            ranges.append(range(n)[item])
        elif isinstance(item, int | np.integer) and not isinstance(item, bool):
            if not -n <= item < n:
                raise IndexError(f"index {item} on an axis of {n}")
            ranges.append(range(int(item) % n, int(item) % n + 1))
        else:
            raise IndexError(
                "a stored field is indexed by integers, slices and ...; read it, then index further"
            )
        dropped.append(not isinstance(item, slice))
    return ranges, dropped
