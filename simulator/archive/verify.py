"""Verifies the files of a run by reading them back: snapshots and checkpoints against their
manifests, all other files against the run's ledger. Makes missing or altered derived files
again."""

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from simulator.archive.derived import (
    derived_from,
    derived_problem,
    make_derived,
    result_problems,
)
from simulator.archive.ledger import NAME as LEDGER
from simulator.archive.ledger import Audit
from simulator.archive.manifest import NAME as MANIFEST
from simulator.archive.manifest import (
    SAVES,
    SUMS,
    Manifest,
    ShardEntry,
    committed,
    read_manifest,
    remove,
)
from simulator.archive.run_state import CONFIG, read_state
from simulator.archive.run_state import NAME as STATE
from simulator.archive.seal import ALTERED, unsealed_json
from simulator.archive.snapshot_index import NAME as TIME_INDEX
from simulator.archive.snapshot_index import time_index_problem, write_time_index
from simulator.archive.snapshot_reader import RoundedField, snapshot_folder
from simulator.errors import RunFailure, UserError
from simulator.files import TEMPORARY, UNRECORDED, Journal, checksum, pieces_of, reason


@dataclass(frozen=True)
class Checked:
    """A file and its problem, None if the file is good. A `derived` file can be rebuilt."""

    file: Path
    problem: str | None = None
    derived: bool = False


@dataclass
class Findings:
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
        """Whether all files except derived ones are good."""
        return all(f.derived for f in self.problems)

    def lines(self) -> list[str]:
        return [f"{c.file}: {c.problem or 'ok'}" for c in self.files] + self.notes


def verify(
    folder: Path, *, workers: int = 4, recorded: Callable[[Path], bool] = lambda manifest: True
) -> Findings:
    """Read all files of a committed folder, `workers` shards at a time, in bounded memory, and
    report their damage.

    `recorded(path)`: whether the manifest `path` matches the run's ledger. Raises UserError if
    `folder` is not a snapshot or checkpoint of this program."""
    report = Findings(folder)
    try:
        manifest = report.manifest = read_manifest(folder)
    except RunFailure as error:
        report.files.append(
            Checked(folder / MANIFEST, str(error).removeprefix(f"{folder / MANIFEST}: "))
        )
        return report
    known = recorded(folder / MANIFEST)
    report.files.append(
        Checked(folder / MANIFEST, None if known else "not the one that was committed")
    )

    def checked_shard(shard: ShardEntry) -> Checked:
        path = folder / shard.file
        return _checked(path, lambda: _shard_problem(path, shard))

    with ThreadPoolExecutor(max_workers=workers) as threads:
        report.files += threads.map(checked_shard, manifest.shards)
    if report.ok:
        rounded = (n for n, entry in manifest.fields.items() if entry.rounded is not None)
        lines = (RoundedField(folder, manifest, name).problem() for name in rounded)
        report.files += [Checked(folder / MANIFEST, line) for line in lines if line]
    named = {folder / MANIFEST, *(folder / s.file for s in manifest.shards)}
    # Unlike rglob, walk tolerates that a run removes the folder meanwhile.
    paths = [Path(place, name) for place, _, names in os.walk(folder) for name in names]
    report.notes += [f"{path}: not part of the snapshot" for path in sorted({*paths} - named)]
    report.files += [
        _check_derived(path, folder, manifest) for path in derived_from(folder, manifest)
    ]
    return report


def _check_derived(path: Path, folder: Path, manifest: Manifest) -> Checked:
    problem = derived_problem(path, folder, manifest)
    if problem is None and (prefix := os.environ.get("HDF5_VDS_PREFIX")):
        problem = f"HDF5_VDS_PREFIX={prefix} is set: HDF5 would look for the shards there; unset it"
    return Checked(path, problem, derived=True)


def newest_good(parent: Path) -> tuple[Path | None, list[tuple[Path, str]]]:
    """The newest restorable folder in `parent`, and the newer folders, each with the reason why it
    was skipped."""
    skipped: list[tuple[Path, str]] = []
    for folder in reversed(committed(parent)):
        try:
            report = verify(folder)
        except UserError as error:
            skipped.append((folder, str(error).removeprefix(f"{folder / MANIFEST}: ")))
            continue
        if report.restorable:
            return folder, skipped
        first = next(c for c in report.problems if not c.derived)
        skipped.append((folder, f"{first.file.relative_to(folder)}: {first.problem}"))
    return None, skipped


