"""Particles in GADGET's HDF5 files, checked before anything of them is used."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from simulator.archive.stored_particles import ParticlesOnDisk
from simulator.errors import UserError, shown
from simulator.files import lies_elsewhere, reason
from simulator.settings import LARGEST, SMALLEST

_LIGHT = 2.99792458e10  # cm/s
_MOST_FILES = 10**5
_MOST_PARTICLES = 1 << 48

HEADER: Mapping[str, tuple[float, float]] = {
    "BoxSize": (SMALLEST, LARGEST),
    "NumFilesPerSnapshot": (1, _MOST_FILES),
    "Time": (0, LARGEST),
    "Omega0": (0, LARGEST),
    "OmegaLambda": (-LARGEST, LARGEST),
    "HubbleParam": (0, LARGEST),
    "UnitLength_in_cm": (SMALLEST, LARGEST),
    "UnitMass_in_g": (SMALLEST, LARGEST),
    "UnitVelocity_in_cm_per_s": (SMALLEST, LARGEST),
}
"""The numbers of a header that are used, with their least and their largest value."""


class GadgetRecord(NamedTuple):
    """The data set of a record: components of each particle (0: a scalar), numpy's kinds of
    numbers, and the unit of what they measure."""

    name: str
    components: int
    kinds: str
    needed: str


RECORDS: Mapping[str, GadgetRecord] = {
    "position": GadgetRecord("Coordinates", 3, "f", "numbers from -1 to 2 box lengths"),
    "velocity": GadgetRecord("Velocities", 3, "f", "velocities below that of light"),
    "mass": GadgetRecord("Masses", 0, "f", "numbers above zero"),
    "id": GadgetRecord("ParticleIDs", 0, "iu", "whole numbers from 0 to 2^63 - 1"),
}
"""The records of particles in a file."""


class GadgetParticles(ParticlesOnDisk):
    """The particles of one type in a file, or in all files of a snapshot, in the file's units.
    Every process reads the particles of its devices only. `header` has the numbers `HEADER` of
    Header, Parameters and Units."""

    records = frozenset({"position", "velocity", "mass"})

    def __init__(self, path: str, kind: int, numbered: bool) -> None:
        """`numbered`: ids are the places in the file. Raises UserError if there are no such
        particles, or if the files are not as `HEADER` and `RECORDS` say."""
        self._kind = kind
        self._numbered = numbered
        self._stored = {}
        first = Path(path)
        self.header = stated_header(first)
        with _reading(first) as file:
            counts = _counts(file, kind)
            masses = "MassTable" in _attributes(file, "Header")
            self._mass = float(_by_type(file, "MassTable", kind, "iuf")[kind]) if masses else 0.0
        count = int(self.header.get("NumFilesPerSnapshot", 1))
        self.files = [first] if count == 1 else _beside(first, count)
        each = [self._checked(file) for file in self.files]
        self._first = np.concatenate([[0], np.cumsum(np.asarray(each, np.int64))])
        self.count = int(self._first[-1])
        if not self.count:
            there = ", ".join(str(n) for n, held in enumerate(counts) if held) or "none"
            raise UserError(f"{path}: holds no particles of type {kind}; it holds types {there}")

    def _checked(self, path: Path) -> int:
        """The number of particles in a file, whose data sets have the shapes and types of
        `RECORDS`."""
        with _reading(path) as file:
            count = int(_counts(file, self._kind)[self._kind])
            absent = ("mass",) * (self._mass > 0) + ("id",) * self._numbered
            for record in RECORDS:
                if count and record not in absent:
                    self._data_set(file, record, count)
        return count

    def _data_set(self, file: h5py.File, record: str, count: int) -> h5py.Dataset:
        name, components, kinds, _ = RECORDS[record]
        group = f"PartType{self._kind}"
        stored = file.get(f"{group}/{name}")
        if not isinstance(stored, h5py.Dataset):
            raise ValueError(f"{group} has no {name}")
        if lies_elsewhere(stored, file):
            raise ValueError(f"{group}/{name} lies in other files; they have to be copied into it")
        shape = (count, components) if components else (count,)
        if stored.shape != shape or stored.dtype.kind not in kinds:
            words = {"f": "real numbers", "iu": "whole numbers"}[kinds]
            has = f"has the shape {stored.shape} and the type {stored.dtype}"
            raise ValueError(f"{group}/{name} {has}; {words} of shape {shape} are needed")
        return stored

    def _values(self, name: str, first: int, last: int) -> np.ndarray:
        if name == "id" and self._numbered:
            return np.arange(first, last)
        if name == "mass" and self._mass:
            return np.full(last - first, self._mass)
        parts = []
        for path, begin, end in zip(self.files, self._first[:-1], self._first[1:], strict=True):
            if begin < last and end > first:
                with _reading(path) as file:
                    stored = self._data_set(file, name, end - begin)
                    values = stored[max(first - begin, 0) : min(last, end) - begin]
                    if not self._sensible(name, values):
                        record = f"PartType{self._kind}/{RECORDS[name].name}"
                        raise ValueError(f"{record} has others than {RECORDS[name].needed}")
                    parts.append(values)
        return np.concatenate(parts).T

    def _sensible(self, name: str, values: np.ndarray) -> bool:
        """Whether values lie in the range of their record; NaN lies in none."""
        values = _in_double(values)
        length = self.header["BoxSize"]
        match name:
            case "position":
                least = -length
                most = 2 * length
            case "velocity":
                # The file holds peculiar velocities over sqrt(a).
                unit = self.header.get("UnitVelocity_in_cm_per_s", 1e5)
                most = _LIGHT / unit / max(self.header.get("Time", 1.0), 1e-6) ** 0.5
                least = -most
            case "mass":
                least = SMALLEST
                most = LARGEST
            case _:
                least = 0
                most = np.iinfo(np.int64).max
        return bool(((values >= least) & (values <= most)).all())


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[h5py.File]:
    """The open file. Whatever HDF5 raises while it is read becomes a UserError with its name."""
    try:
        with h5py.File(path, "r", locking=False) as file:
            yield file
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {reason(error)}") from None
    except (KeyError, RuntimeError, TypeError, ValueError, MemoryError) as error:
        said = str(error) if type(error) is ValueError else reason(error)
        raise UserError(f"{path}: {said}") from None


def stated_header(path: Path) -> dict[str, float]:
    """The numbers `HEADER` in a file. Raises UserError if it is no HDF5 file of GADGET."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        if (begin := file.read(4)) in _BINARY:
            raise UserError(
                f"{path}: is in GADGET's binary format {_BINARY[begin]}; HDF5 (format 3) is needed"
            )
    with _reading(path) as file:
        about = _attributes(file, "Header")
        swift = any(name.startswith("Unit length in cgs") for name in _attributes(file, "Units"))
        if swift or "Dimension" in about or "SWIFT" in str(about.get("Code")):
            what = "is a file for SWIFT, with peculiar velocities and without h"
            raise ValueError(f"{what}; GADGET's HDF5 format is needed (gadget_hdf5 of monofonIC)")
        header = _header(file)
    if "BoxSize" not in header:
        raise UserError(f"{path}: is no GADGET file; its group Header has no BoxSize")
    return header


