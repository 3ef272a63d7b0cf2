"""Settings of XLA and JAX for speed, unless the user has set them.

All settings made here are returned as a record for `provenance.json`."""

import os
from collections.abc import Callable, MutableMapping
from importlib.metadata import version
from typing import Any, Literal

from simulator.cluster import compile_cache
from simulator.cluster.memory import keep_freed_memory

# Flags that jaxlib 0.10 to 0.12 know; an unknown flag in XLA_FLAGS ends the process.
_GPU_FLAGS = {"xla_gpu_enable_latency_hiding_scheduler": "true"}
# NCCL's single root (XLA's default) exchanges addresses with every rank, which works for about this
# many ranks.
_RANKS_OF_A_ROOT = 128
_CPU_FLAGS = {
    # Schedule for low memory instead of concurrency: each operation uses all cores by itself.
    "xla_cpu_enable_concurrency_optimized_scheduler": "false",
    # Recompute wavenumbers, damping factors and other invariant arrays where they are used, which
    # is faster than reading them from memory.
    "xla_disable_hlo_passes": "while-loop-invariant-code-motion",
    # No kernels of YNNPACK: with them maxima and sums take an eighth of a step of 256^2 points, and
    # their first releases computed sums wrongly and crashed (see `jax_versions`).
    "xla_cpu_experimental_ynn_fusion_type": "",
}
# An unknown compiler option is refused; later versions may not have XLA's older emitters.
QUICK: dict[str, Any] = (
    {"xla_cpu_use_fusion_emitters": False} if version("jaxlib").startswith("0.10.") else {}
)
"""Compiler options of output on processors: compilation takes three quarters of the time,
reductions are as fast."""
UNOPTIMIZED = (
    QUICK
    | {
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
        "xla_cpu_parallel_codegen_split_count": 1,  # splitting the code takes longer than generating it in one piece
    }
)
"""Compiler options of programs whose optimization takes longer than their execution."""
_GPU_MEMORY = (
    "0.9"  # fraction of the GPU's memory for XLA's pool (default 0.75), unless the user sets one of
)
_MEMORY_NAMES = (
    "XLA_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
)


def apply(
    platform: Literal["cpu", "gpu"],
    report: Callable[[str], None],
    *,
    first: bool = True,
    devices: int = 1,
) -> dict[str, str]:
    """Makes the settings for a platform; returns them. Must be called before JAX's backend starts.

    first: whether this is process 0. Only process 0 reports warnings and prunes the cache.
    devices: the number of GPUs of all processes together."""
    environ = os.environ
    changes = keep_freed_memory()
    if platform == "gpu" and not any(map(environ.get, _MEMORY_NAMES)):
        environ["XLA_CLIENT_MEM_FRACTION"] = changes["XLA_CLIENT_MEM_FRACTION"] = _GPU_MEMORY
    changes |= with_xla_flags(platform, environ, devices)
    if compile_cache.compile_always() and first:
        report("warning: JAX_DISABLE_JIT is ignored, because a run is compiled as a whole")
    folder = None
    try:
        folder = compile_cache.prepare_cache(environ, platform)
        if first:
            compile_cache.prune_cache(folder.parent)
    except OSError as error:
        if first:
            report(
                f"warning: compiled programs are not kept ({error}); name a folder in SIMULATOR_CACHE"
            )
    compile_cache.use(folder)
    return changes


def with_xla_flags(
    platform: Literal["cpu", "gpu"],
    environ: MutableMapping[str, str] = os.environ,
    devices: int = 1,
) -> dict[str, str]:
    """Adds XLA flags that the user has not set; returns the changed variable, if any."""
    wanted = _CPU_FLAGS if platform == "cpu" else _GPU_FLAGS
    if platform == "gpu" and devices > _RANKS_OF_A_ROOT:
        wanted = wanted | {"xla_gpu_nccl_init_max_rank_per_root_ratio": str(_RANKS_OF_A_ROOT)}
    flags = environ.get("XLA_FLAGS", "")
    new = [f"--{name}={value}" for name, value in wanted.items() if name not in flags]
    if not new:
        return {}
    environ["XLA_FLAGS"] = " ".join([flags, *new]).strip()
    return {"XLA_FLAGS": environ["XLA_FLAGS"]}
