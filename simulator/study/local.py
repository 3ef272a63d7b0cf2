"""Runs missing or failed runs of a sweep on this machine."""

import os
import time
from collections.abc import Sequence

from simulator.errors import UserError
from simulator.run.lock import RunLock
from simulator.run.log import LastingConsole
from simulator.simulation.placement import check_members
from simulator.study.report import next_commands
from simulator.study.runner import SweepProcess, run_all
from simulator.study.study_status import MemberState, MemberStatus, counted, statuses_of
from simulator.study.sweep import Sweep, SweepRun
from simulator.words import duration, short

MISSING = (MemberState.WAITING, MemberState.INTERRUPTED)


def run_missing(
    sweep: Sweep, *, jobs: int = 1, fail_fast: bool = False, batch: bool = False, members: int | None = None
) -> int:
    """Runs the waiting and the interrupted runs; returns the exit code. With `batch`, similar runs are stepped
    together, `members` of them side by side (see `SweepProcess`)."""
    _check_jobs(jobs, batch, members)
    statuses = _statuses(sweep)
    missing = [run for run in sweep.runs if statuses[run.hash].stage in MISSING]
    return _run(sweep, missing, statuses, jobs, fail_fast, batch, members)


def run_again(
    sweep: Sweep,
    *,
    failed: bool = False,
    interrupted: bool = False,
    indices: Sequence[int] | None = None,
    jobs: int = 1,
    fail_fast: bool = False,
    batch: bool = False,
    members: int | None = None,
) -> int:
    """Runs again the failed runs, the interrupted runs (both by default), or the unfinished runs among those with the
    numbers `indices`. Returns the exit code."""
    _check_jobs(jobs, batch, members)
    if indices is not None and (failed or interrupted):
        raise UserError("simulator sweep retry: --index names runs; leave --failed and --interrupted out")
    statuses = _statuses(sweep)
    if indices is not None:
        chosen = [sweep.run(index) for index in dict.fromkeys(indices)]
        chosen = [run for run in chosen if statuses[run.hash].stage in (*MISSING, MemberState.FAILED)]
    else:
        both = failed == interrupted
        stages = (
            {MemberState.FAILED} if failed and not both else {MemberState.INTERRUPTED} if not both else None
        )
        stages = stages or {MemberState.FAILED, MemberState.INTERRUPTED}
        chosen = [run for run in sweep.runs if statuses[run.hash].stage in stages]
    return _run(sweep, chosen, statuses, jobs, fail_fast, batch, members)


def _run(
    sweep: Sweep,
    runs: Sequence[SweepRun],
    before: dict[str, MemberStatus],
    jobs: int,
    fail_fast: bool,
    batch: bool,
    members: int | None,
) -> int:
    if not runs:
        _say(f"{sweep.name}: {counted(before.values())}; nothing to do")
        _say_next(sweep)
        return 1 if any(status.stage is MemberState.FAILED for status in before.values()) else 0
    sweep.check(runs)
    if members is not None:
        for run in runs:
            check_members(run.config, members)
    began = time.monotonic()
    sweep.folder.mkdir(parents=True, exist_ok=True)
    with RunLock.acquire(sweep.folder, os.environ) as lock:
        if lock.takeover:
            _say(lock.takeover)
        for line in sweep.prepare():
            _say(line)
        common = f", all with {sweep.common}" if sweep.common else ""
        _say(f"{sweep.name}: {len(runs)} of {len(sweep.runs)} runs, in {short(sweep.folder)}{common}")
        work = [SweepProcess((run,)) for run in runs] if not batch else _batches(runs, jobs, members)
        code = run_all(sweep, work, at_once=jobs, fail_fast=fail_fast, environ=os.environ, say=_say)
    statuses = _statuses(sweep)
    _say(f"{counted(statuses.values())}; {duration(time.monotonic() - began)}")
    _say_next(sweep)
    if code == 0 and any(status.stage is MemberState.FAILED for status in statuses.values()):
        return 1
    return code


def _batches(runs: Sequence[SweepRun], jobs: int, members: int | None) -> list[SweepProcess]:
    from simulator.study.grouping import groups

    divided = groups(runs, jobs)
    for line in dict.fromkeys(line for group in divided for line in group.obstacles):
        _say(line)
    work = [SweepProcess(group.runs, group.keys, members) for group in divided]
    for job in work:
        if job.keys:
            beside = f", {min(members, len(job.runs))} side by side" if members else ""
            _say(
                f"runs {', '.join(str(run.index) for run in job.runs)} are stepped together{beside}: "
                f"{', '.join(job.keys)}"
            )
    return work


def _say_next(sweep: Sweep) -> None:
    _say("next:")
    for command in next_commands(sweep, statuses_of([run.folder for run in sweep.runs])):
        _say(f"  {command}")


def _statuses(sweep: Sweep) -> dict[str, MemberStatus]:
    statuses = statuses_of([run.folder for run in sweep.runs])
    return {run.hash: status for run, status in zip(sweep.runs, statuses, strict=True)}


def _check_jobs(jobs: int, batch: bool, members: int | None) -> None:
    if jobs < 1:
        raise UserError(f"--jobs: must be at least 1, not {jobs}")
    if members is not None and members < 1:
        raise UserError(f"--members: must be at least 1, not {members}")
    if members is not None and not batch:
        raise UserError(
            "--members: is the number of runs that --batch auto steps side by side; add --batch auto"
        )


def _say(line: str) -> None:
    LastingConsole().print(line)
