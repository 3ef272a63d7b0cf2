"""The memory and the rates of known devices, and XLA's descriptions of GPUs that are not present.

The table, `devices.yaml`, holds peak rates from the vendors' data sheets; a step is planned with
the fractions `EFFICIENCY` of the peaks. A device is a GPU, half of an MI250X, or a socket with its
cores, as in a run."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from math import ceil
from pathlib import Path
from typing import Any

import yaml

from simulator.cluster.hardware import SETUP, Vendor, has_gpu_plugin, plugin_problem
from simulator.config import RunConfig
from simulator.errors import UserError
from simulator.simulation.abstract_run import Platform, planned_threads, with_planned_threads

GB = 1e9
DEVICES = Path(__file__).with_name("devices.yaml")
SOCKETS = 2
NETWORK = 25 * GB
"""Processors of a node, and its bytes per second, if the table does not tell them."""
CORE_RATE = 10 * GB
"""Bytes per second that a core moves in transforms, and in blocks that stay in its cache (measured)."""


@dataclass(frozen=True)
class Machine:
    name: str
    platform: Platform
    memory: float  # Memory of one device in bytes.
    bandwidth: float
    """Bytes per second that a device reads and writes while all devices of a node work."""
    per_node: int  # Number of devices per node.
    link: float  # Bytes per second that a device sends to others on its node.
    network: float  # Bytes per second that a node sends to others.
    source: str
    cache: float | None = None
    """Bytes per second for transforms, and for arrays of a block's size, if these stay in a
    cache."""
    measured: bool = False  # Whether `bandwidth` is the rate of the run's own steps, measured here.
    program: Mapping[str, Any] | None = field(default=None, repr=False)
    """XLA's description of the device, for compilation without such a device."""
    threads: int = 1  # Cores of a processor's device.

    def with_threads(self, threads: int) -> "Machine":
        """The same nodes with other devices: processors with this number of cores each."""
        if threads == self.threads:
            return self
        more = threads / self.threads
        rates = {name: more * getattr(self, name) for name in ("memory", "bandwidth", "link")}
        return replace(
            self,
            **rates,
            cache=None if self.cache is None else more * self.cache,
            per_node=max(self.per_node * self.threads // threads, 1),
            threads=threads,
        )


def _described(name: str, about: Mapping[str, Any]) -> Machine:
    """The device of a block of the table, with its peak rates."""
    rates = ("memory", "bandwidth", "link", "network")
    peaks = {rate: about[rate] * GB for rate in rates if rate in about}
    source = about["source"]
    if "cores" not in about:
        program = about.get("program")
        if program:
            # The driver offers other bytes than the name of the device says: 79 GiB of an H100
            # with 80 GB.
            peaks["memory"] = program["device_memory_size"]
        return Machine(
            name, "gpu", per_node=about["per_node"], source=source, program=program, **peaks
        )
    sockets = about.get("sockets", SOCKETS)
    cores = about["cores"] // sockets
    bandwidth = peaks["bandwidth"] / sockets
    return Machine(
        name,
        "cpu",
        memory=peaks["memory"] / sockets,
        bandwidth=bandwidth,
        per_node=sockets,
        link=bandwidth / 2,
        network=peaks.get("network", NETWORK),
        source=source,
        cache=CORE_RATE * about["cores"] / sockets,
        threads=cores,
    )


@cache
def known_machines() -> Mapping[str, Machine]:
    """The devices of the table by name, with their peak rates."""
    table = yaml.safe_load(DEVICES.read_text())
    return {name: _described(name, about) for name, about in table.items()}


USABLE_MEMORY = {"gpu": 0.9, "cpu": 0.9}
"""The fraction of a device's memory that a run may use: on GPUs the share of XLA's pool."""
EFFICIENCY = {"bandwidth": 0.8, "link": 0.6, "network": 0.6}
"""The fraction of each peak rate of the table with which a step is planned."""


def machine(name: str, where: str = "--device") -> Machine:
    """The device `name` of the table. Raises UserError, blaming `where`, if the table has no such
    device."""
    word = name.strip().lower().replace("_", "-").removeprefix("nvidia-").removeprefix("amd-")
    known = known_machines()
    if word not in known:
        raise UserError(
            f"{where}: unknown device {name}; known: {', '.join(known)}; describe others in {DEVICES}"
        )
    peak = known[word]
    return replace(
        peak, **{name: fraction * getattr(peak, name) for name, fraction in EFFICIENCY.items()}
    )


def planned_on(
    config: RunConfig, name: str, where: str = "--device", cores: int | None = None
) -> tuple[RunConfig, Machine]:
    """The configuration with the threads that its run has on the device `name` of the table, and
    this device with as many. `cores` of each process; None: all of a processor. Raises UserError,
    blaming `where`, if the table has no such device."""
    target = machine(name, where)
    if target.platform == "gpu":
        return config, target
    config = with_planned_threads(config, cores or target.threads)
    return config, target.with_threads(planned_threads(config))


MOST = 512  # The largest number of devices for which programs are compiled.
SKIP_CHECKS = "JAX_SKIP_CUDA_CONSTRAINTS_CHECK"
"""Environment variable: if it is set, loading the plugin does not query a driver for its
version."""
OPTIONS = {"xla_gpu_enable_latency_hiding_scheduler": True, "xla_backend_optimization_level": 0}
"""Compiler options: the scheduler of a run on GPUs (see `cluster.environment`), and no optimization
of the kernels' code, which XLA generates after it has fixed memory and schedule."""

_COMMON = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "threads_per_core_limit": 2048,
    "block_dim_limit_x": 2147483647,
    "block_dim_limit_y": 65535,
    "block_dim_limit_z": 65535,
    "registers_per_core_limit": 65536,
    "registers_per_block_limit": 65536,
    "shared_memory_per_block": 49152,
}


