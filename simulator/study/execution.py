"""Runs missing or failed runs of a sweep on this machine, or submits them as one Slurm array, whose
tasks restart and are requeued independently."""

import argparse
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from simulator.archive.run_state import CONFIG
from simulator.cluster.hostlist import ranges
from simulator.cluster.jobscript import JobScript, SlurmSettings
from simulator.cluster.queue import needs_sbatch, sbatch
from simulator.config import load_config
from simulator.errors import UserError, prefixed
from simulator.files import replace_file
from simulator.run.command import allocated, run_config
from simulator.run.folder import FolderContent, RunFolder
from simulator.run.lock import RunLock
from simulator.run.log import LastingConsole
from simulator.run.progress import program
from simulator.run.run_status import remember_job
from simulator.run.submit_run import site_settings, wishes
from simulator.stopwatch import Stopwatch
from simulator.study.runner import run_all
from simulator.study.runs import Group, SweepRun
from simulator.study.study_status import (
    MemberState,
    MemberStatus,
    begun,
    ended,
    outcome,
    status_counts,
)
from simulator.study.sweep import Sweep
from simulator.study.sweep_progress import next_commands
from simulator.words import counted, duration, short

MISSING = (MemberState.WAITING, MemberState.INTERRUPTED)
UNFINISHED = (*MISSING, MemberState.FAILED)


def run_sweep(
    sweep: Sweep,
    stages: Sequence[MemberState] = MISSING,
    indices: Sequence[int] | None = None,
    *,
    jobs: int = 1,
    batch: bool = False,
    same_groups: bool = False,
) -> int:
    """Runs the runs in one of `stages` (with `indices` only those with these numbers), `jobs`
    processes at a time; returns the exit code. With `batch`, similar runs are stepped together in
    one process; with `same_groups` in the groups of all runs of the sweep, so that continued runs
    keep their program, and end with equal bytes."""
    if jobs < 1:
        raise UserError(f"--jobs: must be at least 1, not {jobs}")
    statuses = sweep.statuses()
    runs = in_stages(sweep, statuses, stages)
    if indices is not None:
        wanted = {sweep.run(index).index for index in indices}
        runs = [run for run in runs if run.index in wanted]
    if not runs:
        _say(f"{sweep.name}: {status_counts(statuses)}; nothing to do")
        return _ended(sweep, statuses, 0)
    sweep.check(runs)
    began = time.monotonic()
    sweep.folder.mkdir(parents=True, exist_ok=True)
    with RunLock.acquire(sweep.folder, os.environ) as lock:
        if lock.takeover:
            _say(lock.takeover)
        for line in sweep.prepare():
            _say(line)
        common = f", all with {sweep.common}" if sweep.common else ""
        _say(
            f"{sweep.name}: {len(runs)} of {counted(len(sweep.runs), 'run')}, in {short(sweep.folder)}{common}"
        )
        work = [Group((run,)) for run in runs]
        if batch:
            work = _batches(sweep.runs if same_groups else runs, runs, jobs)
        code = run_all(sweep, work, at_once=jobs, environ=os.environ)
    statuses = sweep.statuses()
    _say(f"{status_counts(statuses)}; {duration(time.monotonic() - began)}")
    return _ended(sweep, statuses, code)


def _ended(sweep: Sweep, statuses: Sequence[MemberStatus], code: int) -> int:
    """Says what to type next; returns `code`, or 1 in the place of 0 if a run has failed."""
    _say("next:")
    for command in next_commands(sweep, statuses):
        _say(f"  {command}")
    return code or int(any(status.stage is MemberState.FAILED for status in statuses))


def in_stages(
    sweep: Sweep, statuses: Sequence[MemberStatus], stages: Sequence[MemberState]
) -> list[SweepRun]:
    """The runs whose status is one of `stages`."""
    return [run for run, status in zip(sweep.runs, statuses, strict=True) if status.stage in stages]


def _batches(runs: Sequence[SweepRun], missing: Sequence[SweepRun], jobs: int) -> list[Group]:
    """The groups of `runs` in which any run is missing."""
    from simulator.study.batch import groups

    hashes = {run.hash for run in missing}
    divided = [
        group for group in groups(runs, jobs) if any(run.hash in hashes for run in group.runs)
    ]
    for group in divided:
        if group.keys:
            numbers = ", ".join(str(run.index) for run in group.runs)
            _say(f"runs {numbers} are stepped together: {', '.join(group.keys)}")
    return divided


def _say(line: str) -> None:
    LastingConsole().print(line)


