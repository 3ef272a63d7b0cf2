"""Collects facts about each process, and finds known misconfigurations with their cures.

Findings are pure functions of facts, so that tests cover set-ups that no test machine has."""

import os
import platform
import socket
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simulator.cluster.allocation import Allocation
from simulator.cluster.hardware import SETUP, gpu_vendor, listed_gpus, plugin_problem, usable_cores
from simulator.cluster.hostlist import ranges
from simulator.cluster.variables import whole_number
from simulator.words import counted, version_of


@dataclass(frozen=True)
class Facts:
    """The rank, host, cores and GPUs of one process.

    cpus: the CPU numbers in the affinity mask. gpus_seen and gpus_taken: UUIDs if nvidia-smi lists
    them, else names from CUDA_VISIBLE_DEVICES. gpus_on_node: the number of GPUs that Slurm gave the
    step on this node."""

    process_id: int
    num_processes: int
    host: str
    node: str
    local_rank: int
    local_processes: int
    cpus: tuple[int, ...]
    cores: int
    gpus_seen: tuple[str, ...]
    gpus_taken: tuple[str, ...]
    gpus_on_node: int | None
    coordinator: str
    versions: tuple[str, ...]

    @property
    def line(self) -> str:
        """One line for the table of processes."""
        gpus = (
            f"GPUs {_names(self.gpus_taken)} of {_names(self.gpus_seen)}"
            if self.gpus_seen
            else "no GPU"
        )
        node = f" ({self.node})" if self.node != self.host else ""
        return (
            f"process {self.process_id} of {self.num_processes}: host {self.host}{node}, "
            f"local rank {self.local_rank} of {self.local_processes}, "
            f"{counted(self.cores, 'core')} of CPUs {ranges(self.cpus) or 'unknown'}, "
            f"{gpus}, coordinator {self.coordinator}"
        )


def process_facts(
    allocation: Allocation, environ: Mapping[str, str], folder: str | None = None
) -> Facts:
    """The facts about this process. folder: where process 0 will publish the coordinator, if in a
    folder."""
    listed = listed_gpus() or []
    visible = allocation.gpus.visible
    seen = visible if visible is not None else tuple(str(i) for i in range(len(listed)))
    taken = (
        () if allocation.gpus.problem else tuple(seen[i] for i in allocation.gpus.take(len(seen)))
    )
    host = socket.gethostname()
    port = allocation.port if folder is None else f"port published in {folder}"
    coordinator = (
        allocation.coordinator
        or f"{allocation.coordinator_host or 'unknown'}{':' if folder is None else ', '}{port}"
    )
    return Facts(
        process_id=allocation.process_id,
        num_processes=allocation.num_processes,
        host=host,
        node=allocation.host or host,
        local_rank=allocation.local_rank,
        local_processes=allocation.local_processes,
        cpus=tuple(sorted(os.sched_getaffinity(0))),
        cores=min(usable_cores(), allocation.cores or usable_cores()),
        gpus_seen=tuple(_identity(name, listed) for name in seen),
        gpus_taken=tuple(_identity(name, listed) for name in taken),
        gpus_on_node=whole_number(environ.get("SLURM_GPUS_ON_NODE")),
        coordinator=coordinator if allocation.num_processes > 1 else "none",
        versions=versions(),
    )


def versions() -> tuple[str, ...]:
    """The versions that must be the same in all processes."""
    packages = ("simulator", "jax", "jaxlib", "jaxdecomp", "numpy")
    return (
        f"python {platform.python_version()}",
        *(f"{name} {version_of(name)}" for name in packages),
    )


def _identity(name: str, listed: Sequence[str]) -> str:
    """The UUID of the GPU `name`, because the number 0 may stand for different GPUs in two
    tasks."""
    return listed[int(name)] if name.isdigit() and int(name) < len(listed) else name


def _names(gpus: Sequence[str]) -> str:
    return ",".join(gpu if gpu.isdigit() else gpu[:12] for gpu in gpus) or "none"


class Finding(NamedTuple):
    """A problem, and the flag or command that cures the problem."""

    problem: str
    cure: str

    def __str__(self) -> str:
        return f"{self.problem}: {self.cure}"


