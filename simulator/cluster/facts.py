"""What a process finds around itself, as `simulator doctor` and `simulator devices` show it.

Nothing here starts JAX.
"""

import importlib.metadata
import os
import platform
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simulator.cluster.allocation import Allocation, slurm_variables
from simulator.cluster.hardware import usable_cores


@dataclass(frozen=True)
class Facts:
    """One process: its place, its cores, its GPUs.

    cpus: the numbers of its affinity. gpus_seen and gpus_taken: by UUID where nvidia-smi tells, else by the
    names in CUDA_VISIBLE_DEVICES. gpus_on_node: what Slurm gave the step there.
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
            f"{self.cores} core{'s' if self.cores > 1 else ''} of CPUs {_ranges(self.cpus)}, "
            f"{gpus}, coordinator {self.coordinator}"
        )


def collect(allocation: Allocation, environ: Mapping[str, str], folder: str | None = None) -> Facts:
    """The facts of this process. folder: where the coordinator will be published, if anywhere."""
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
        gpus_on_node=int(on_node) if on_node.isdigit() else None,
        coordinator=_coordinator(allocation, folder),
        versions=versions(),
    )


def versions() -> tuple[str, ...]:
    """What has to be the same in all processes."""
    names = ("simulator", "jax", "jaxlib", "jaxdecomp", "numpy")
    found = [f"python {platform.python_version()}"]
    for name in names:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name} not installed")
    return tuple(found)


def describe(allocation: Allocation, environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """What was discovered, as (name, value) lines for `simulator devices`."""
    source = {
        "local": "nothing: one local process",
        "explicit": "flags or SIMULATOR_* variables",
        "slurm": f"the Slurm step {allocation.job}",
    }[allocation.source]
    lines = [
        ("found by", source),
        ("processes", f"{allocation.num_processes}, this one is {allocation.process_id}"),
        ("on this host", f"{allocation.local_processes}, this one is {allocation.local_rank}"),
        ("cores", str(collect(allocation, environ).cores)),
        ("coordinator", _coordinator(allocation, None)),
    ]
    if allocation.nodes:
        lines.insert(2, ("nodes", ", ".join(allocation.nodes)))
    if allocation.gpus.visible is not None:
        lines.append(("CUDA_VISIBLE_DEVICES", ",".join(allocation.gpus.visible) or "none"))
    lines += [("warning", warning) for warning in allocation.warnings]
    return lines + list(slurm_variables(environ).items())


def _coordinator(allocation: Allocation, folder: str | None) -> str:
    if allocation.num_processes == 1:
        return "none"
    if allocation.coordinator is not None:
        return allocation.coordinator
    if folder is not None:
        return f"{allocation.coordinator_host}, port published in {folder}"
    return f"{allocation.coordinator_host}:{allocation.port}"


def _listed_gpus() -> list[str]:
    """UUIDs of the GPUs that the driver lets this process see, in its order."""
    command = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.startswith("GPU-")]


def _identity(name: str, listed: Sequence[str]) -> str:
    """A GPU's UUID: two tasks may both call theirs `0`."""
    return listed[int(name)] if name.isdigit() and int(name) < len(listed) else name


def _names(gpus: Sequence[str]) -> str:
    return ",".join(gpu if gpu.isdigit() else gpu[:12] for gpu in gpus) or "none"


def _ranges(numbers: Sequence[int]) -> str:
    """`0-3,8` of 0, 1, 2, 3, 8."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts) or "unknown"
