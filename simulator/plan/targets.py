"""GPUs that are not present: XLA compiles for a described device if JAX's plugin for it is installed.

No GPU and no driver are needed. The compiled program is that of a run on such devices, except for the choices that
XLA makes by timing; memory and traffic are read from it.
"""

import os
from collections.abc import Mapping
from functools import lru_cache
from math import ceil
from typing import Any

from simulator.plan.machines import DEVICES, KNOWN, Machine
from simulator.processes.hardware import SETUP, Vendor, has_gpu_plugin, plugin_problem

MOST = 512
"""The largest number of devices for which programs are compiled."""
SKIP_CHECKS = "JAX_SKIP_CUDA_CONSTRAINTS_CHECK"
"""Environment variable: with it, loading the plugin does not query a driver for its version."""
OPTIONS = {"xla_gpu_enable_latency_hiding_scheduler": True, "xla_backend_optimization_level": 0}
"""The schedule of a run on GPUs (see `processes.environment`); the code of kernels, which is generated after memory
and schedule are settled, in less time."""

_COMMON = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "shared_memory_per_block": 49152,
    "threads_per_core_limit": 2048,
    "block_dim_limit_x": 2147483647,
    "block_dim_limit_y": 65535,
    "block_dim_limit_z": 65535,
    "registers_per_core_limit": 65536,
    "registers_per_block_limit": 65536,
}


def missing(machine: Machine) -> str | None:
    """Why programs cannot be compiled for a GPU here, with a remedy; None if they can."""
    if machine.measured:
        return None
    if machine.program is None:
        return f"{machine.name} has no description for the compiler; a `program` in its block of {DEVICES} gives one"
    vendor = vendor_of(machine.program)
    if not has_gpu_plugin(vendor):
        return f"JAX's plugin for it is not installed ({SETUP[vendor]}, without a GPU too)"
    return plugin_problem(vendor)


def target_of(machine: Machine) -> str | None:
    """The name of the described device for which programs are compiled; None: virtual processors."""
    described = machine.platform == "gpu" and KNOWN.get(machine.name) is not None and not machine.measured
    return machine.name if described and missing(machine) is None else None


@lru_cache(maxsize=64)
def described_devices(name: str, count: int) -> tuple[Any, ...]:
    """`count` devices of that name, which cannot compute, on nodes of their usual size."""
    from jax.experimental import topologies

    os.environ.setdefault(SKIP_CHECKS, "1")
    machine = KNOWN[name]
    assert machine.program is not None
    nodes = ceil(count / machine.per_node)
    each = ceil(count / nodes)
    topology = topologies.get_topology_desc(
        topology_name=name,
        platform=vendor_of(machine.program),
        target_config=configuration(machine.program),
        topology=f"1x{nodes}x{each}",
    )
    return tuple(topology.devices[:count])


def vendor_of(program: Mapping[str, Any]) -> Vendor:
    return "cuda" if "capability" in program else "rocm"


def configuration(program: Mapping[str, Any]) -> str:
    """XLA's GpuTargetConfigProto in text form, from a `program` block of `devices.yaml`."""
    about = {**_COMMON, **program}
    name = about.pop("name")
    if "capability" in about:
        major, minor = about.pop("capability").split(".")
        kind = f"cuda_compute_capability {{ major: {major} minor: {minor} }}"
        platform, runtime = "CUDA", "runtime_version { major: 12 minor: 9 }"
    else:
        kind = f'rocm_compute_capability {{ gcn_arch_name: "{about.pop("architecture")}" }}'
        platform, runtime = "ROCM", ""
    info = " ".join(f"{key}: {value}" for key, value in about.items())
    return (
        f'gpu_device_info {{ {info} {kind} }} platform_name: "{platform}" '
        f'dnn_version_info {{ major: 9 minor: 8 }} {runtime} device_description_str: "{name}"'
    )
