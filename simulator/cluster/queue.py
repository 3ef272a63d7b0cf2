"""Queries Slurm's queue and submits jobs; the only module that calls Slurm's commands.

If Slurm is not installed or does not answer, a query returns "not known"."""

import contextlib
import math
import os
import re
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from simulator.errors import RunFailure, UserError

ENDED = frozenset(
    [
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    ]
)
"""States of jobs that have ended and will not be requeued."""
WORKING = frozenset(
    [
        "COMPLETING",
        "CONFIGURING",
        "RESIZING",
        "RUNNING",
        "SIGNALING",
        "STAGE_OUT",
        "STOPPED",
        "SUSPENDED",
    ]
)
"""States of jobs whose processes may be alive."""
WAITING = frozenset(["PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD"])
"""States of jobs that will start, or start again."""
# Tasks whose program may not have started.
_BEFORE = ("PENDING", "REQUEUED", "CONFIGURING", "RUNNING")
_PATIENCE = 10.0  # Timeout of a query in seconds.
_MAX_ARRAY_SIZE = 1001  # Slurm's default.


def _ask(*command: str, timeout: float = _PATIENCE) -> subprocess.CompletedProcess[str] | None:
    """The answer of one of Slurm's commands; None if the command is not installed or does not
    answer."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    return None


def _states(job: str) -> subprocess.CompletedProcess[str] | None:
    return _ask("squeue", "--noheader", f"--job={job}", "--states=all", "--format=%T")


def job_state(job: str) -> str | None:
    """The state of a job (PENDING, RUNNING, ...); None if unknown, as some minutes after its
    end."""
    answer = _states(job)
    return None if answer is None else next(iter(answer.stdout.split()), None)


def jobs_of(script: Path) -> dict[str, str]:
    """The user's jobs in the queue that execute `script`, with their states; a job stays in the
    queue for some minutes after its end."""
    answer = _ask("squeue", "--noheader", "--me", "--states=all", "--format=%A|%T|%o")
    rows = [] if answer is None else [line.split("|", 2) for line in answer.stdout.splitlines()]
    path = os.path.realpath(script)
    return {
        row[0]: row[1] for row in rows if len(row) == 3 and os.path.realpath(row[2].strip()) == path
    }


def job_is_gone(job: str) -> bool:
    """Whether the job has ended, is waiting, or does not exist; False if Slurm does not answer."""
    answer = _states(job)
    if answer is None:
        return False
    if answer.returncode != 0:
        return "invalid job id" in answer.stderr.lower()
    return not WORKING & set(answer.stdout.split())


def waiting_tasks(arrays: Collection[str]) -> set[str]:
    """The tasks of these job arrays that wait in the queue or have been started, as ARRAY_TASK."""
    jobs = ",".join(sorted(arrays))
    answer = _ask("squeue", "--noheader", "--array", f"--jobs={jobs}", "--format=%i %T", timeout=30)
    tasks = [] if answer is None else [line.split() for line in answer.stdout.splitlines()]
    return {words[0] for words in tasks if len(words) == 2 and words[1] in _BEFORE}


def slurm_seconds(text: str) -> float | None:
    """The seconds in a time in Slurm's form M, M:S, H:M:S, D-H, D-H:M or D-H:M:S; None for other
    texts, such as UNLIMITED."""
    days_and_hours = r"[0-9]{1,15}-(1?[0-9]|0[0-9]|2[0-3])"
    if not re.fullmatch(rf"({days_and_hours}|[0-9]{{1,15}})(:[0-5]?[0-9]){{0,2}}", text):
        return None
    days, _, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    scale = [3600, 60, 1] if days or len(parts) == 3 else [60, 1]
    return 86400.0 * int(days or 0) + sum(map(math.prod, zip(parts, scale, strict=False)))


def largest_array() -> int:
    """One more than the largest task number of an array on this cluster."""
    answer = _ask("scontrol", "show", "config", timeout=30)
    stated = answer and re.search(r"^MaxArraySize\s*=\s*(\d+)", answer.stdout, re.MULTILINE)
    return max(1, int(stated[1])) if stated else _MAX_ARRAY_SIZE


class NodeShape(NamedTuple):
    """The smallest node of a partition."""

    cores: int
    """CPUs that Slurm gives to tasks."""
    sockets: int
    gpus: bool


class Partition(NamedTuple):
    is_default: bool
    nodes: int
    limit: float | None
    """The longest time limit of a job in seconds; None if there is no bound."""
    node: NodeShape
    most_cores: float
    """Cores of the largest node; infinite if Slurm does not say."""


def partitions() -> dict[str, Partition]:
    """The partitions of this cluster by name; empty if Slurm does not know."""
    answer = _ask("sinfo", "--all", "--noheader", "--format=%P|%D|%l|%c|%X|%G")
    known: dict[str, Partition] = {}
    # A partition has a line for each shape of its nodes; `*` marks the default partition, `+` the
    # least number of unequal nodes.
    for line in [] if answer is None else answer.stdout.splitlines():
        name, *numbers, gpus = line.split("|")
        count, limit, cores, sockets = numbers if len(numbers) == 4 else [""] * 4
        if not re.fullmatch(r"\d+ \d+\+? \d+\+?", f"{count} {cores} {sockets}"):
            continue
        node = NodeShape(int(cores.rstrip("+")), int(sockets.rstrip("+")), "gpu" in gpus)
        most = math.inf if cores.endswith("+") else node.cores
        part = Partition(name.endswith("*"), int(count), slurm_seconds(limit), node, most)
        if (other := known.get(name.rstrip("*"))) is not None:
            part = part._replace(
                nodes=part.nodes + other.nodes,
                node=min(node, other.node),
                most_cores=max(most, other.most_cores),
            )
        known[name.rstrip("*")] = part
    return known


def needs_sbatch() -> None:
    """Raises UserError if sbatch is not installed."""
    if shutil.which("sbatch") is None:
        raise UserError(
            "sbatch is not installed here: submit on a login node, or print the script with --dry-run"
        )


def sbatch(script: Path, *options: str) -> str:
    """Submits the script; returns the job's id. Raises RunFailure with sbatch's message if sbatch
    refuses."""
    # The variables of a surrounding job would take precedence over the script.
    environ = {
        name: value for name, value in os.environ.items() if not re.match(r"S(LURM|BATCH)_", name)
    }
    environ |= {name: os.environ[name] for name in ("SLURM_CONF",) if name in os.environ}
    command = ["sbatch", "--parsable", *options, str(script)]
    answer = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        reason = " ".join(answer.stderr.split()) or f"exit code {answer.returncode}"
        raise RunFailure(f"{reason} (the script is {script})")
    return answer.stdout.strip().partition(";")[0]