_BINARY = {
    size.to_bytes(4, order): number
    for size, number in ((256, 1), (8, 2))
    for order in ("little", "big")
}
"""The formats of binary files by their first bytes, the length of the first record."""


def _counts(file: h5py.File, kind: int) -> np.ndarray:
    """The number of particles of each type in a file; a single file may state the total only."""
    attributes = _attributes(file, "Header")
    alone = np.all(np.asarray(attributes.get("NumFilesPerSnapshot", 1)) == 1)
    total = "NumPart_ThisFile" not in attributes and "NumPart_Total" in attributes and alone
    return _by_type(file, "NumPart_Total" if total else "NumPart_ThisFile", kind, "iu")


def _header(file: h5py.File) -> dict[str, float]:
    """The numbers of Units, Parameters and Header, of which the last that has a name counts."""
    header = {}
    for group in ("Units", "Parameters", "Header"):
        attributes = _attributes(file, group)
        for name, (least, most) in HEADER.items():
            if name not in attributes:
                continue
            value = np.asarray(attributes[name])
            if name == "BoxSize" and value.shape == (3,) and (value == value[0]).all():
                value = value[:1]
            if value.size != 1 or value.dtype.kind not in "iuf":
                raise ValueError(f"{name} in {group} is {shown(value)}; one number is needed")
            header[name] = float(value.ravel()[0])
            if not least <= header[name] <= most:
                needed = f"has to lie between {least:g} and {most:g}"
                raise ValueError(f"{name} in {group} is {header[name]:g}; it {needed}")
    return header


def _by_type(file: h5py.File, name: str, kind: int, kinds: str) -> np.ndarray:
    """A number for each type of particle in the group Header, from zero on."""
    attributes = _attributes(file, "Header")
    if name not in attributes:
        raise ValueError(f"is no GADGET file; its group Header has no {name}")
    values = np.asarray(attributes[name])
    if values.ndim != 1 or len(values) <= kind or values.dtype.kind not in kinds:
        raise ValueError(f"{name} in Header is {shown(values)}; a number for each type is needed")
    values = _in_double(values)
    most = _MOST_PARTICLES if kinds == "iu" else LARGEST
    if not ((values >= 0) & (values <= most)).all():
        raise ValueError(
            f"{name} in Header is {shown(values)}; numbers from 0 to {most:g} are needed"
        )
    return values


def _in_double(values: np.ndarray) -> np.ndarray:
    """Real numbers in double precision, in which limits are not rounded: 1e-50 is not zero."""
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float64) if values.dtype.kind == "f" else values


def _attributes(file: h5py.File, name: str) -> Mapping[str, Any]:
    group: Any = file.get(name)
    return {} if group is None else group.attrs


def gadget_files(path: Path) -> list[Path]:
    """All files of the snapshot that begins with the file `path`; that file alone if it is none of
    GADGET's."""
    try:
        with _reading(path) as file:
            count = int(_header(file).get("NumFilesPerSnapshot", 1))
        return [path] if count == 1 else _beside(path, count)
    except UserError:
        return [path]


def _beside(first: Path, count: int) -> list[Path]:
    """All files of a snapshot: NAME.0.hdf5, NAME.1.hdf5, ..., or NAME.hdf5.0, ..."""
    parts = re.fullmatch(r"(.*\.)\d+(\.\w+)?", first.name)
    if parts is None:
        raise UserError(
            f"{first}: is one of {count} files of a snapshot; give the first of them, as in NAME.0.hdf5"
        )
    return [first.with_name(f"{parts[1]}{n}{parts[2] or ''}") for n in range(count)]
