"""The facts about a process that `simulator doctor` shows.

Nothing here starts JAX.
"""

import importlib.metadata
import os
import platform
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simulator.cluster.allocation import Allocation
from simulator.cluster.hardware import usable_cores
from simulator.cluster.hostlist import ranges
from simulator.cluster.variables import whole


@dataclass(frozen=True)
class Facts:
    """One process: its rank and host, its cores, its GPUs.

    cpus: the CPU numbers of its affinity mask. gpus_seen and gpus_taken: UUIDs if nvidia-smi lists them, else names
    from CUDA_VISIBLE_DEVICES. gpus_on_node: number of GPUs that Slurm gave the step on this node.
    """

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
        gpus = f"GPUs {_names(self.gpus_taken)} of {_names(self.gpus_seen)}" if self.gpus_seen else "no GPU"
        node = f" ({self.node})" if self.node != self.host else ""
        return (
            f"process {self.process_id} of {self.num_processes}: host {self.host}{node}, "
            f"local rank {self.local_rank} of {self.local_processes}, "
            f"{self.cores} core{'s' if self.cores > 1 else ''} of CPUs {ranges(self.cpus) or 'unknown'}, "
            f"{gpus}, coordinator {self.coordinator}"
        )


def collect(allocation: Allocation, environ: Mapping[str, str], folder: str | None = None) -> Facts:
    """The facts about this process. folder: the one in which the coordinator will be published, if any."""
    listed = _listed_gpus()
    visible = allocation.gpus.visible
    seen = visible if visible is not None else tuple(str(i) for i in range(len(listed)))
    taken = () if allocation.gpus.problem else tuple(seen[i] for i in allocation.gpus.take(len(seen)))
    on_node = environ.get("SLURM_GPUS_ON_NODE", "")
    host = socket.gethostname()
    return Facts(
        process_id=allocation.process_id,
        num_processes=allocation.num_processes,
        host=host,
        node=allocation.host or host,
        local_rank=allocation.local_rank,
        local_processes=allocation.local_processes,
        cpus=tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else (),
        cores=min(usable_cores(), allocation.cores or usable_cores()),
        gpus_seen=tuple(_identity(name, listed) for name in seen),
        gpus_taken=tuple(_identity(name, listed) for name in taken),
        gpus_on_node=whole(on_node),
        coordinator=_coordinator(allocation, folder),
        versions=versions(),
    )


def versions() -> tuple[str, ...]:
    """The versions that must be the same in all processes."""
    lines = [f"python {platform.python_version()}"]
    for name in ("simulator", "jax", "jaxlib", "jaxdecomp", "numpy"):
        try:
            lines.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            lines.append(f"{name} not installed")
    return tuple(lines)


def _coordinator(allocation: Allocation, folder: str | None) -> str:
    if allocation.num_processes == 1:
        return "none"
    if allocation.coordinator is not None:
        return allocation.coordinator
    if folder is not None:
        return f"{allocation.coordinator_host}, port published in {folder}"
    return f"{allocation.coordinator_host}:{allocation.port}"


def _listed_gpus() -> list[str]:
    """UUIDs of the GPUs that the driver shows this process, in the driver's order."""
    command = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.startswith("GPU-")]


def _identity(name: str, listed: Sequence[str]) -> str:
    """A GPU's UUID, because `0` may be different GPUs in two tasks."""
    return listed[int(name)] if name.isdigit() and int(name) < len(listed) else name


def _names(gpus: Sequence[str]) -> str:
    return ",".join(gpu if gpu.isdigit() else gpu[:12] for gpu in gpus) or "none"