def stored_in(path: Path) -> list[Path]:
    """The committed folders in `path`, which is a run folder, a folder of snapshots or checkpoints,
    a snapshot or a checkpoint. Raises UserError if `path` is none of these."""
    if (path / MANIFEST).exists() or (path / "shards").is_dir():
        return [path]
    kinds = [p for name in SAVES if (p := path / name).is_dir()]
    if kinds:
        return [folder for kind in kinds for folder in committed(kind)]
    if folders := committed(path):
        return folders
    what = (
        "no such folder"
        if not path.exists()
        else "not a run, snapshot or checkpoint of this program"
    )
    raise UserError(f"{path}: {what}; give a run folder or e.g. RUN/snapshots/00000010")


def _shard_problem(path: Path, shard: ShardEntry) -> str | None:
    size, digest = checksum(pieces_of(path))
    if size != shard.bytes:
        return f"{'short' if size < shard.bytes else 'too long'}: {size} bytes, not {shard.bytes}"
    if digest != shard.xxh3:
        return ALTERED
    bad = {name: sum(b.nonfinite for b in blocks) for name, blocks in shard.blocks.items()}
    wrong = {name: n for name, n in bad.items() if n and not name.startswith(SUMS)}
    return (
        ", ".join(f"{name} has {n} values that are not finite" for name, n in wrong.items()) or None
    )


def prune_saves(
    parent: Path, keep_last: int, keep_every: int | None = None, journal: Journal = UNRECORDED
) -> list[Path]:
    """Remove all but the `keep_last` newest folders, keeping those whose step is a multiple of
    `keep_every`.

    Removes nothing unless the newest folder has been read back and verified. Returns the removed
    folders; each removal is announced to `journal` first."""
    folders = committed(parent)
    old = [
        folder for folder in folders[:-keep_last] if not keep_every or int(folder.name) % keep_every
    ]
    if not old or not verify(folders[-1]).restorable:
        return []
    for folder in old:
        journal.removing(folder, f"the last {keep_last} are kept")
        remove(folder)
    return old


@dataclass(frozen=True)
class Verification:
    """The reports on a run, in order, as threads on all cores produce them; `total` is their
    largest number."""

    total: int
    reports: Iterator[Findings]


def verification(path: Path, cores: int | None = None) -> Verification:
    """Reports on a run, a folder of snapshots or checkpoints, a snapshot or a checkpoint, by
    `cores` threads (default: all cores that this process may use). The run may go on meanwhile.

    Makes a missing or altered index again if the disk allows it. Raises UserError if this program
    did not write `path`."""
    cores = cores or len(os.sched_getaffinity(0))
    if any((path / name).exists() for name in (CONFIG, STATE, LEDGER)):
        audit = Audit(path)
        folders = _saves(path, audit)
        reports = itertools.chain(
            _outside(path, audit), _of_saves(folders, audit, cores), _leftovers(path)
        )
        return Verification(1 + len(folders), reports)
    folders = stored_in(snapshot_folder(path))
    run = folders[0].parent.parent if folders and folders[0].parent.name in SAVES else None
    known = Audit(run) if run is not None and (run / LEDGER).exists() else None
    if folders == [snapshot_folder(path)]:
        return Verification(1, (_verified(folder, known, cores) for folder in folders))
    return Verification(
        len(folders), itertools.chain(_of_saves(folders, known, cores), _leftovers(path))
    )


def _outside(folder: Path, audit: Audit) -> Iterator[Findings]:
    """The report on all files that belong to no snapshot or checkpoint."""
    findings = Findings(folder)
    if audit.has_state or (folder / STATE).exists():
        findings.files.append(_checked(folder / STATE, partial(_state_problem, folder)))
    if audit.expected:
        findings.files.append(_checked(folder / LEDGER, audit.ledger_problem))
    else:
        findings.notes.append(
            f"{folder}: has no {LEDGER}: only its snapshots and checkpoints are checked"
        )
    findings.files += [
        _checked(folder / name, partial(audit.problem, name)) for name in audit.names(saves=False)
    ]
    findings.files += [
        Checked(path, problem, derived=True) for path, problem in result_problems(folder)
    ]
    findings.files += _time_index(folder / "snapshots", findings.notes)
    yield findings


