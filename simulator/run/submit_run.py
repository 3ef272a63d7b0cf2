"""Submits a configuration as a job to Slurm's queue, from a login node."""

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from simulator.archive.run_state import CONFIG
from simulator.cluster.jobscript import JobScript, SlurmSettings
from simulator.cluster.queue import NodeShape, Partition, needs_sbatch, partitions, sbatch
from simulator.config import RunConfig, diff_configs, dump_config, load_config, read_settings
from simulator.config.blocks import REMOVES
from simulator.errors import UserError, did_you_mean
from simulator.files import replace_file
from simulator.run.folder import Action, FolderContent, RunFolder
from simulator.run.progress import program
from simulator.run.refusals import check_linear_growth, may_run
from simulator.run.run_status import SCRIPT, look_at, remember_job
from simulator.words import counted, duration

CORES_PER_GPU = 4
_TASKS = r"(^|\s)(-n|-c|-O|--ntasks|--cpus-per-|--gpus|--gres|--overcommit)"
"""Flags of sbatch that say how many tasks, cores or GPUs a job takes."""
_ELSEWHERE = r"(^|\s)(-p|-M|--partition|--cluster)"
"""Flags of sbatch that choose a partition or another cluster."""


@dataclass(frozen=True)
class PreparedJob:
    """A job, ready for `submit`. `script` is None if the run needs no job; `lines` say why."""

    folder: Path
    script: str | None
    lines: tuple[str, ...] = ()
    share: str = ""
    """The part of its nodes that the job uses; empty if Slurm does not know the nodes."""
    fresh: bool = True
    """Whether the folder holds no run yet, so that `submit` writes the configuration beside the
    script."""


def site_settings() -> SlurmSettings:
    """The user's slurm.yaml, which has the defaults of every block `slurm`; empty if the file does
    not exist. Raises UserError, with the line, for mistakes in the file."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    path = Path(base) / "simulator" / "slurm.yaml"
    return read_settings(path, SlurmSettings)[0] if path.exists() else SlurmSettings()


def prepare_job(config: RunConfig, site: SlurmSettings) -> PreparedJob:
    """The job script of a run. Raises UserError if `run` would refuse the configuration or the
    folder, or if a job or process is already computing the run."""
    folder = Path(config.output.directory)
    decision = may_run(config)
    if decision.action is Action.FINISHED:
        return PreparedJob(folder, None, decision.lines)
    check_linear_growth(config, folder / "inputs")
    status = look_at(folder, datetime.now().astimezone())
    if status.job_lives:
        assert status.job_state is not None
        raise UserError(
            f"{folder}: job {status.job} is {status.job_state.lower()} for this run; wait, or end it with: "
            f"scancel {status.job}"
        )
    if status.writing:
        raise UserError(
            f"{folder}: a process is writing this run; wait, or end it with: touch {folder / 'stop'}"
        )
    content = RunFolder(folder).content()
    fresh = content in (FolderContent.ABSENT, FolderContent.EMPTY, FolderContent.PREPARED)
    with config.blaming("slurm"):
        resources, prologue, node = wishes(config.slurm, site)
    shape = " x ".join(map(str, config.grid.shape))
    nodes = resources.nodes or 1
    again = "submit it again with sbatch to continue the run"
    where = f"on {counted(nodes, 'node')}"
    why = f"; {again}" if fresh else " to continue the run that is in this folder"
    about = [
        f"{config.name}: {config.model.kind}, {shape}, to t = {config.time.stop:g}, {where}.",
        f"Written by `simulator submit`{why}.",
    ]
    arguments = ["$run/config.yaml", *([] if fresh else _changes(folder, config))]
    script = JobScript(
        config.name, folder, program(), resources, arguments=arguments, site=prologue, about=about
    ).text()
    known = node is not None and not node.gpus and not re.search(_TASKS, resources.sbatch or "")
    share = used_cores(resources, node) if node and known else ""
    return PreparedJob(folder, script, () if fresh else decision.lines, share, fresh)


def submit_job(config: RunConfig, job: PreparedJob) -> str:
    """Writes the script, and a new run's configuration, and submits the script. Returns the job's
    id.

    Raises RunFailure with sbatch's message if sbatch refuses the script."""
    needs_sbatch()
    assert job.script is not None
    RunFolder(job.folder).create()
    (job.folder / "logs").mkdir(exist_ok=True)
    if job.fresh:
        replace_file(job.folder / CONFIG, dump_config(config))
    replace_file(job.folder / SCRIPT, job.script)
    number = sbatch(job.folder / SCRIPT)
    remember_job(job.folder, number)
    return number


