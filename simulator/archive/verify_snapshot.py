"""Verifies a snapshot by reading it back: files present, complete, unaltered and finite, index consistent."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np
import xxhash

from simulator.archive.commit import committed, derived_files
from simulator.archive.index import field_path
from simulator.archive.manifest import NAME, Manifest, ShardEntry, read_manifest
from simulator.archive.shard import open_shard
from simulator.archive.vtkhdf import ROOT, drawn, image, places
from simulator.errors import RunFailure, UserError
from simulator.files import reason

_PIECE = 4 << 20
ALTERED = "altered (its checksum does not match)"


@dataclass(frozen=True)
class Checked:
    """A file and its problem (None if it is good). `derived` files can be rebuilt."""

    file: Path
    problem: str | None = None
    derived: bool = False


@dataclass
class Report:
    """The result of `verify` for one snapshot or checkpoint, file by file."""

    folder: Path
    files: list[Checked] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    manifest: Manifest | None = None

    @property
    def problems(self) -> list[Checked]:
        return [f for f in self.files if f.problem]

    @property
    def ok(self) -> bool:
        """Whether all files are good, derived ones included."""
        return not self.problems

    @property
    def restorable(self) -> bool:
        """Whether the data are good; derived files may have problems."""
        return all(f.derived for f in self.problems)

    def lines(self) -> list[str]:
        """One printable line for each file, then the notes."""
        return [f"{c.file}: {c.problem or 'ok'}" for c in self.files] + self.notes


def verify(
    folder: Path, *, workers: int = 4, as_written: Callable[[Path], bool | None] = lambda path: None
) -> Report:
    """Read everything in a committed folder, `workers` shards at a time. Bounded memory.

    `as_written(path)`: whether a record outside the folder (the run's ledger) says that the manifest or a derived
    file is unaltered; None if there is no record of it.
    Raises UserError if `folder` is not a snapshot or checkpoint of this program; damage is reported.
    """
    report = Report(folder)
    try:
        manifest = report.manifest = read_manifest(folder)
    except RunFailure as error:
        report.files.append(Checked(folder / NAME, str(error).removeprefix(f"{folder / NAME}: ")))
        return report
    replaced = as_written(folder / NAME) is False
    report.files.append(Checked(folder / NAME, "not the one that was committed" if replaced else None))
    if workers == 1 or len(manifest.shards) == 1:
        report.files += [_check_shard(folder, shard) for shard in manifest.shards]
    else:
        with ThreadPoolExecutor(max_workers=workers) as threads:
            report.files += threads.map(lambda shard: _check_shard(folder, shard), manifest.shards)
    named = {folder / NAME, *(folder / s.file for s in manifest.shards)}
    report.notes += [
        f"{path}: not part of the snapshot"
        # unlike rglob, walk tolerates a run that is removing the folder meanwhile
        for path in sorted(Path(place, name) for place, _, names in os.walk(folder) for name in names)
        if path not in named
    ]
    if manifest.index:
        index, sidecar = derived_files(folder)
        for path, problem in (
            (index, lambda: _index_problem(index, folder, manifest)),
            (sidecar, lambda: _sidecar_problem(sidecar, folder, manifest)),
        ):
            match as_written(path):
                case True:
                    line = None
                case False:  # HDF5 may hang or crash on a damaged file, so it is not opened
                    line = f"{ALTERED}; remove it, and it is made again" if path.exists() else "missing"
                case None:
                    line = problem()
            report.files.append(Checked(path, line, derived=True))
    return report


def newest_good(parent: Path) -> tuple[Path | None, list[tuple[Path, str]]]:
    """The newest folder in `parent` that is restorable, and the newer ones with the reason each was skipped."""
    skipped: list[tuple[Path, str]] = []
    for folder in reversed(committed(parent)):
        try:
            report = verify(folder)
        except UserError as error:
            skipped.append((folder, str(error).removeprefix(f"{folder / NAME}: ")))
            continue
        if report.restorable:
            return folder, skipped
        first = next(c for c in report.problems if not c.derived)
        skipped.append((folder, f"{first.file.relative_to(folder)}: {first.problem}"))
    return None, skipped


def stored_in(path: Path) -> list[Path]:
    """The committed folders in `path`: a run folder, a folder of snapshots or checkpoints, or one of these.

    Raises UserError if `path` is none of them.
    """
    if (path / NAME).exists() or (path / "shards").is_dir():
        return [path]
    kinds = [p for name in ("snapshots", "checkpoints") if (p := path / name).is_dir()]
    if kinds:
        return [folder for kind in kinds for folder in committed(kind)]
    if folders := committed(path):
        return folders
    what = "no such folder" if not path.exists() else "not a run, snapshot or checkpoint of this program"
    raise UserError(f"{path}: {what}; give a run folder or e.g. RUN/snapshots/00000010")


def _check_shard(folder: Path, shard: ShardEntry) -> Checked:
    path = folder / shard.file
    digest = xxhash.xxh3_64()
    try:
        with open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size != shard.bytes:
                word = "short" if size < shard.bytes else "too long"
                return Checked(path, f"{word}: {size} bytes, not {shard.bytes}")
            buffer = memoryview(bytearray(min(_PIECE, max(size, 1))))
            while n := file.readinto(buffer):
                digest.update(buffer[:n])
    except FileNotFoundError:
        return Checked(path, "missing")
    except OSError as error:
        return Checked(path, f"cannot be read ({reason(error)})")
    if digest.hexdigest() != shard.xxh3:
        return Checked(path, ALTERED)
    bad = {name: sum(b.nonfinite for b in blocks) for name, blocks in shard.blocks.items()}
    if counts := [f"{name} has {n} values that are not finite" for name, n in bad.items() if n]:
        return Checked(path, ", ".join(counts))
    return Checked(path)


def _index_problem(index: Path, folder: Path, manifest: Manifest) -> str | None:
    """Compare the sources of the virtual data sets with the manifest."""
    if prefix := os.environ.get("HDF5_VDS_PREFIX"):
        return f"HDF5_VDS_PREFIX={prefix} is set: HDF5 would look for the shards there; unset it"
    try:
        with open_shard(index) as file:
            for name, entry in manifest.fields.items():
                if not entry.in_index:
                    continue
                for _, path in entry.component_paths(name):
                    stored = file.get(field_path(manifest, path))
                    if not isinstance(stored, h5py.Dataset) or not stored.is_virtual:
                        return f"{path} is missing"
                    if stored.shape != entry.extents or stored.dtype != entry.dtype:
                        return f"{path} is {stored.shape} {stored.dtype}, not {entry.extents} {entry.dtype}"
                    if _sources(stored) != set(_expected(folder, manifest, name, path)):
                        return f"the sources of {path} are not the shards of {folder.name}"
    except FileNotFoundError:
        return "missing"
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        return f"cannot be read ({reason(error)})"
    return None


def _expected(
    folder: Path, manifest: Manifest, name: str, path: str, index: tuple[int, ...] = ()
) -> Iterator[tuple]:
    """Every source of a component at `index` of further axes: file, data set, region filled, region read (None: all
    of it)."""
    for shard, number, block in manifest.pieces(name):
        ends = tuple(a + n - 1 for a, n in zip(block.start, block.shape, strict=True))
        filled = ((*block.start, *index), (*ends, *index))
        yield f"{folder.name}/{shard.file}", f"{path}/{number}", filled, None


def _sources(stored: h5py.Dataset) -> set[tuple]:
    sources = set()
    for source in stored.virtual_sources():
        filled, read = source.vspace.get_select_bounds(), None
        if source.src_space.get_select_type() != h5py.h5s.SEL_ALL:
            read = source.src_space.get_select_bounds()
            whole = tuple(last - first for first, last in zip(*filled, strict=True))[: len(read[0])]
            if read == ((0,) * len(whole), whole):
                read = None
        sources.add((source.file_name, source.dset_name.lstrip("/"), filled, read))
    return sources


def _sidecar_problem(sidecar: Path, folder: Path, manifest: Manifest) -> str | None:
    """Compare frame, time and the sources of the virtual data sets with the manifest."""
    try:
        with open_shard(sidecar) as file:
            root = file.get(ROOT)
            if not isinstance(root, h5py.Group):
                return f"{ROOT} is missing"
            for name, value in image(manifest).items():
                if not np.array_equal(np.asarray(root.attrs[name]), value):
                    return f"its {name} is not the snapshot's"
            if not np.array_equal(_values(root, "FieldData/TimeValue"), [manifest.time]):
                return "its time is not the snapshot's"
            for name, entry in drawn(manifest).items():
                stored = root.get(f"PointData/{name}")
                if not isinstance(stored, h5py.Dataset) or not stored.is_virtual:
                    return f"{name} is missing"
                if stored.shape[:3] != entry.extents or stored.dtype != entry.dtype:
                    return f"{name} is {stored.shape} {stored.dtype}, not {entry.extents} {entry.dtype}"
                wanted = {e for p, i in places(name, entry) for e in _expected(folder, manifest, name, p, i)}
                if _sources(stored) != wanted:
                    return f"the sources of {name} are not the shards of {folder.name}"
    except FileNotFoundError:
        return "missing"
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        return f"cannot be read ({reason(error)})"
    return None


def _values(group: h5py.Group, name: str) -> np.ndarray:
    stored = group[name]
    if not isinstance(stored, h5py.Dataset):
        raise KeyError(name)
    return stored[()]
