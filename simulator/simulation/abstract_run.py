"""An abstract simulation: the shapes, layouts and programs of a run, without arrays.

On devices that exist only by name a program can be traced (`jax.eval_shape`, `jax.make_jaxpr`); on
virtual CPU devices it can also be compiled, and XLA then states its memory."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax

from simulator.cluster import Allocation
from simulator.cluster.cores import threads_of
from simulator.cluster.environment import with_xla_flags
from simulator.cluster.hardware import usable_cores
from simulator.cluster.start import Cluster
from simulator.config import RunConfig
from simulator.config.blocks import DeviceSettings, FftSettings
from simulator.simulation.inputs import Inputs
from simulator.simulation.simulation import Simulation

Platform = Literal["cpu", "gpu"]
COMPILED_FOR = 32  # The largest number of virtual CPU devices for which programs are compiled.


@dataclass(frozen=True)
class PaperDevice:
    """A device that cannot compute, sufficient for the layout of arrays."""

    id: int = 0
    process_index: int = 0
    platform: Platform = "cpu"
    device_kind: str = "paper"


def prepare_virtual_devices(*, gpus: bool = False) -> None:
    """Makes JAX provide enough virtual CPU devices, with XLA's flags as in a run, and ignore GPUs
    unless `gpus`. Has no effect after JAX's backend has started or the number of devices was
    set."""
    if jax.config.values.get("jax_num_cpu_devices", 0) < 1:
        with_xla_flags("cpu")
        with contextlib.suppress(RuntimeError):  # the backend has started
            jax.config.update("jax_num_cpu_devices", max(COMPILED_FOR, usable_cores()))
            if not gpus:
                jax.config.update("jax_platforms", "cpu")


def virtual_devices() -> list[Any]:
    prepare_virtual_devices()
    return jax.local_devices(backend="cpu")[:COMPILED_FOR]


def planned_threads(config: RunConfig) -> int:
    """The threads of a processor's device: one, unless the configuration gives their number."""
    return 1 if config.devices.threads == "auto" else config.devices.threads


def with_planned_threads(config: RunConfig, cores: int) -> RunConfig:
    """The configuration with the threads that its run has on processors with this number of cores
    for each process."""
    settings = config.devices
    if settings.platform == "gpu":
        return config
    threads = threads_of(settings.threads, settings.count, cores)
    return config.changed(devices={"threads": threads})


def paper_simulation(
    config: RunConfig,
    inputs: Inputs,
    devices: int | Sequence[Any] = 1,
    platform: Platform = "cpu",
) -> Simulation:
    """The configuration's simulation on `devices`, a number of devices that cannot compute or a
    list of virtual devices, with the program of a run on `platform`.

    `fft.backend: auto` is planned as the default backend, `run.memory: auto` as fast. Raises
    UserError if model, grid and initial condition are incompatible, or if the grid cannot be
    distributed over the devices."""
    jax.config.update("jax_enable_x64", True)  # as in every run; starts no backend
    # jaxDecomp's transforms cannot be traced without devices.
    if config.fft.backend == "auto" or isinstance(devices, int):
        config = config.changed(fft={"backend": FftSettings().backend})
    if isinstance(devices, int):
        devices = [PaperDevice(i, platform=platform) for i in range(devices)]
    if config.run.memory == "auto":
        config = config.changed(run={"memory": "fast"})
    threads = 1 if platform == "gpu" else planned_threads(config)
    settings = DeviceSettings(count=len(devices), threads=config.devices.threads)
    config = config.model_copy(update={"devices": settings})
    cluster = Cluster(Allocation(), platform, tuple(devices), threads=threads)
    return Simulation(config, cluster=cluster, inputs=inputs, report=lambda line: None)
