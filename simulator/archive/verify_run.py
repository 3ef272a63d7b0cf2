"""Verifies a whole run: snapshots and checkpoints against their manifests, all files against the run's ledger."""

import itertools
import json
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from simulator.archive.audit import ALTERED, Audit
from simulator.archive.commit import committed_names
from simulator.archive.ledger import GROWING, Ledger
from simulator.archive.ledger import NAME as LEDGER
from simulator.archive.manifest import NAME as MANIFEST
from simulator.archive.reader import snapshot_folder
from simulator.archive.series import SeriesReader
from simulator.archive.state import NAME as STATE
from simulator.archive.state import is_whole, read_state
from simulator.archive.verify_snapshot import Checked, Report, stored_in, verify
from simulator.archive.writer import rebuild_index
from simulator.errors import RunFailure, UserError
from simulator.files import TEMPORARY, reason
from simulator.run.folder import CONFIG, series_names
from simulator.run.lock import RunLock
from simulator.simulation.inputs import altered
from simulator.simulation.provenance import NAME as PROVENANCE

KINDS = ("snapshots", "checkpoints")


@dataclass(frozen=True)
class Verification:
    """The reports on a run, in order, produced on all cores; `total` is their largest possible number."""

    total: int
    reports: Iterator[Report]


def verification(path: Path, cores: int | None = None) -> Verification:
    """Reports on a run, a folder of snapshots or checkpoints, or one of these, with `cores` threads (default: all
    cores that this process may use). Runs may go on meanwhile.

    A missing index is made again if nobody else writes the run and the disk allows it. Raises UserError if `path` is
    not of this program.
    """
    cores = cores or len(os.sched_getaffinity(0))
    if any((path / name).exists() for name in (CONFIG, STATE, LEDGER)):
        return _of_run(path, Audit(path), cores)
    saved = stored_in(snapshot_folder(path))
    audit = _audit_of(saved[0]) if saved else None
    if saved == [snapshot_folder(path)]:
        return Verification(1, (_verified(folder, audit, cores) for folder in saved))
    return Verification(
        len(saved), itertools.chain(_of_saves(saved, audit, cores, len(saved)), _leftovers(path))
    )


def _of_run(folder: Path, audit: Audit, cores: int) -> Verification:
    names = _saves(folder, audit)
    files = (Report(folder, list(_files(folder, audit)), list(_remarks(folder, audit))) for _ in range(1))
    saves = _of_saves((Path(parent) / name for parent, name in names), audit, cores, len(names))
    return Verification(1 + len(names), itertools.chain(files, saves, _leftovers(folder)))