def run_one(folder: Path, arguments: Sequence[str]) -> int:
    """Runs the frozen configuration in `folder`, in every process of a Slurm step or in this
    process alone.

    `arguments` is the command line. Returns the run's exit code; records errors for the sweep and
    raises them."""
    by_hand = dict.fromkeys(("processes", "coordinator", "num_processes", "process_id"))
    args = argparse.Namespace(arguments=list(arguments), spent=Stopwatch(), **by_hand)
    with allocated(args) as allocation:
        config = load_config(folder / CONFIG, check_files=False)
        run = partial(run_config, config, args, allocation)
        if (allocation and allocation.process_id > 0) or RunFolder(
            folder
        ).content() is FolderContent.FINISHED:
            return run()
        return _noted(run, folder)


def _noted(run: Callable[[], int], folder: Path) -> int:
    record = begun(folder, os.getpid(), _log(folder.parent, os.environ), os.environ)
    code = 1
    said = ""
    try:
        code = run()
    except BaseException as error:
        code, said = outcome(error)
        raise
    finally:
        ended(folder, record, code, said)
    return code


def _log(sweep: Path, environ: Mapping[str, str]) -> Path:
    job = environ.get("SLURM_ARRAY_JOB_ID")
    task = environ.get("SLURM_ARRAY_TASK_ID")
    return sweep / "logs" / f"slurm-{job}_{task}.out" if job and task else Path(os.devnull)


@dataclass(frozen=True)
class Chunk:
    """One array: the runs of its tasks, and its script. A run's number is its task's number plus
    `offset`."""

    offset: int
    runs: tuple[SweepRun, ...]
    script: str

    def tasks(self) -> list[int]:
        return [run.index - self.offset for run in self.runs]


def plan_submission(sweep: Sweep, runs: Sequence[SweepRun], largest: int) -> list[Chunk]:
    """The arrays for `runs`, which `sweep submit` submits one after another. `largest` is one more
    than the largest possible task number. Each waits for the previous one: `slurm.throttle` limits
    them all."""
    by_chunk: dict[int, list[SweepRun]] = {}
    for run in runs:
        by_chunk.setdefault(run.index // largest * largest, []).append(run)
    chunks = sorted(by_chunk.items())
    return [
        Chunk(offset, tuple(members), _script(sweep, offset, members)) for offset, members in chunks
    ]


def _script(sweep: Sweep, offset: int, runs: Sequence[SweepRun]) -> str:
    settings = sweep.runs[0].config.slurm.model_dump(exclude_none=True)
    settings |= sweep.settings.slurm.model_dump(exclude_none=True, exclude={"throttle"})
    throttle = sweep.settings.slurm.throttle
    with prefixed("slurm"):
        resources, prologue, _ = wishes(SlurmSettings(**settings), site_settings())
    index = f"$((SLURM_ARRAY_TASK_ID + {offset}))" if offset else '"$SLURM_ARRAY_TASK_ID"'
    folder = shlex.quote(str(sweep.folder))
    tasks = ranges([run.index - offset for run in runs])
    setup = [
        "# plan.json tells the run of this task",
        f"set -- {folder} --index {index}",
        'run=$("${simulator[@]}" status "$1" --folder-of "$3") || exit',
    ]
    about = [
        f"{sweep.name}: {counted(len(runs), 'run')} of a sweep, one in each task of this array.",
        "Written by `simulator sweep submit`; a task that starts again continues its run.",
    ]
    return JobScript(
        sweep.name,
        sweep.folder,
        [*program(), "sweep"],
        resources,
        array=f"{tasks}%{throttle}" if throttle else tasks,
        setup=setup,
        site=prologue,
        about=about,
    ).text()


def submit_sweep(sweep: Sweep, chunks: Sequence[Chunk]) -> list[str]:
    """Freezes the runs, writes the scripts and submits them; returns the ids of the arrays. Raises
    RunFailure with sbatch's message if sbatch refuses a script."""
    needs_sbatch()
    sweep.folder.mkdir(parents=True, exist_ok=True)
    jobs: list[str] = []
    with RunLock.acquire(sweep.folder, os.environ):
        sweep.prepare()
        (sweep.folder / "logs").mkdir(exist_ok=True)
        for number, chunk in enumerate(chunks):
            script = sweep.folder / (f"sweep_{number}.sbatch" if number else "sweep.sbatch")
            replace_file(script, chunk.script)
            after = [f"--dependency=afterany:{jobs[-1]}"] if jobs else []
            jobs.append(sbatch(script, *after))
            for run, task in zip(chunk.runs, chunk.tasks(), strict=True):
                remember_job(run.folder, f"{jobs[-1]}_{task}")
    return jobs
