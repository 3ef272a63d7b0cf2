"""Reading a whole run back: its snapshots and checkpoints by checksum, everything else by its own rules."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from simulator.errors import RunFailure, UserError
from simulator.files import TEMPORARY, reason
from simulator.run.folder import CONFIG, SERIES
from simulator.run.inputs import altered
from simulator.run.provenance import NAME as PROVENANCE
from simulator.run.series import SeriesReader
from simulator.run.state import NAME as STATE
from simulator.run.state import read_state
from simulator.run.table import read_table
from simulator.storage import Report, committed, rebuild_index, stored_in, verify
from simulator.storage.reader import snapshot_folder
from simulator.storage.verify import Checked

KINDS = ("snapshots", "checkpoints")


def verify_path(path: Path) -> Iterator[Report]:
    """Reports on a run, a folder of snapshots or checkpoints, or one of these. Runs may go on meanwhile.

    A missing index is made again where the disk allows it. Raises UserError where `path` is nothing of ours.
    """
    whole = (path / CONFIG).exists() or (path / STATE).exists()
    if whole:
        yield Report(path, list(_files(path)))
    folders = (
        [f for kind in KINDS for f in committed(path / kind)] if whole else stored_in(snapshot_folder(path))
    )
    if folders == [snapshot_folder(path)]:
        yield _verified(folders[0])
        return
    for folder in folders:
        try:
            report = _verified(folder)
        except UserError as error:  # another version's
            report = Report(folder, [Checked(folder, str(error).removeprefix(f"{folder}: "))])
        if folder.exists():  # not pruned by the run meanwhile
            yield report
    for place in (path, *(path / kind for kind in KINDS)):
        for left in sorted(place.glob(f"{TEMPORARY}*")):
            yield Report(left, notes=[f"{left}: being written, or left by a killed run"])


def _verified(folder: Path) -> Report:
    report = verify(folder)
    if report.ok or not report.restorable or report.manifest is None:
        return report
    try:
        made = rebuild_index(folder, report.manifest)
    except OSError as error:
        report.notes.append(f"{folder}: its index cannot be made again ({reason(error)})")
        return report
    if made:
        report = verify(folder)
        report.notes += [f"{path}: was missing, made again" for path in made]
    return report


def _files(folder: Path) -> Iterator[Checked]:
    yield _checked(folder / CONFIG, _config_problem)
    yield _checked(folder / PROVENANCE, _json_problem)
    yield _checked(folder / STATE, _state_problem)
    yield _checked(folder / "diagnostics.csv", _table_problem)
    for name in SERIES:
        if (folder / f"{name}.h5").exists():
            yield _checked(folder / f"{name}.h5", _series_problem)
        elif (folder / f"{name}.parts").exists():
            yield Checked(folder / f"{name}.h5", "missing")
    for path, problem in altered(folder / "inputs"):
        yield Checked(path, problem)


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


def _state_problem(path: Path) -> str | None:
    path.stat()
    return None if read_state(path.parent) else "altered (no state of a run)"


def _table_problem(path: Path) -> str | None:
    columns = read_table(path)
    return _order_problem(columns["step"], columns["time"])


def _series_problem(path: Path) -> str | None:
    series = SeriesReader(path)
    for name in series:
        if len(series[name]) != len(series):
            return f"{name} has {len(series[name])} rows, not {len(series)}"
    return _order_problem(series.step, series.time)


def _order_problem(step: np.ndarray, time: np.ndarray) -> str | None:
    with suppress(IndexError):
        place = int(np.flatnonzero((np.diff(step) <= 0) | ~(np.diff(time) > 0))[0])
        return f"row {place + 2} (step {step[place + 1]}) does not follow step {step[place]}"
    return None
