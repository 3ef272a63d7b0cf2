"""The manifest of a committed folder: the fields, the shards, and the shard that holds each block
of a field.

The manifest is the only authority on a snapshot: readers find every byte through it and ignore
files that it does not name. A manifest is sealed, so that damage to it is detected like damage to a
shard."""

import contextlib
import itertools
import json
import math
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from simulator.archive.ledger import SAVES as SAVES
from simulator.archive.ledger import recorded_saves
from simulator.archive.seal import ALTERED, Seal
from simulator.errors import RunFailure, UserError, shown
from simulator.files import (
    TEMPORARY,
    reason,
    refusal,
    remove_tree,
)

FORMAT = "simulator shards"
VERSION = 1
LIBVER = ("v110", "v110")  # The HDF5 format of shards and indices.
SUMS = "series_"
"""The prefix of the names of a series' sums. A sum may be NaN: a quantity that was undefined at one
sample, such as a ratio of energies at rest, has no mean."""
NAME = "manifest.json"
COMMITTED = re.compile(r"\d{8,}")  # Names of committed folders: the step.
NAMED = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")  # Names of data sets and axes.
UNSIGNED = ("|u1", "<u2", "<u4", "<u8")
_SEAL = Seal(b'"manifest_xxh3": "', b'"\n}\n')

Compression = Literal["none", "gzip", "blosc2"]
Hook = Callable[[str], None]


class Damaged(RunFailure):
    """Stored data is missing, short, altered or cannot be decoded."""


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Axis(_Entry):
    """One named axis of a stored array, without padding.

    `size`: the number of entries. Spectral axes have `labels`, the signed wavenumber of each entry,
    and `points`, the number of grid points (+points/2 and -points/2 are the same mode). On physical
    axes entry i lies at `origin + i * spacing`, in the run's unit of length."""

    name: str
    size: int
    labels: tuple[int, ...] | None = None
    points: int | None = None
    spacing: float | None = None
    origin: float = 0.0

    @model_validator(mode="after")
    def _check(self) -> "Axis":
        if self.size < 0 or not NAMED.fullmatch(self.name):
            raise ValueError(f"axis {self.name!r} of size {self.size}")
        if self.labels is not None and (
            len(self.labels) != self.size or len(set(self.labels)) != self.size
        ):
            raise ValueError(f"axis {self.name}: {self.size} different labels are needed")
        return self

    @classmethod
    def modes(
        cls, name: str, labels: Sequence[int] | np.ndarray, points: int | None = None
    ) -> "Axis":
        return cls(name=name, size=len(labels), labels=tuple(int(k) for k in labels), points=points)

    @classmethod
    def uniform(cls, name: str, size: int, spacing: float) -> "Axis":
        return cls(name=name, size=size, spacing=spacing)

    @property
    def coordinates(self) -> np.ndarray:
        """Wavenumber labels, positions, or plain indices, shape (size,)."""
        if self.labels is not None:
            return np.array(self.labels, dtype=np.int64)
        if self.spacing is not None:
            return self.origin + self.spacing * np.arange(self.size)
        return np.arange(self.size)


class BlockEntry(_Entry):
    """A block's position in its field (without components) and the number of its values that are
    not finite."""

    start: tuple[int, ...]
    shape: tuple[int, ...]
    nonfinite: int = 0

    def is_inside(self, extents: tuple[int, ...]) -> bool:
        if not len(self.start) == len(self.shape) == len(extents):
            return False
        ends = zip(self.start, self.shape, extents, strict=True)
        return all(start >= 0 and 0 < n <= extent - start for start, n, extent in ends)


class ShardEntry(_Entry):
    """One shard: its name below the folder, its number of bytes, its checksum, and its blocks of
    each field.

    Block i of component c of field f is the data set `f/c/i` (`f/i` for a scalar field)."""

    file: str
    bytes: int
    xxh3: str
    blocks: dict[str, tuple[BlockEntry, ...]]


