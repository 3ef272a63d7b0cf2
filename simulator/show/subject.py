"""The subject of a report: a run or a sweep, and whether it is still going on."""

import json
from collections.abc import Sequence
from pathlib import Path

from simulator.errors import UserError
from simulator.run.folder import CONFIG, PLAN, SWEEP
from simulator.sweeps import open_sweep
from simulator.sweeps.study_status import Stage, statuses_of
from simulator.sweeps.sweep import Sweep


def sweep_at(path: Path) -> Sweep | None:
    """The sweep of a file, or of the folder into which one was planned; None for a run's folder.

    Raises UserError if `path` is neither.
    """
    if path.is_file():
        return open_sweep(path)
    if (path / CONFIG).is_file():
        return None
    try:
        plan = json.loads((path / PLAN).read_text())
        file = Path(plan["file"]) if plan["program"] == SWEEP else None
    except (OSError, ValueError, KeyError, TypeError):
        file = None
    if file is None:
        what = "no such file or folder" if not path.exists() else "neither a run nor a sweep"
        raise UserError(f"{path}: {what}; name a run's folder, or a sweep's file or folder")
    return open_sweep(file)


def is_going_on(folders: Sequence[Path]) -> bool:
    """Whether any of the runs is being computed, or waits for its job."""
    there = [folder for folder in folders if folder.is_dir()]
    return any(status.stage in (Stage.RUNNING, Stage.QUEUED) for status in statuses_of(there))
