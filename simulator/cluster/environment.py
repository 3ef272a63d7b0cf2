"""Settings of the C library, XLA and JAX that make the program fast, where the user has set none.

Everything done here is returned as a record for `provenance.json`.
"""

import ctypes
import os
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import jax

from simulator.cluster import cache

# GNU mallopt's parameters (malloc.h)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -3, -4, -8

# In the parser of jaxlib 0.10 to 0.12; an unknown flag in XLA_FLAGS ends the process.
_GPU_FLAGS = {"xla_gpu_enable_latency_hiding_scheduler": "true"}
_CPU_FLAGS = {
    # A schedule of little memory instead of one that lets operations run side by side: each uses all cores by itself.
    "xla_cpu_enable_concurrency_optimized_scheduler": "false",
    # Arrays of wavenumbers, damping and the like are made anew where they are used, which is faster than reading them
    # from memory, where XLA would keep them for all steps.
    "xla_disable_hlo_passes": "while-loop-invariant-code-motion",
}
_GPU_MEMORY = "0.9"  # of the GPU's memory, for XLA's pool (default 0.75)

# Variables that are worth knowing afterwards, but are the site's and the user's to set
_RECORDED = ("XLA_", "JAX_", "NCCL_", "GLOO_", "MALLOC_", "GLIBC_TUNABLES", "UCX_", "FI_", "OMP_", "CUDA_")


@dataclass(frozen=True)
class Environment:
    """What was set here (name -> value), what the user had set (left alone), and the cache's folder."""

    made: dict[str, str] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)
    cache: Path | None = None


def apply(
    platform: Literal["cpu", "gpu"],
    report: Callable[[str], None],
    environ: MutableMapping[str, str] = os.environ,
    *,
    first: bool = True,
) -> Environment:
    """Makes the settings for a platform; call it before JAX's backend starts.

    first: whether this is process 0, which alone speaks and keeps the cache within its bounds.
    """
    found = {name: environ[name] for name in sorted(environ) if name.startswith(_RECORDED)}
    made = _cpu_settings(environ) if platform == "cpu" else _gpu_settings(environ)
    folder = None
    try:
        folder = cache.prepare(environ, platform)
        if first:
            cache.prune(folder.parent)
    except OSError as error:
        if first:
            report(f"warning: compiled programs are not kept ({error}); name a folder in SIMULATOR_CACHE")
    _configure_cache(folder)
    return Environment(made, found, folder)


def _keep_freed_memory(environ: MutableMapping[str, str]) -> dict[str, str]:
    """Makes malloc keep large freed blocks, for all threads, instead of mapping them anew for every use.

    XLA allocates its buffers for every execution; page faults took longer than the arithmetic
    (measured: a copy of a 128^3 array of doubles 16.8 ms, with this 3.6 ms).
    """
    user = [name for name in environ if name.startswith("MALLOC_")]
    if (
        user
        or "glibc.malloc" in environ.get("GLIBC_TUNABLES", "")
        or "malloc" in environ.get("LD_PRELOAD", "")
    ):
        return {}
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # not glibc
        return {}
    largest = 2**31 - 1
    made = {}
    if mallopt(_M_MMAP_THRESHOLD, largest):
        made["mallopt M_MMAP_THRESHOLD"] = str(largest)
    elif mallopt(_M_MMAP_MAX, 0):  # older glibc limits the threshold to 32 MiB
        made["mallopt M_MMAP_MAX"] = "0"
    if mallopt(_M_TRIM_THRESHOLD, -1):
        made["mallopt M_TRIM_THRESHOLD"] = "-1"
    if mallopt(_M_ARENA_MAX, 1):  # other arenas ignore the thresholds
        made["mallopt M_ARENA_MAX"] = "1"
    return made


def _cpu_settings(environ: MutableMapping[str, str]) -> dict[str, str]:
    return _keep_freed_memory(environ) | with_xla_flags("cpu", environ)


def with_xla_flags(
    platform: Literal["cpu", "gpu"], environ: MutableMapping[str, str] = os.environ
) -> dict[str, str]:
    """Adds flags of XLA that the user has not set; what was changed."""
    wanted = _CPU_FLAGS if platform == "cpu" else _GPU_FLAGS
    flags = environ.get("XLA_FLAGS", "")
    new = [f"--{name}={value}" for name, value in wanted.items() if name not in flags]
    if not new:
        return {}
    environ["XLA_FLAGS"] = " ".join([flags, *new]).strip()
    return {"XLA_FLAGS": environ["XLA_FLAGS"]}


def _gpu_settings(environ: MutableMapping[str, str]) -> dict[str, str]:
    made = {}
    names = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_ALLOCATOR")
    if not any(environ.get(name) for name in names):
        environ["XLA_CLIENT_MEM_FRACTION"] = made["XLA_CLIENT_MEM_FRACTION"] = _GPU_MEMORY
    return made | with_xla_flags("gpu", environ)


def _configure_cache(folder: Path | None) -> None:
    if folder is None:
        jax.config.update("jax_enable_compilation_cache", False)
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    settings = {
        "jax_remove_custom_partitioning_ptr_from_cache_key": True,
        "jax_persistent_cache_min_compile_time_secs": 0.1,
    }
    for name, value in settings.items():
        if hasattr(jax.config, name):
            jax.config.update(name, value)
