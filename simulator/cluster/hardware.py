"""The hardware of this host: usable cores, the processor's model, the GPUs, and the GPUs that a
process uses.

Slurm assigns GPUs in several ways. With `--gpus-per-task`, `--gpu-bind=single` and the like each
task sees only its own GPUs; with `--gpus-per-node` or `--gres` alone every task sees all GPUs of
its node and has to take its share. CUDA_VISIBLE_DEVICES looks the same in both cases (`0` may be
the node's only GPU or the task's), so the number of GPUs on the node and the binding decide."""

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import resource
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from simulator.cluster.variables import whole_number
from simulator.errors import RunFailure
from simulator.words import counted

_ROOT = Path("/")
Vendor = Literal["cuda", "rocm"]
PLUGINS: dict[Vendor, tuple[str, ...]] = {
    "cuda": ("jax_cuda12_plugin", "jax_cuda13_plugin"),
    "rocm": ("jax_rocm7_plugin", "jax_rocm10_plugin", "jax_rocm60_plugin"),
}
"""Modules of JAX's plugins."""
SETUP: dict[Vendor, str] = {
    "cuda": "./scripts/run --setup cuda12",
    "rocm": "./scripts/run --setup rocm",
}


_ADDRESSES = 256 << 20
_ADDRESSES_OF_A_CORE = 16 << 20
_ADDRESSES_OF_CODE = 300 << 20
"""Bytes of address space that JAX reserves before the first array, for the threads of each core, and
for its code: 310 and 280 MB were measured on two cores."""


def check_address_space() -> None:
    """Raises RunFailure if `ulimit -v` leaves too little room for JAX, which would fail while it is
    imported, abort this process with a C++ stack, or let threads wait for others for ever."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    left = limit - pages * resource.getpagesize()
    needed = _ADDRESSES + _ADDRESSES_OF_A_CORE * usable_cores()
    if "jax" not in sys.modules:
        needed += _ADDRESSES_OF_CODE
    if left < needed:
        raise RunFailure(
            f"out of memory: ulimit -v leaves {max(left, 0) >> 20} MB of address space, but JAX needs "
            f"{needed >> 20} MB before the first array; raise the limit"
        )


def physical_memory() -> int:
    """The memory of this machine in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def usable_cores(root: Path = _ROOT) -> int:
    """The number of physical cores that this process may use: the cores in its affinity mask, at
    most its quota.

    Containers set the quota in the control group (version 2) of the process."""
    cores = {_siblings(root, cpu) for cpu in os.sched_getaffinity(0)}
    return max(1, min(len(cores), _quota(root) or len(cores)))


def _siblings(root: Path, cpu: int) -> str:
    try:
        return (root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(cpu)


def _quota(root: Path) -> int | None:
    """Whole CPUs of the tightest quota from this process's control group up to the root."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
        group = next(line.removeprefix("0::") for line in lines if line.startswith("0::"))
    except (OSError, StopIteration):
        return None
    top = root / "sys/fs/cgroup"
    folder = top / group.strip("/")
    quotas = []
    while folder.is_relative_to(top):
        with contextlib.suppress(OSError, ValueError):  # "max 100000": no quota
            quota, period = (folder / "cpu.max").read_text().split()
            quotas.append(int(quota) / int(period))
        folder = folder.parent
    return max(1, int(min(quotas))) if quotas else None


def present_gpus(root: Path = _ROOT) -> int:
    """The number of NVIDIA's, else AMD's, GPUs that this process may use, found without starting
    CUDA or ROCm."""
    return _nvidia_gpus(root) or _amd_gpus(root)


def gpu_vendor(root: Path = _ROOT) -> Vendor:
    """JAX's name for the platform of this host's GPUs; `cuda` on a host without GPUs."""
    return "rocm" if not _nvidia_gpus(root) and _amd_gpus(root) else "cuda"


def _amd_gpus(root: Path) -> int:
    """The number of GPUs among the nodes of AMD's driver; its other nodes are processors."""
    gpus = 0
    for file in root.glob("sys/class/kfd/kfd/topology/nodes/*/gpu_id"):
        with contextlib.suppress(OSError):  # a GPU outside of the job's control group
            gpus += file.read_text().strip() not in ("", "0")
    return gpus


def listed_gpus() -> list[str] | None:
    """UUIDs of the GPUs that NVIDIA's driver shows this process, in the driver's order; None
    without nvidia-smi."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        listed = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30
        ).stdout
        return re.findall(r"^GPU .*\(UUID: ([^)]*)\)", listed, re.MULTILINE)
    return None


def _nvidia_gpus(root: Path) -> int:
    """The number of GPUs that nvidia-smi lists, else in /proc or /dev, which ignore the job's
    control group."""
    if (listed := listed_gpus()) is not None:
        return len(listed)
    counts = (
        len(list(root.glob(pattern)))
        for pattern in ("proc/driver/nvidia/gpus/*", "dev/nvidia[0-9]*")
    )
    return next((count for count in counts if count), 0)


def has_gpu_plugin(vendor: Vendor | None = None) -> bool:
    """Whether JAX's plugin for the GPUs of `vendor` (default: the vendor of this host's GPUs) is
    installed."""
    return any(map(importlib.util.find_spec, PLUGINS[vendor or gpu_vendor()]))


def plugin_problem(vendor: Vendor) -> str | None:
    """A line, with the cure, if the installed plugin for a vendor's GPUs does not match jaxlib,
    else None."""
    jaxlib = importlib.metadata.version("jaxlib")
    for name in (module.replace("_", "-") for module in PLUGINS[vendor]):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            plugin = importlib.metadata.version(name)
            # AMD's plugins count their own releases in a fourth number.
            if plugin.split(".")[:3] != jaxlib.split(".")[:3]:
                cure = f"pip install '{name}=={jaxlib}.*'"
                return f"{name} {plugin} is of another version than jaxlib {jaxlib} ({cure})"
    return None


def _cpuinfo() -> dict[str, str]:
    """The lines of /proc/cpuinfo about the first processor, by name; empty without that file."""
    lines: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            lines.setdefault(name.strip(), value.strip())
    return lines


def processor() -> str:
    """The processor's name."""
    return _cpuinfo().get("model name") or platform.processor()


