"""What this host has: cores that the process may use, GPUs, the processor's model."""

import contextlib
import importlib.util
import os
import platform
import subprocess
from pathlib import Path

_ROOT = Path("/")


def usable_cores(root: Path = _ROOT) -> int:
    """Physical cores that this process may use: its affinity, hyperthreads counted once, and its quota.

    The quota is that of the process's control group (version 2), as containers set it.
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
    """NVIDIA GPUs that this process may use, without starting CUDA; 0 without a driver.

    nvidia-smi first: it sees no more than a job's control group lets it, which /proc and /dev do.
    """
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
        return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
    counts = (len(list(root.glob(pattern))) for pattern in ("proc/driver/nvidia/gpus/*", "dev/nvidia[0-9]*"))
    return next((count for count in counts if count), 0)


def has_gpu_plugin() -> bool:
    """Whether this installation of JAX can drive NVIDIA GPUs."""
    return any(importlib.util.find_spec(f"jax_cuda{version}_plugin") for version in (12, 13))


def cpu_model(root: Path = _ROOT) -> str:
    """The processor's model and instruction sets, as one line: compiled programs depend on both."""
    lines: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in (root / "proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            lines.setdefault(name.strip(), value.strip())
    model = [lines[key] for key in ("model name", "CPU part", "flags", "Features") if key in lines]
    return " ".join([platform.machine(), *model])