def _of_saves(folders: Iterable[Path], audit: Audit | None, cores: int, count: int = 1) -> Iterator[Report]:
    """Reports on snapshots and checkpoints; if there are few, several threads read the shards of each."""
    jobs = (partial(_report, folder, audit, max(1, cores // max(count, 1))) for folder in folders)
    with ThreadPoolExecutor(max_workers=cores) as threads:
        yield from filter(None, _in_order(threads, jobs, ahead=2 * cores))


def _leftovers(path: Path) -> Iterator[Report]:
    for place in (path, *(path / kind for kind in KINDS)):
        for left in sorted(place.glob(f"{TEMPORARY}*")):
            yield Report(left, notes=[f"{left}: being written, or left by a killed run"])


def _saves(path: Path, audit: Audit) -> list[tuple[str, str]]:
    """Parent and name of all snapshots and checkpoints that exist or should exist, by kind and step."""
    names = {kind: set(committed_names(path / kind)) for kind in KINDS}
    for name in audit.names(saves=True):
        kind, folder, *rest = name.split("/")
        if rest == [MANIFEST]:
            names[kind].add(folder)
    return [(str(path / kind), name) for kind in KINDS for name in sorted(names[kind], key=int)]


def _audit_of(saved: Path) -> Audit | None:
    """The audit for one snapshot or checkpoint if it lies in a run with a ledger, else None."""
    run = saved.parent.parent
    return Audit(run) if saved.parent.name in KINDS and (run / LEDGER).exists() else None


def _in_order(
    threads: ThreadPoolExecutor, jobs: Iterable[Callable[[], Report | None]], ahead: int
) -> Iterator[Report | None]:
    """The results of the jobs in order; at most `ahead` of them are held."""
    waiting: deque[Future[Report | None]] = deque()
    try:
        for job in jobs:
            waiting.append(threads.submit(job))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for left in waiting:
            left.cancel()


def _report(folder: Path, audit: Audit | None, workers: int) -> Report | None:
    """The report on one snapshot or checkpoint; None if the run has removed it meanwhile."""
    name = f"{folder.parent.name}/{folder.name}/{MANIFEST}"
    try:
        report = _verified(folder, audit, workers)
        if report.manifest is None:  # the ledger announced the rename, which may have happened just now
            report = _verified(folder, audit, workers)
    except UserError as error:
        if folder.exists():  # written by another version
            return Report(folder, [Checked(folder, str(error).removeprefix(f"{folder}: "))])
        report = Report(folder)
    if folder.exists():
        return report
    if audit is None or not audit.knows(name) or audit.removed(name):
        return None
    return Report(folder, [Checked(folder, "missing")])


def _verified(folder: Path, audit: Audit | None, workers: int) -> Report:
    as_written = audit.as_written if audit is not None else lambda path: None
    report = verify(folder, workers=workers, as_written=as_written)
    if report.ok or not report.restorable or report.manifest is None:
        return report
    try:
        made = _made_again(folder, report, audit)
    except OSError as error:
        report.notes.append(f"{folder}: its index cannot be made again ({reason(error)})")
        return report
    except UserError as error:  # a live run, which may not have written the index yet
        assert audit is not None
        pending = [c.file for c in report.problems if not audit.knows_by_now(c.file)]
        report = verify(folder, workers=workers, as_written=as_written)
        for checked in [c for c in report.problems if c.file in pending and not c.file.exists()]:
            report.files.remove(checked)
            report.notes.append(f"{checked.file}: not written yet ({reason(error)})")
        return report
    if made:
        report = verify(
            folder, workers=workers, as_written=lambda path: None if path in made else as_written(path)
        )
        report.notes += [f"{path}: was missing, made again" for path in made]
    return report


def _made_again(folder: Path, report: Report, audit: Audit | None) -> list[Path]:
    """Makes a missing index; within a run as its only writer, so that the ledger records it."""
    assert report.manifest is not None
    if audit is None or not audit.expected:
        return rebuild_index(folder, report.manifest)
    if all(c.file.exists() for c in report.problems):
        return []
    with RunLock.acquire(audit.folder, os.environ) as lock:
        made = rebuild_index(folder, report.manifest)
        ledger = Ledger(audit.folder, check=lock.check)
        ledger.kept(made)
        ledger.close()
    return made


def _files(folder: Path, audit: Audit) -> Iterator[Checked]:
    """Checks all files outside of snapshots and checkpoints: against the ledger if it records them, else by the
    file's own rules."""
    rules: dict[str, Callable[[Path], str | None]] = {
        CONFIG: _config_problem,
        PROVENANCE: _json_problem,
        "diagnostics.csv": _table_problem,
    }
    rules |= {f"{name}.h5": _series_problem for name in series_names(folder) if _is_there(folder, name)}
    if audit.expected:  # files without a record were not written yet
        rules = {name: rule for name, rule in rules.items() if (folder / name).exists() or audit.knows(name)}
    if audit.has_state or (folder / STATE).exists():
        yield _checked(folder / STATE, partial(_state_problem, audit.expected))
    if audit.expected:
        yield _checked(folder / LEDGER, lambda path: audit.ledger_problem())
    for name in dict.fromkeys([*rules, *audit.names(saves=False)]):
        yield _file(folder / name, name, audit, rules.get(name))
    if not audit.expected:
        for path, problem in altered(folder / "inputs"):
            yield Checked(path, problem)


def _file(path: Path, name: str, audit: Audit, rule: Callable[[Path], str | None] | None) -> Checked:
    if not audit.knows(name):
        return _checked(path, rule or (lambda path: None))
    checked = _checked(path, lambda path: audit.problem(name))
    # HDF5 may hang or crash on a file that is known to be damaged, so only text files are searched for the damage.
    text = path.suffix != ".h5" and (checked.problem or "").startswith("altered")
    tail = name in GROWING and not checked.problem and audit.unrecorded_tail(name)
    if rule and (text or tail):
        return Checked(path, _checked(path, rule).problem or checked.problem)
    return checked


def _remarks(folder: Path, audit: Audit) -> Iterator[str]:
    if not audit.expected:
        yield f"{folder}: has no {LEDGER} (an earlier version wrote it): deleted files cannot be detected"


def _is_there(folder: Path, series: str) -> bool:
    return (folder / f"{series}.h5").exists() or (folder / f"{series}.parts").exists()


def _checked(path: Path, problem: Callable[[Path], str | None]) -> Checked:
    try:
        return Checked(path, problem(path))
    except FileNotFoundError as error:
        return Checked(
            path, "missing" if error.filename in (None, str(path)) else f"{error.filename}: missing"
        )
    except (OSError, ValueError, KeyError, RuntimeError, RunFailure, UserError) as error:
        return Checked(path, f"cannot be read ({reason(error).splitlines()[0]})")


def _config_problem(path: Path) -> str | None:
    from simulator.config import load_config

    path.stat()
    load_config(path, check_files=False)
    return None


def _json_problem(path: Path) -> str | None:
    json.loads(path.read_text())
    return None


def _state_problem(strict: bool, path: Path) -> str | None:
    """Checks state.json. `strict`: the version that wrote it gives it a checksum."""
    path.stat()
    if read_state(path.parent) is None:
        return "altered (no state of a run)"
    whole = is_whole(path.parent)
    return ALTERED if whole is False or (strict and whole is None) else None


def _table_problem(path: Path) -> str | None:
    """Checks line by line, so that a long table takes no memory; an incomplete last line is still being written."""
    with open(path) as lines:
        names = next(lines).rstrip("\n").split(",")
        before, last = -1, -math.inf
        for row, line in enumerate(lines, 1):
            if not line.endswith("\n"):
                break
            values = [float(value) for value in line.split(",")]
            if len(values) != len(names):
                raise ValueError(f"row {row} has {len(values)} values, not {len(names)}")
            step, time = int(values[0]), values[names.index("time")]
            if not (step > before and time > last):
                return f"row {row} (step {step}) does not follow step {before}"
            before, last = step, time
    return None


def _series_problem(path: Path) -> str | None:
    series = SeriesReader(path)
    if (problem := series.problem()) is not None:
        return problem
    with suppress(IndexError):
        place = int(np.flatnonzero((np.diff(series.step) <= 0) | ~(np.diff(series.time) > 0))[0])
        return f"row {place + 2} (step {series.step[place + 1]}) does not follow step {series.step[place]}"
    return None