def _of_saves(folders: Sequence[Path], audit: Audit | None, cores: int) -> Iterator[Findings]:
    report = partial(_report, audit=audit, workers=max(1, cores // max(len(folders), 1)))
    with ThreadPoolExecutor(max_workers=cores) as threads:
        for first in range(0, len(folders), 2 * cores):  # to hold only few manifests at a time
            yield from filter(None, threads.map(report, folders[first : first + 2 * cores]))


def _leftovers(path: Path) -> Iterator[Findings]:
    for place in (path, *(path / kind for kind in SAVES)):
        for left in sorted(place.glob(f"{TEMPORARY}*")):
            yield Findings(left, notes=[f"{left}: being written, or left by a killed run"])


def _saves(path: Path, audit: Audit) -> list[Path]:
    names = {kind: {folder.name for folder in committed(path / kind)} for kind in SAVES}
    for name in audit.names(saves=True):
        kind, folder, *rest = name.split("/")
        if rest == [MANIFEST]:
            names[kind].add(folder)
    return [path / kind / name for kind in SAVES for name in sorted(names[kind], key=int)]


def _report(folder: Path, audit: Audit | None, workers: int) -> Findings | None:
    """The report on one snapshot or checkpoint; None if the run has removed the folder
    meanwhile."""
    name = f"{folder.parent.name}/{folder.name}/{MANIFEST}"
    try:
        report = _verified(folder, audit, workers)
        # The ledger announced the rename, which may have happened just now.
        if report.manifest is None:
            report = _verified(folder, audit, workers)
    except UserError as error:
        if folder.exists():  # written by another version
            return Findings(folder, [Checked(folder, str(error).removeprefix(f"{folder}: "))])
        report = Findings(folder)
    if folder.exists():
        return report
    if audit is None or not audit.knows(name) or audit.removed(name):
        return None
    return Findings(folder, [Checked(folder, "missing")])


def _verified(folder: Path, audit: Audit | None, workers: int) -> Findings:
    report = verify(
        folder, workers=workers, recorded=audit.is_recorded if audit else lambda manifest: True
    )
    if report.ok or not report.restorable or (manifest := report.manifest) is None:
        return report
    written: dict[Path, str] = {}
    try:
        written = make_derived(folder, manifest)
        report.notes += [
            f"{p}: was {problem}, made again"
            for p, problem in written.items()
            if problem != ALTERED
        ]
    except OSError as error:
        report.notes.append(f"{folder}: its index cannot be made again ({reason(error)})")

    def now(checked: Checked) -> Checked:
        # Stays a finding: something writes to the run's files.
        if written.get(checked.file) == ALTERED:
            return Checked(checked.file, f"{ALTERED}, made again", derived=True)
        return _check_derived(checked.file, folder, manifest) if checked.derived else checked

    report.files = [now(checked) for checked in report.files]
    return report


def _time_index(parent: Path, notes: list[str]) -> Iterator[Checked]:
    problem = time_index_problem(parent)
    if problem is not None:
        path = parent.with_name(TIME_INDEX)
        try:
            written = write_time_index(parent)
            if written and problem == ALTERED:
                yield Checked(path, f"{problem}, made again", derived=True)
            elif written:
                notes.append(f"{path}: was {problem}, made again")
        except OSError as error:
            yield Checked(
                path, f"{problem}; it cannot be made again ({reason(error)})", derived=True
            )


def _checked(path: Path, problem: Callable[[], str | None]) -> Checked:
    try:
        return Checked(path, problem())
    except FileNotFoundError:
        return Checked(path, "missing")
    except (OSError, ValueError) as error:
        return Checked(path, f"cannot be read ({reason(error).splitlines()[0]})")


def _state_problem(folder: Path) -> str | None:
    content = (folder / STATE).read_bytes()
    return ALTERED if read_state(folder) is None or unsealed_json(content) is None else None