def wishes(
    settings: SlurmSettings, site: SlurmSettings
) -> tuple[SlurmSettings, str, NodeShape | None]:
    """The resources of a job, the shell lines of its prologue, and the smallest node of its
    partition, if Slurm knows it. `settings`, from configuration and command line, overrides the
    settings of the site; each GPU gets one task and four cores by default. Without GPUs, a number
    of nodes alone means whole nodes: a task for each socket, with all its cores. Raises UserError
    `KEY: MESSAGE` for resources that the cluster does not have."""
    merged = site.model_dump(exclude_none=True) | settings.model_dump(exclude_none=True)
    prologue = merged.pop("prologue", "")
    merged.pop("device", None)
    partition = _partition(SlurmSettings(**merged))
    node = None if partition is None else partition.node
    most = math.inf if partition is None else partition.most_cores
    if gpus := merged.get("gpus_per_node"):
        tasks = merged.setdefault("tasks_per_node", gpus)
        if not re.search(r"(^|\s)(-c|--cpus-per-|--exclusive)", merged.get("sbatch", "")):
            # Slurm's default is one core for a process, which compiles, writes files and drives the
            # network too
            merged.setdefault("cpus_per_task", CORES_PER_GPU * max(1, gpus // tasks))
    elif "nodes" in merged and not _divides_nodes(merged) and node is not None and not node.gpus:
        sockets = max(1, min(node.sockets, node.cores))
        merged |= {"tasks_per_node": sockets, "cpus_per_task": node.cores // sockets}
    resources = SlurmSettings(**merged)
    tasks, each = resources.tasks_per_node or 1, resources.cpus_per_task or 1
    if tasks * each > most and not re.search(_TASKS, resources.sbatch or ""):
        raise UserError(
            f"cpus_per_task: {each} cores x tasks_per_node {tasks} = {tasks * each} cores of a node, "
            f"which has {most}; ask for fewer"
        )
    return resources, prologue, node


def _partition(resources: SlurmSettings) -> Partition | None:
    """The partition of a job, or of several the one with the smallest node, and the most cores of a
    node of any; None if Slurm does not know it. Raises UserError for resources that no partition of the job has."""
    if re.search(_ELSEWHERE, resources.sbatch or "") or not (known := partitions()):
        return None
    names = (resources.partition or "").split(",") if resources.partition else []
    if unknown := [name for name in names if name not in known]:
        meant = did_you_mean(unknown[0], known)
        raise UserError(
            f"partition: this cluster has no {unknown[0]!r}{meant} known: {', '.join(known)}"
        )
    names = names or [name for name, part in known.items() if part.is_default]
    chosen = [known[name] for name in names]
    if not chosen:
        return None
    where = f"partition {' or '.join(names)}"
    if (resources.nodes or 1) > (most := max(part.nodes for part in chosen)):
        raise UserError(
            f"nodes: {resources.nodes} is too many: {where} has {counted(most, 'node')}"
        )
    limits = [part.limit for part in chosen if part.limit is not None]
    bounded = len(limits) == len(chosen) and resources.qos is None  # a QOS may allow more
    if bounded and (resources.limit or 0) > max(limits):
        raise UserError(f"time: {where} has a time limit of {duration(max(limits))}; ask for less")
    smallest = min(chosen, key=lambda part: part.node)
    return smallest._replace(most_cores=max(part.most_cores for part in chosen))


def _divides_nodes(resources: Mapping[str, Any]) -> bool:
    """Whether the resources say how many tasks or cores of a node the job takes."""
    if re.search(_TASKS, resources.get("sbatch", "")):
        return True
    return not resources.keys().isdisjoint(("tasks_per_node", "cpus_per_task"))


def used_cores(resources: SlurmSettings, node: NodeShape) -> str:
    """The share of its nodes' cores that a job uses, in words."""
    nodes = resources.nodes or 1
    each = resources.cpus_per_task or 1
    tasks = nodes * (resources.tasks_per_node or 1)
    used = f"{tasks * each} of {counted(nodes * node.cores, 'core')} on {counted(nodes, 'node')}"
    processes = f"{counted(tasks, 'process')} with {counted(each, 'core')}"
    return f"the job uses {used} ({processes}{' each' if tasks > 1 else ''})"


def _changes(folder: Path, config: RunConfig) -> list[str]:
    """The keys in which `config` differs from the configuration in the folder, as overrides."""
    different = {
        key: new
        for key, _, new, _ in diff_configs(load_config(folder / CONFIG, check_files=False), config)
        if key != "output.directory" and not key.startswith("slurm.")
    }
    for key, others in REMOVES.items():
        if different.get(f"time.{key}") is not None:  # setting the key removes the others
            gone = [f"time.{other}" for other in others]
            different = {k: v for k, v in different.items() if v is not None or k not in gone}
    return [f"{key}={json.dumps(value)}" for key, value in different.items()]
