"""The hardware of this host: usable cores, GPUs, the processor's model."""

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
from pathlib import Path
from typing import Literal

_ROOT = Path("/")
Vendor = Literal["cuda", "rocm"]
PLUGINS: dict[Vendor, tuple[str, ...]] = {
    "cuda": ("jax_cuda12_plugin", "jax_cuda13_plugin"),
    "rocm": ("jax_rocm7_plugin", "jax_rocm10_plugin", "jax_rocm60_plugin"),
}
"""Modules of JAX's plugins."""
SETUP: dict[Vendor, str] = {"cuda": "./scripts/run --setup cuda12", "rocm": "./scripts/run --setup rocm"}


def usable_cores(root: Path = _ROOT) -> int:
    """Physical cores that this process may use: those in its affinity mask, but no more than its quota.

    The quota is that of the process's control group (version 2), which containers set.
    """
    try:
        cpus = os.sched_getaffinity(0)
    except AttributeError:  # not Linux
        return os.cpu_count() or 1
    cores = {_siblings(root, cpu) for cpu in cpus}
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
    folder, quotas = top / group.strip("/"), []
    while folder.is_relative_to(top):
        with contextlib.suppress(OSError, ValueError):  # "max 100000": no quota
            quota, period = (folder / "cpu.max").read_text().split()
            quotas.append(int(quota) / int(period))
        folder = folder.parent
    return max(1, int(min(quotas))) if quotas else None


def present_gpus(root: Path = _ROOT) -> int:
    """GPUs that this process may use, NVIDIA's or else AMD's, without starting CUDA or ROCm; 0 without a driver."""
    return _nvidia_gpus(root) or _amd_gpus(root)


def gpu_vendor(root: Path = _ROOT) -> Vendor:
    """Whose GPUs are here, by JAX's name of their platform; CUDA where there are none."""
    return "rocm" if not _nvidia_gpus(root) and _amd_gpus(root) else "cuda"


def _amd_gpus(root: Path) -> int:
    """The nodes of AMD's driver that have a GPU; processors are nodes too."""
    found = 0
    for file in root.glob("sys/class/kfd/kfd/topology/nodes/*/gpu_id"):
        with contextlib.suppress(OSError):  # outside a job's control group
            found += file.read_text().strip() not in ("", "0")
    return found


def _nvidia_gpus(root: Path) -> int:
    """nvidia-smi comes first because, unlike /proc and /dev, it respects the job's control group."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
        return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
    counts = (len(list(root.glob(pattern))) for pattern in ("proc/driver/nvidia/gpus/*", "dev/nvidia[0-9]*"))
    return next((count for count in counts if count), 0)


def has_gpu_plugin(vendor: Vendor | None = None) -> bool:
    """Whether this installation of JAX can drive GPUs; by default those that are here."""
    return any(map(importlib.util.find_spec, PLUGINS[vendor or gpu_vendor()]))


def plugin_problem(vendor: Vendor) -> str | None:
    """What is wrong with the installed plugin for a vendor's GPUs, with the cure; None: nothing, or there is none."""
    jaxlib = importlib.metadata.version("jaxlib")
    for name in (module.replace("_", "-") for module in PLUGINS[vendor]):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found = importlib.metadata.version(name)
            # AMD's plugins count their own releases in a fourth number.
            if found.split(".")[:3] != jaxlib.split(".")[:3]:
                return f"{name} {found} is of another version than jaxlib {jaxlib} (pip install '{name}=={jaxlib}.*')"
    return None


def cpu_model(root: Path = _ROOT) -> str:
    """The processor's model and instruction sets in one line; compiled programs depend on both."""
    lines: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in (root / "proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            lines.setdefault(name.strip(), value.strip())
    model = [lines[key] for key in ("model name", "CPU part", "flags", "Features") if key in lines]
    return " ".join([platform.machine(), *model])
