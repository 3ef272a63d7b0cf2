"""The record that a sweep keeps of the starts of its runs: `HASH/logs/sweep.json`.

A run that is refused or dies before its first step has no state.json; this record tells how it ended.
"""

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from simulator.files import replace_json

NAME = "sweep.json"
LOG = "sweep.log"
"""The output of a run that `sweep run` started."""


@dataclass(frozen=True)
class Record:
    """The latest start of a run by a sweep; `code` is its exit code, None while it is running."""

    host: str
    pid: int
    job_id: str | None
    log: str
    code: int | None = None
    last: str = ""
    """The last line of its output."""


def read_record(folder: Path) -> Record | None:
    """The record of the run in `folder`; None if no sweep has started it yet."""
    try:
        content: Any = json.loads((folder / "logs" / NAME).read_text())
        known = {field.name for field in fields(Record)}
        return Record(**{key: item for key, item in content.items() if key in known})
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def begun(folder: Path, pid: int, log: Path, environ: Mapping[str, str]) -> Record:
    """Records a start of the run in `folder` by the process `pid`."""
    job = environ.get("SLURM_ARRAY_JOB_ID") or environ.get("SLURM_JOB_ID")
    task = environ.get("SLURM_ARRAY_TASK_ID")
    record = Record(
        socket.gethostname(),
        pid,
        f"{job}_{task}" if job and task else job,
        os.fspath(log),
    )
    _write(folder, record)
    return record


def ended(folder: Path, record: Record, code: int, last: str) -> Record:
    """Records the end of a run, with its exit code and last line of output."""
    record = replace(record, code=code, last=last)
    _write(folder, record)
    return record


def last_line(log: Path) -> str:
    """The last line in a log that is not blank."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 16_384))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _write(folder: Path, record: Record) -> None:
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    replace_json(folder / "logs" / NAME, asdict(record))
