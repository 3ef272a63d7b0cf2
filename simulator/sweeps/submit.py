"""The missing runs of a sweep as one Slurm array, whose every task restarts and requeues on its own."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from simulator.cluster.jobscript import render
from simulator.config.execution import SlurmSettings
from simulator.files import replace_file
from simulator.run.lock import RunLock
from simulator.run.status import remember_job
from simulator.run.submit import needs_sbatch, program, sbatch, site_settings, wishes
from simulator.sweeps.status import Stage, Status
from simulator.sweeps.sweep import Sweep, SweepRun

_MAX_ARRAY_SIZE = 1001
"""Slurm's own default."""


@dataclass(frozen=True)
class Chunk:
    """One array: the runs of its tasks. A run's number is `offset` and the task's."""

    offset: int
    runs: tuple[SweepRun, ...]

    def tasks(self) -> list[int]:
        return [run.index - self.offset for run in self.runs]


@dataclass(frozen=True)
class Submission:
    """What `sweep submit` gives to sbatch: chunks, one after another, and their scripts."""

    chunks: tuple[Chunk, ...]
    scripts: tuple[str, ...]


def plan_submission(sweep: Sweep, runs: Sequence[SweepRun], largest: int) -> Submission:
    """The arrays for `runs`, where `largest` is one more than the largest number that a task may have.

    `slurm.throttle` holds over all of them: a chunk waits until the one before it has ended.
    """
    by_chunk: dict[int, list[SweepRun]] = {}
    for run in runs:
        by_chunk.setdefault(run.index // largest * largest, []).append(run)
    chunks = tuple(Chunk(offset, tuple(found)) for offset, found in sorted(by_chunk.items()))
    return Submission(chunks, tuple(_script(sweep, chunk) for chunk in chunks))


def _script(sweep: Sweep, chunk: Chunk) -> str:
    own = sweep.runs[0].config.slurm.model_dump(exclude_none=True)
    own |= sweep.settings.slurm.model_dump(exclude_none=True, exclude={"throttle"})
    throttle = sweep.settings.slurm.throttle
    resources, prologue = wishes(SlurmSettings(**own), site_settings())
    index = f"$((SLURM_ARRAY_TASK_ID + {chunk.offset}))" if chunk.offset else '"$SLURM_ARRAY_TASK_ID"'
    folder = shlex.quote(str(sweep.folder))
    return render(
        sweep.name,
        sweep.folder,
        [*program(), "sweep"],
        resources,
        array=ranges(chunk.tasks()) + (f"%{throttle}" if throttle else ""),
        setup=[
            "# a task's run is known by its number in plan.json",
            f"set -- {folder} --index {index}",
            'run=$("${simulator[@]}" status "$1" --folder-of "$3") || exit',
        ],
        site=prologue,
        about=[
            f"{sweep.name}: {len(chunk.runs)} runs of a sweep, one in each task of this array.",
            "Written by `simulator sweep submit`; a task that runs again continues where its run is.",
        ],
    )


def submit(sweep: Sweep, submission: Submission) -> list[str]:
    """Freezes the runs, writes the scripts and gives them to sbatch; returns the ids of the arrays.

    Raises RunFailure with sbatch's own words where it refuses.
    """
    needs_sbatch()
    sweep.folder.mkdir(parents=True, exist_ok=True)
    jobs: list[str] = []
    with RunLock.acquire(sweep.folder, os.environ):
        sweep.prepare()
        (sweep.folder / "logs").mkdir(exist_ok=True)
        for number, (chunk, text) in enumerate(zip(submission.chunks, submission.scripts, strict=True)):
            script = sweep.folder / (f"sweep_{number}.sbatch" if number else "sweep.sbatch")
            replace_file(script, text)
            after = [f"--dependency=afterany:{jobs[-1]}"] if jobs else []
            jobs.append(sbatch(script, *after))
            for run, task in zip(chunk.runs, chunk.tasks(), strict=True):
                remember_job(run.folder, f"{jobs[-1]}_{task}")
    return jobs


def largest_array() -> int:
    """One more than the largest number that Slurm gives to a task of an array here."""
    try:
        answer = subprocess.run(
            ["scontrol", "show", "config"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return _MAX_ARRAY_SIZE
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", answer.stdout, re.MULTILINE)
    return max(1, int(found[1])) if found else _MAX_ARRAY_SIZE


def ranges(numbers: Iterable[int]) -> str:
    """`0-3,7,9-10`"""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def to_submit(sweep: Sweep, statuses: Sequence[Status], *, failed: bool = False) -> list[SweepRun]:
    """The runs that are missing and in nobody's hands; with `failed` those that failed too."""
    wanted = {Stage.WAITING, Stage.INTERRUPTED} | ({Stage.FAILED} if failed else set())
    return [run for run, status in zip(sweep.runs, statuses, strict=True) if status.stage in wanted]