class Rounding(_Entry):
    """The integers that the shards hold of a rounded field (see `simulator.archive.rounding`), and
    the errors of rounding: `asked`; `measured`, the largest of any shell; those of the values at
    the points, root mean square and maximum, relative to the field's root mean square.

    `dtype`, `axes`: of the integers, without the real and imaginary parts. `steps`, `energies`: of
    each shell, the step of the integers, 0 where the shell is round-off, and the sum of the squared
    coefficients before rounding. `mean`: the box mean of each component, real and imaginary part,
    which is not rounded."""

    asked: float
    measured: float
    rms: float
    maximum: float
    dtype: str
    axes: tuple[Axis, ...]
    shell_width: float
    steps: tuple[float, ...]
    energies: tuple[float, ...]
    mean: tuple[float, ...]

    @model_validator(mode="after")
    def _check(self) -> "Rounding":
        labelled = all(axis.labels and axis.points for axis in self.axes)
        if self.dtype not in UNSIGNED or not labelled or len(self.steps) != len(self.energies):
            raise ValueError("a rounded field has unsigned integers of modes, and shells")
        if not self.measured <= self.asked:
            raise ValueError(f"the error {self.measured:g} exceeds {self.asked:g}")
        return self


class FieldEntry(_Entry):
    """A field as a whole: dtype (numpy's notation with byte order), names of components, axes
    without padding."""

    dtype: str
    components: tuple[tuple[str, ...], ...] = ()
    axes: tuple[Axis, ...] = ()
    hermitian: bool = False
    # The species of a record of particles, whose name is `SPECIES.RECORD`.
    species: str | None = None
    attributes: dict[str, Any] = {}
    rounded: Rounding | None = None

    @field_validator("dtype")
    @classmethod
    def _a_type_of_numbers(cls, text: str) -> str:
        try:
            dtype = np.dtype(text)
        except (TypeError, ValueError, SyntaxError):
            dtype = np.dtype(object)
        if dtype.kind not in "biufc" or dtype.str != text:
            raise ValueError(f"dtype {shown(text)} is no type of numbers, such as <f8")
        return text

    @property
    def extents(self) -> tuple[int, ...]:
        """The size of each axis, without the component axes."""
        return tuple(axis.size for axis in self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """(components..., extents...)."""
        return (*(len(names) for names in self.components), *self.extents)

    @property
    def is_mesh(self) -> bool:
        """Whether this is a field over space or wavenumbers, not a counter, a table or a record of
        particles."""
        return bool(self.axes) and all(
            a.spacing is not None or a.labels is not None for a in self.axes
        )

    @property
    def stored(self) -> "FieldEntry":
        """The array in the shards: the field itself, or the integers of a rounded one."""
        if self.rounded is None:
            return self
        parts = (*self.components, ("re", "im"))
        return FieldEntry(dtype=self.rounded.dtype, components=parts, axes=self.rounded.axes)

    def component_paths(self, field: str) -> list[tuple[tuple[int, ...], str]]:
        """Index and path of each component: `(0,), "velocity/x"`; `(), "density"` for a scalar
        field."""
        return [
            (index, f"{field}/{name}" if name else field)
            for index, name in component_names(self.components)
        ]


def component_names(components: Sequence[Sequence[str]]) -> Iterator[tuple[tuple[int, ...], str]]:
    """Index and name of every component: `(0,), "x"`; `(0, 1), "xy"` for a tensor; `(), ""` for a
    scalar."""
    separator = "" if all(len(n) == 1 for names in components for n in names) else "_"
    for index in itertools.product(*(range(len(names)) for names in components)):
        yield index, separator.join(names[i] for names, i in zip(components, index, strict=True))


class Piece(NamedTuple):
    """A block of a field, its shard, and its number among the field's blocks in that shard."""

    shard: ShardEntry
    number: int
    block: BlockEntry


class Manifest(_Entry):
    """The complete description of one snapshot or checkpoint."""

    format: str = FORMAT
    version: int = VERSION
    step: int
    time: float
    index: bool = True
    compression: Compression = "none"
    attributes: dict[str, Any] = {}
    fields: dict[str, FieldEntry]
    shards: tuple[ShardEntry, ...]

    def pieces(self, field: str) -> Iterator[Piece]:
        for shard in self.shards:
            for number, block in enumerate(shard.blocks.get(field, ())):
                yield Piece(shard, number, block)

    @property
    def plain(self) -> "Manifest":
        """The manifest without the rounded fields, whose values no virtual data set can show."""
        fields = {name: entry for name, entry in self.fields.items() if entry.rounded is None}
        rounded = ", ".join(name for name in self.fields if name not in fields)
        if not rounded:
            return self
        said = f"{rounded}: rounded; simulator unpack writes their values into this file"
        attributes = {**self.attributes, "rounded_fields": said}
        return self.model_copy(update={"fields": fields, "attributes": attributes})

    def problems(self) -> list[str]:
        """Contradictions within the manifest: blocks out of bounds, gaps, overlaps, invalid
        names."""
        names = [shard.file for shard in self.shards]
        lines = ["two shards have the same name"] if len(set(names)) != len(names) else []
        lines += [
            f"shard name {name!r}" for name in names if not re.fullmatch(r"shards/p\d+\.h5", name)
        ]
        for shard in self.shards:
            lines += [
                f"{shard.file}: unknown field {f!r}" for f in shard.blocks if f not in self.fields
            ]
        for name, entry in self.fields.items():
            blocks = [piece.block for piece in self.pieces(name)]
            extents = entry.stored.extents
            inside = all(block.is_inside(extents) for block in blocks)
            volume = sum(math.prod(b.shape) for b in blocks)
            if (
                not inside
                or len({b.start for b in blocks}) != len(blocks)
                or volume != math.prod(extents)
            ):
                lines.append(f"the blocks of {name} do not tile {extents}")
        return lines

    def nonfinite(self) -> dict[str, int]:
        """The number of values that are not finite, by field, for fields with such values; the sums
        of series, which may have them (see `SUMS`), are left out."""
        fields = (name for name in self.fields if not name.startswith(SUMS))
        counts = {name: sum(p.block.nonfinite for p in self.pieces(name)) for name in fields}
        return {name: n for name, n in counts.items() if n}

    def encode(self) -> bytes:
        content = self.model_dump(mode="json", exclude_none=True)
        body = json.dumps(content, indent=1, allow_nan=False).removesuffix("\n}") + ",\n"
        # Lists of integers go on one line, for people who read the manifest (no JSON string
        # contains a line end).
        body = re.sub(r"\[\n[\s\d,\-]+\]", lambda m: re.sub(r"\s+", "", m[0]), body).encode()
        return b"".join(_SEAL.pieces([body]))


def load_filters(compression: Compression) -> Mapping[str, Any]:
    """The arguments of `create_dataset` for a compression. Also registers the filter for reading.

    Raises UserError if the filter's package is not installed."""
    if compression != "blosc2":
        gzip = {"compression": "gzip", "compression_opts": 1, "shuffle": True, "fletcher32": True}
        return gzip if compression == "gzip" else {}
    try:
        from hdf5plugin import Blosc2
    except ImportError:
        said = (
            "compression blosc2 needs the package hdf5plugin (pip install hdf5plugin); or use gzip"
        )
        raise UserError(said) from None
    return {**Blosc2(cname="zstd", clevel=1, filters=Blosc2.SHUFFLE), "fletcher32": True}


def _refused(number: str) -> None:
    raise ValueError(f"{number} is no number of a manifest")


def decode(data: bytes, origin: Path) -> Manifest:
    """The manifest in `data`, read from `origin`.

    Raises UserError if another program or version wrote the file, Damaged if this program wrote the
    file and the bytes were altered."""
    if not _SEAL.fits(data):
        is_ours = FORMAT.encode() in data or _SEAL.before in data
        if is_ours or (origin.parent / "shards").is_dir():
            raise Damaged(f"{origin}: {ALTERED}")
        raise UserError(f"{origin}: not a manifest of this program")
    try:
        content = json.loads(data, parse_constant=_refused)
        del content["manifest_xxh3"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Damaged(f"{origin}: {reason(error)}") from None
    if content.get("format") != FORMAT:
        raise UserError(f"{origin}: not a manifest of this program")
    if (version := content.get("version")) != VERSION:
        cure = "use the version of the program that wrote it"
        raise UserError(
            f"{origin}: format version {version}, but this program reads {VERSION}; {cure}"
        )
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError as error:
        raise Damaged(f"{origin}: {error.errors()[0]['msg']}") from None
    if problems := manifest.problems():
        raise Damaged(f"{origin}: {problems[0]}")
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a committed folder.

    Raises UserError if `folder` does not exist, must not be read or is not a snapshot or checkpoint
    of this program, RunFailure if reading fails, Damaged if its manifest is missing or altered, or
    has another step than the folder's name."""
    path = folder / NAME
    if folder.name.startswith(TEMPORARY):
        raise UserError(f"{folder}: never finished; the next start of its run removes it")
    try:
        manifest = decode(path.read_bytes(), path)
        if COMMITTED.fullmatch(folder.name) and int(folder.name) != manifest.step:
            raise Damaged(f"{path}: is of step {manifest.step}, a copy under another step's name")
        return manifest
    except FileNotFoundError:
        if not folder.exists():
            raise UserError(f"{folder}: no such snapshot or checkpoint") from None
        if (folder / "shards").is_dir():
            raise Damaged(f"{path}: missing") from None
        inside = sorted(path.parent for path in folder.glob(f"snapshots/[0-9]*/{NAME}"))
        meant = f"; the run's last snapshot is {inside[-1]}" if inside else ""
        raise UserError(
            f"{folder}: not a snapshot or checkpoint of this program (no {NAME}){meant}"
        ) from None
    except NotADirectoryError:
        raise UserError(
            f"{folder}: not a snapshot or checkpoint of this program (not a folder)"
        ) from None
    except OSError as error:
        raise refusal(error) from None


_DERIVED = re.compile(r"(\d{8,})(\.h5|\.vtkhdf|(\.\w+)?\.hdf5)")
_OLD = re.compile(re.escape(TEMPORARY) + r"old-(\d{8,})-.*")


def name_of_step(step: int) -> str:
    """`00000010` for step 10."""
    return f"{step:08d}"


INDEX = ".h5"
SIDECAR = ".vtkhdf"
"""The endings of a committed folder's index and VTKHDF sidecar, which lie beside it. Files of a
`SnapshotFile` end with `.hdf5`."""


def derived_files(folder: Path) -> list[Path]:
    """The files beside a committed folder that were derived from it."""
    beside = sorted(folder.parent.glob(f"{folder.name}.*"))
    return [path for path in beside if _DERIVED.fullmatch(path.name)]


def committed(parent: Path) -> list[Path]:
    """All committed folders in `parent`, also damaged ones, by ascending step.

    A network file system may list a folder as it was a minute ago, so folders that the run's ledger
    records are found by their names, too."""
    if not parent.is_dir():
        return []
    with os.scandir(parent) as entries:
        names = {e.name for e in entries if e.is_dir()}
    names |= {name for name in recorded_saves(parent) - names if (parent / name).is_dir()}
    return [parent / name for name in sorted(filter(COMMITTED.fullmatch, names), key=int)]


def remove(folder: Path) -> None:
    """Remove a committed folder and its derived files. A kill during the removal leaves only a
    temporary folder."""
    doomed = folder.with_name(f"{TEMPORARY}removed-{folder.name}-{secrets.token_hex(4)}")
    folder.rename(doomed)
    for path in derived_files(folder):
        path.unlink(missing_ok=True)
    discard(doomed)


def discard(temporary: Path) -> None:
    """Remove a temporary folder; if the removal fails (open files on NFS), the next start repeats
    it."""
    with contextlib.suppress(OSError):
        remove_tree(temporary)


def clean_leftovers(parent: Path) -> list[str]:
    """Remove the leftovers of a killed writer in `parent`; returns a line for each removed or
    restored file.

    Only the writer of a run calls this, at its start, never while a save is under way."""
    lines: list[str] = []
    paths = sorted(parent.iterdir()) if parent.is_dir() else []
    for path in (p for p in paths if p.name.startswith(TEMPORARY)):
        old = _OLD.fullmatch(path.name)
        if old and not (parent / old[1]).exists():
            path.rename(parent / old[1])
            lines.append(f"put back {parent / old[1]}: its replacement was never committed")
            continue
        try:
            remove_tree(path)
            lines.append(f"removed {path}: left by a run that was killed")
        except OSError as error:
            lines.append(f"cannot remove {path}, left by a run that was killed: {reason(error)}")
    for path in paths:
        derived = _DERIVED.fullmatch(path.name)
        if derived and not (parent / derived[1]).exists():
            path.unlink()
            lines.append(f"removed {path}: its folder {derived[1]} does not exist")
    return lines
