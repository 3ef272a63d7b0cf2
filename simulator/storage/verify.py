"""Reading everything back: is each file there, whole, unaltered, finite, and is the index right?"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

import h5py
import xxhash

from simulator.errors import RunFailure, UserError
from simulator.files import reason
from simulator.storage.commit import committed, derived_files
from simulator.storage.index import field_path
from simulator.storage.manifest import NAME, Manifest, ShardEntry, read_manifest
from simulator.storage.shard import open_shard

_PIECE = 4 << 20


@dataclass(frozen=True)
class Checked:
    """One file and what is wrong with it (None: nothing). `derived` files can be made again."""

    file: Path
    problem: str | None = None
    derived: bool = False


@dataclass
class Report:
    """What `verify` found in one snapshot or checkpoint, file by file."""

    folder: Path
    files: list[Checked] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    manifest: Manifest | None = None

    @property
    def problems(self) -> list[Checked]:
        return [f for f in self.files if f.problem]

    @property
    def ok(self) -> bool:
        """Nothing is wrong with any file, the derived ones included."""
        return not self.problems

    @property
    def restorable(self) -> bool:
        """The data are whole; only derived files may have problems."""
        return all(f.derived for f in self.problems)

    def lines(self) -> list[str]:
        """For people: one line for each file, then the notes."""
        return [f"{c.file}: {c.problem or 'ok'}" for c in self.files] + self.notes


def verify(folder: Path) -> Report:
    """Read everything in a committed folder. Bounded memory.

    Raises UserError where `folder` is no snapshot or checkpoint of this program; damage is reported.
    """
    report = Report(folder)
    try:
        manifest = report.manifest = read_manifest(folder)
    except RunFailure as error:
        report.files.append(Checked(folder / NAME, str(error).removeprefix(f"{folder / NAME}: ")))
        return report
    report.files.append(Checked(folder / NAME))
    with ThreadPoolExecutor(max_workers=4) as threads:
        report.files += threads.map(lambda shard: _check_shard(folder, shard), manifest.shards)
    named = {folder / NAME, *(folder / s.file for s in manifest.shards)}
    report.notes += [
        f"{path}: not part of the snapshot"
        for path in sorted(p for p in folder.rglob("*") if p.is_file() and p not in named)
    ]
    if manifest.index:
        index, sidecar = derived_files(folder)
        report.files.append(Checked(index, _index_problem(index, folder, manifest), derived=True))
        report.files.append(Checked(sidecar, _sidecar_problem(sidecar, index, manifest), derived=True))
    return report


def newest_good(parent: Path) -> tuple[Path | None, list[tuple[Path, str]]]:
    """The newest folder in `parent` whose data verify, and those skipped on the way with the reasons."""
    skipped: list[tuple[Path, str]] = []
    for folder in reversed(committed(parent)):
        try:
            report = verify(folder)
        except UserError as error:
            skipped.append((folder, str(error)))
            continue
        if report.restorable:
            return folder, skipped
        first = next(c for c in report.problems if not c.derived)
        skipped.append((folder, f"{first.file.relative_to(folder)}: {first.problem}"))
    return None, skipped


def stored_in(path: Path) -> list[Path]:
    """The committed folders meant by a run folder, a folder of snapshots or checkpoints, or one of these.

    Raises UserError where there are none to be expected.
    """
    if (path / NAME).exists() or (path / "shards").is_dir():
        return [path]
    kinds = [p for name in ("snapshots", "checkpoints") if (p := path / name).is_dir()]
    if kinds:
        return [folder for kind in kinds for folder in committed(kind)]
    if found := committed(path):
        return found
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
            buffer = memoryview(bytearray(_PIECE))
            while n := file.readinto(buffer):
                digest.update(buffer[:n])
    except FileNotFoundError:
        return Checked(path, "missing")
    except OSError as error:
        return Checked(path, f"cannot be read ({reason(error)})")
    if digest.hexdigest() != shard.xxh3:
        return Checked(path, "altered (its checksum does not match)")
    bad = {name: sum(b.nonfinite for b in blocks) for name, blocks in shard.blocks.items()}
    if counts := [f"{name} has {n} values that are not finite" for name, n in bad.items() if n]:
        return Checked(path, ", ".join(counts))
    return Checked(path)


def _index_problem(index: Path, folder: Path, manifest: Manifest) -> str | None:
    """Compare the virtual data sets' sources with the manifest: nothing in them is trusted."""
    if prefix := os.environ.get("HDF5_VDS_PREFIX"):
        return f"HDF5_VDS_PREFIX={prefix} is set: HDF5 would look for the shards there; unset it"
    try:
        with open_shard(index) as file:
            for name, entry in manifest.fields.items():
                if not entry.is_mesh:
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


def _expected(folder: Path, manifest: Manifest, name: str, path: str) -> Iterator[tuple]:
    """File, data set, region filled, region read (None: all of it) of every source."""
    for shard, number, block in manifest.pieces(name):
        ends = tuple(a + n - 1 for a, n in zip(block.start, block.shape, strict=True))
        yield f"{folder.name}/{shard.file}", f"{path}/{number}", (block.start, ends), None


def _sources(stored: h5py.Dataset) -> set[tuple]:
    found = set()
    for source in stored.virtual_sources():
        filled, read = source.vspace.get_select_bounds(), None
        if source.src_space.get_select_type() != h5py.h5s.SEL_ALL:
            read = source.src_space.get_select_bounds()
            whole = tuple(last - first for first, last in zip(*filled, strict=True))
            if read == ((0,) * len(whole), whole):
                read = None
        found.add((source.file_name, source.dset_name.lstrip("/"), filled, read))
    return found


def _sidecar_problem(sidecar: Path, index: Path, manifest: Manifest) -> str | None:
    """Compare every data set that the XML names with the manifest."""
    extents = {
        f"{index.name}:{field_path(manifest, path)}": entry.extents
        for name, entry in manifest.fields.items()
        if entry.is_mesh
        for _, path in entry.component_paths(name)
    }
    try:
        items = ET.fromstring(sidecar.read_bytes()).iter("DataItem")
    except FileNotFoundError:
        return "missing"
    except (OSError, ET.ParseError) as error:
        return f"cannot be read ({reason(error)})"
    for item in items:
        if item.get("Format") != "HDF":
            continue
        where = (item.text or "").strip()
        if where not in extents:
            return f"names {where}, which does not exist"
        if item.get("Dimensions") != " ".join(map(str, extents[where])):
            return f"gives {where} the dimensions {item.get('Dimensions')}"
    return None