def own_findings(
    allocation: Allocation, facts: Facts, environ: Mapping[str, str], *, gpu_plugin: bool
) -> Iterator[Finding]:
    """Problems that one process detects without the others."""
    seen = len(facts.gpus_seen)
    vendor = gpu_vendor()
    cores = facts.cores
    yield from (Finding("discovery", warning) for warning in allocation.warnings)
    if allocation.gpus.problem:
        yield Finding("GPUs", allocation.gpus.problem)
    if seen and not gpu_plugin:
        cure = f"install the GPU version with {SETUP[vendor]}"
        yield Finding(
            f"the task has {counted(seen, 'GPU')}, but this JAX runs on the CPU only", cure
        )
    if seen and gpu_plugin and (problem := plugin_problem(vendor)):
        yield Finding("GPUs are given, but JAX cannot use them", problem)
    if seen and environ.get("JAX_PLATFORMS", "").split(",")[0] == "cpu":
        yield Finding("JAX_PLATFORMS=cpu hides the GPUs", "unset it")
    if facts.gpus_on_node is not None and seen > facts.gpus_on_node:
        problem = f"the task sees {counted(seen, 'GPU')}, but Slurm gave {facts.gpus_on_node} of this node"
        yield Finding(
            problem, "unset CUDA_VISIBLE_DEVICES in the job script, or bind with --gpus-per-task"
        )
    in_step = allocation.source == "slurm"
    wanted = environ.get("SLURM_CPUS_PER_TASK", "")
    if in_step and wanted.isdigit() and cores < int(wanted) // 2:
        cure = (
            "give srun its own --cpus-per-task=$SLURM_CPUS_PER_TASK (it does not inherit sbatch's)"
        )
        yield Finding(
            f"SLURM_CPUS_PER_TASK is {wanted}, but this task may use {counted(cores, 'core')}", cure
        )
    both = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
    if all(environ.get(name) for name in both):
        yield Finding(f"{' and '.join(both)} are both set", "unset the second, JAX refuses both")
    if in_step and facts.gpus_taken and cores == 1:
        problem = "a process with GPUs has one core, which also compiles, writes files and drives the network"
        yield Finding(problem, "ask for more with --cpus-per-task=4, of sbatch and of srun")
    try:
        socket.getaddrinfo(facts.host, None)
    except OSError:
        cure = "add it to /etc/hosts: CPU collectives look it up"
        yield Finding(f"host name {facts.host} has no address", cure)


def shared_findings(processes: Sequence[Facts]) -> Iterator[Finding]:
    """Problems that show only in a comparison of all processes."""
    others = {p.host: sorted(set(p.versions) - set(processes[0].versions)) for p in processes}
    for host, different in others.items():
        if different:
            problem = f"{host} has {', '.join(different)}, process 0 has {', '.join(processes[0].versions)}"
            yield Finding(problem, "start all processes from one environment on a shared folder")
    owners: dict[tuple[str, str], list[int]] = defaultdict(list)
    hosts: dict[str, list[Facts]] = defaultdict(list)
    for p in processes:
        hosts[p.host].append(p)
        # a number identifies a GPU only if the process sees all GPUs of the node: in a control
        # group every GPU is 0
        for gpu in p.gpus_taken:
            if not gpu.isdigit() or len(p.gpus_seen) == (p.gpus_on_node or len(p.gpus_seen)):
                owners[p.host, gpu].append(p.process_id)
    for (host, gpu), users in owners.items():
        if len(users) > 1:
            problem = f"processes {' and '.join(map(str, users))} use the same GPU {gpu} of {host}"
            yield Finding(problem, "start one task per GPU with --gpus-per-task=1")
    for host, group in hosts.items():
        available = group[0].gpus_on_node
        taken = sum(len(p.gpus_taken) for p in group)
        if available is not None and 0 < taken < available:
            cure = f"ask for --gpus-per-node={taken}, or start --ntasks-per-node={available}"
            yield Finding(f"{available - taken} of {available} GPUs of {host} are idle", cure)
        cpus = set().union(*(p.cpus for p in group))
        if cpus and len(cpus) < len(group):
            cure = "give each its own with srun --cpus-per-task=N --cpu-bind=cores, or start fewer"
            yield Finding(f"{len(group)} processes of {host} share {len(cpus)} CPUs", cure)
    counts = {len(p.gpus_taken) for p in processes}
    if len(counts) > 1:
        problem = f"processes take {min(counts)} to {max(counts)} GPUs, so each uses {min(counts)}"
        yield Finding(problem, "ask for the same on every node with --gpus-per-node")