def compile_obstacle(machine: Machine) -> str | None:
    """Why programs cannot be compiled here for the GPU `machine`, with a remedy; None if they can
    be compiled."""
    if machine.measured:
        return None
    if machine.program is None:
        return f"{machine.name} has no description for the compiler; a `program` in its block of {DEVICES} gives one"
    vendor = vendor_of(machine.program)
    if not has_gpu_plugin(vendor):
        return f"JAX's plugin for it is not installed ({SETUP[vendor]}, without a GPU too)"
    return plugin_problem(vendor)


def target_of(machine: Machine) -> str | None:
    """The name of the described GPU for which programs are compiled; None if they are compiled for
    virtual CPUs."""
    described = machine.platform == "gpu" and machine.name in known_machines()
    return machine.name if described and compile_obstacle(machine) is None else None


@lru_cache(maxsize=64)
def described_devices(name: str, count: int) -> tuple[Any, ...]:
    """`count` described devices, which cannot compute, on nodes of the usual size."""
    from jax.experimental import topologies

    os.environ.setdefault(SKIP_CHECKS, "1")
    machine = known_machines()[name]
    assert machine.program is not None
    nodes = ceil(count / machine.per_node)
    vendor = vendor_of(machine.program)
    described = configuration(machine.program)
    shape = {"topology": f"1x{nodes}x{ceil(count / nodes)}", "target_config": described}
    return tuple(topologies.get_topology_desc(name, vendor, **shape).devices[:count])


def vendor_of(program: Mapping[str, Any]) -> Vendor:
    return "cuda" if "capability" in program else "rocm"


def configuration(program: Mapping[str, Any]) -> str:
    """XLA's GpuTargetConfigProto in text form, from a `program` block of `devices.yaml`."""
    about = {**_COMMON, **program}
    name = about.pop("name")
    if "capability" in about:
        major, minor = about.pop("capability").split(".")
        kind = f"cuda_compute_capability {{ major: {major} minor: {minor} }}"
        platform = "CUDA"
        runtime = "runtime_version { major: 12 minor: 9 }"
    else:
        kind = f'rocm_compute_capability {{ gcn_arch_name: "{about.pop("architecture")}" }}'
        platform = "ROCM"
        runtime = ""
    info = " ".join(f"{key}: {value}" for key, value in about.items())
    return (
        f'gpu_device_info {{ {info} {kind} }} platform_name: "{platform}" '
        f'dnn_version_info {{ major: 9 minor: 8 }} {runtime} device_description_str: "{name}"'
    )
