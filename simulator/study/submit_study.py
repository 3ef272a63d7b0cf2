"""Submits the missing runs of a sweep as one Slurm array, whose tasks restart and are requeued independently."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from simulator.cluster.hostlist import ranges
from simulator.cluster.jobscript import SlurmSettings, render
from simulator.cluster.queue import needs_sbatch, sbatch
from simulator.files import replace_file
from simulator.run.lock import RunLock
from simulator.run.progress import program
from simulator.run.run_status import remember_job
from simulator.run.submit_run import site_settings, wishes
from simulator.study.study_status import MemberState, MemberStatus
from simulator.study.sweep import Sweep, SweepRun


@dataclass(frozen=True)
class Chunk:
    """One array: the runs of its tasks, and its script. A run's number is its task's number plus `offset`."""

    offset: int
    runs: tuple[SweepRun, ...]
    script: str

    def tasks(self) -> list[int]:
        return [run.index - self.offset for run in self.runs]


def plan_submission(sweep: Sweep, runs: Sequence[SweepRun], largest: int) -> list[Chunk]:
    """The arrays for `runs`, which `sweep submit` submits one after another. `largest` is one more than the largest
    possible task number. `slurm.throttle` limits all arrays together, because an array waits for the end of the
    previous one."""
    by_chunk: dict[int, list[SweepRun]] = {}
    for run in runs:
        by_chunk.setdefault(run.index // largest * largest, []).append(run)
    chunks = sorted(by_chunk.items())
    return [Chunk(offset, tuple(members), _script(sweep, offset, members)) for offset, members in chunks]


def _script(sweep: Sweep, offset: int, runs: Sequence[SweepRun]) -> str:
    settings = sweep.runs[0].config.slurm.model_dump(exclude_none=True)
    settings |= sweep.settings.slurm.model_dump(exclude_none=True, exclude={"throttle"})
    throttle = sweep.settings.slurm.throttle
    resources, prologue = wishes(SlurmSettings(**settings), site_settings())
    index = f"$((SLURM_ARRAY_TASK_ID + {offset}))" if offset else '"$SLURM_ARRAY_TASK_ID"'
    folder = shlex.quote(str(sweep.folder))
    return render(
        sweep.name,
        sweep.folder,
        [*program(), "sweep"],
        resources,
        array=ranges([run.index - offset for run in runs]) + (f"%{throttle}" if throttle else ""),
        setup=[
            "# plan.json tells the run of this task",
            f"set -- {folder} --index {index}",
            'run=$("${simulator[@]}" status "$1" --folder-of "$3") || exit',
        ],
        site=prologue,
        about=[
            f"{sweep.name}: {len(runs)} runs of a sweep, one in each task of this array.",
            "Written by `simulator sweep submit`; a task that starts again continues its run.",
        ],
    )


def submit(sweep: Sweep, chunks: Sequence[Chunk]) -> list[str]:
    """Freezes the runs, writes the scripts and submits them; returns the ids of the arrays. Raises RunFailure with
    sbatch's message if sbatch refuses a script."""
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


def to_submit(sweep: Sweep, statuses: Sequence[MemberStatus], *, failed: bool = False) -> list[SweepRun]:
    """The waiting and the interrupted runs; with `failed` also the failed runs."""
    wanted = {MemberState.WAITING, MemberState.INTERRUPTED} | ({MemberState.FAILED} if failed else set())
    return [run for run, status in zip(sweep.runs, statuses, strict=True) if status.stage in wanted]