def cpu_model() -> str:
    """The processor's model and instruction sets in one line; compiled programs depend on both."""
    lines = _cpuinfo()
    model = [lines[key] for key in ("model name", "CPU part", "flags", "Features") if key in lines]
    return " ".join([platform.machine(), *model])


VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""The variables that restrict a process to some of a node's GPUs; for AMD's GPUs Slurm sets the
second one."""


@dataclass(frozen=True)
class GpuShare:
    """The GPUs of a process according to the environment.

    visible: the names of the GPUs that CUDA shows; None if no variable restricts the process. In
    that case `expected` is the number of GPUs that Slurm gave the job on this node, if known. rank,
    sharers: this process is number `rank` of `sharers` processes that divide the visible GPUs.
    problem: why the process has no share, and the flag that cures the problem."""

    visible: tuple[str, ...] | None = None
    rank: int = 0
    sharers: int = 1
    problem: str | None = None
    expected: int | None = None

    def take(self, present: int) -> tuple[int, ...]:
        """The ordinals of this process's GPUs among the `present` visible GPUs.

        If `present` is not a multiple of the number of sharers, the last GPUs stay idle."""
        each = present // self.sharers
        return tuple(range(self.rank * each, (self.rank + 1) * each))


def visible_gpus(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """The entries of CUDA_VISIBLE_DEVICES, or of AMD's variables, that the driver accepts (numbers,
    GPU- and MIG- names); None if none of the variables is set.

    CUDA ignores the first entry that it cannot read (`-1`, `NoDevFiles`) and all entries after
    it."""
    text = next((environ[name] for name in VISIBLE if name in environ), None)
    if text is None:
        return None
    entries: list[str] = []
    for entry in (part.strip() for part in text.split(",")):
        if not re.fullmatch(r"\d+|(GPU|MIG)-[0-9A-Za-z/-]+", entry):
            break
        entries.append(entry)
    return tuple(entries)


def is_mig(visible: tuple[str, ...] | None) -> bool:
    """Whether the visible devices are MIG slices, of which a process can use only one."""
    return bool(visible) and visible[0].startswith("MIG-")


_CURE = (
    "give each task its own with --gpus-per-task=1, or let the program divide with --gpu-bind=none"
)


def step_share(environ: Mapping[str, str], local_rank: int, local_tasks: int) -> GpuShare:
    """The GPUs of one task of a Slurm step, from the environment that `srun` gave it."""
    visible = visible_gpus(environ)
    on_node = whole_number(environ.get("SLURM_GPUS_ON_NODE"))
    if visible is None and on_node is None:
        return GpuShare()
    # --gpu-bind=none leaves CUDA_VISIBLE_DEVICES unset: every task sees all GPUs of the job on the
    # node
    seen = len(visible) if visible is not None else on_node or 0
    expected = on_node if visible is None else None
    if seen == 0 or local_tasks == 1:
        return GpuShare(visible, expected=expected)
    total = on_node if on_node is not None else seen
    kinds = "per_task|single|map_gpu|mask_gpu"
    binding = re.search(rf"\bgpu:(?:verbose,)?({kinds})\b", environ.get("SLURMD_TRES_BIND", ""))
    if binding or seen < total:
        # A map or mask may give a GPU to two tasks, which NCCL refuses.
        crowded = not (binding and "_gpu" in binding[1]) and seen * local_tasks > total
        where = f"on a node with {counted(total, 'GPU')}"
        problem = f"{local_tasks} tasks {where} see {seen} each, so some share one; {_CURE}"
        return GpuShare(visible, problem=problem if crowded else None)
    if seen < local_tasks:
        cure = f"ask for --ntasks-per-node={seen} or --gpus-per-node={local_tasks}"
        return GpuShare(
            visible,
            problem=f"{local_tasks} tasks share {counted(seen, 'GPU')} on this node; {cure}",
        )
    return GpuShare(visible, rank=local_rank, sharers=local_tasks, expected=expected)
