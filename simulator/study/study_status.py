"""The progress of the runs of a sweep, read from their folders and, for submitted runs, from
Slurm's queue."""

import os
import socket
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path

from simulator.archive.run_state import RunState, read_state
from simulator.cluster.queue import waiting_tasks
from simulator.errors import RunFailure, UserError
from simulator.files import dataclass_from, read_json, replace_json
from simulator.run.run_status import is_written, job_of, process_lives, submitted_job

NAME = "sweep.json"  # The record of a run's latest start, in HASH/logs: its end, if state.json is missing.
LOG = "sweep.log"  # The output of a run that `sweep run` started.


@dataclass(frozen=True)
class Record:
    """The latest start of a run by a sweep; `code` is its exit code, None while it is running."""

    host: str
    pid: int
    job_id: str | None
    log: str
    code: int | None = None
    last: str = ""  # The last line of the run's output.


def read_record(folder: Path) -> Record | None:
    """The record of the run in `folder`; None if no sweep has started it yet."""
    return dataclass_from(Record, read_json(folder / "logs" / NAME))


def begun(folder: Path, pid: int, log: Path, environ: Mapping[str, str]) -> Record:
    """Records a start of the run in `folder` by the process `pid`."""
    record = Record(socket.gethostname(), pid, job_of(environ), os.fspath(log))
    _write(folder, record)
    return record


def ended(folder: Path, record: Record, code: int, last: str) -> None:
    """Records the end of a run, with its exit code and last line of output."""
    _write(folder, replace(record, code=code, last=last))


def outcome(error: BaseException) -> tuple[int, str]:
    """The exit code of a run that ended with `error`, and the last line to record."""
    if isinstance(error, KeyboardInterrupt):
        return 3, ""
    if isinstance(error, UserError | RunFailure):
        return 2 if isinstance(error, UserError) else 1, str(error).splitlines()[-1]
    return 1, f"{type(error).__name__}: {error}"


def last_line(log: Path) -> str:
    """The last line of a log that is not blank."""
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


class MemberState(StrEnum):
    """The state of a run."""

    WAITING = "waiting"
    QUEUED = "queued"  # The run was submitted to Slurm and has not started.
    RUNNING = "running"
    INTERRUPTED = "interrupted"  # The run has ended early and can be continued.
    FAILED = "failed"
    DONE = "done"


@dataclass(frozen=True)
class MemberStatus:
    stage: MemberState
    state: RunState | None = None
    detail: str = ""  # The progress of the run, or the reason why it ended.


def status_of(folder: Path, queued: str | None = None) -> MemberStatus:
    """The status of the run in `folder`. `queued` is the id of the run's task if the task waits in
    Slurm's queue."""
    state = read_state(folder)
    record = read_record(folder)
    if is_written(folder):
        return MemberStatus(MemberState.RUNNING, state, _progress(state) if state else "starting")
    if state is not None and state.state == "finished":
        return MemberStatus(MemberState.DONE, state, f"t = {state.time:g}, step {state.step}")
    if (
        record is not None
        and record.code is None
        and process_lives(record.host, record.pid, record.job_id)
    ):
        return MemberStatus(MemberState.RUNNING, state, _progress(state) if state else "starting")
    if queued is not None:
        return MemberStatus(MemberState.QUEUED, state, f"job {queued}")
    failed = record is not None and record.code in (1, 2)
    said = record.last if record is not None and failed else ""
    if state is None and failed:
        return MemberStatus(MemberState.FAILED, None, said or "ended before its first step")
    if state is None and record is not None and record.code not in (0, 3):
        said = record.last or last_line(Path(record.log))
        why = "cut off before its first step" + (f": {said}" if said else "")
        return MemberStatus(MemberState.INTERRUPTED, None, why)
    if state is None:
        return MemberStatus(MemberState.WAITING)
    if state.state == "failed":
        said = state.reason or said or "failed"
    if state.state == "failed" or failed:
        return MemberStatus(MemberState.FAILED, state, said)
    why = state.reason or ("cut off" if state.state == "running" else "stopped")
    return MemberStatus(MemberState.INTERRUPTED, state, f"{_progress(state)}: {why}")


def statuses_of(folders: Sequence[Path]) -> list[MemberStatus]:
    """The status of the runs in `folders`; queries Slurm once if any of them was submitted."""
    tasks = [submitted_job(folder) for folder in folders]
    arrays = {task.partition("_")[0] for task in tasks if task is not None}
    waiting = waiting_tasks(arrays) if arrays else set()
    return [
        status_of(folder, task if task in waiting else None)
        for folder, task in zip(folders, tasks, strict=True)
    ]


def _progress(state: RunState) -> str:
    return f"step {state.step}, {state.percent:.0f} %"


def status_counts(statuses: Iterable[MemberStatus]) -> str:
    """The number of runs in each state: `3 done, 1 failed, 4 waiting`."""
    number: Mapping[MemberState, int] = Counter(status.stage for status in statuses)
    return ", ".join(
        f"{number[stage]} {stage}" for stage in reversed(MemberState) if number.get(stage)
    )
