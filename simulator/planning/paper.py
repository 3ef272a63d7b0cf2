"""A simulation "on paper": on devices that cannot compute, for the shapes and programs that it would have.

Everything here is shapes and names (`jax.eval_shape`, `jax.make_jaxpr`); nothing is compiled or computed.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from simulator.config import RunConfig
from simulator.config.execution import DeviceSettings, FftSettings

if TYPE_CHECKING:
    from simulator.run.simulation import Simulation

Platform = Literal["cpu", "gpu"]


@dataclass(frozen=True)
class PaperDevice:
    """A device that cannot compute: enough to lay out arrays."""

    id: int = 0
    process_index: int = 0
    platform: Platform = "cpu"
    device_kind: str = "paper"


@dataclass(frozen=True)
class PaperCluster:
    devices: tuple[PaperDevice, ...] = (PaperDevice(),)
    num_processes: int = 1
    process_id: int = 0
    is_first: bool = True


def with_memory(config: RunConfig, memory: Literal["low", "fast"]) -> RunConfig:
    """The configuration with this `run.memory`."""
    return config.model_copy(update={"run": config.run.model_copy(update={"memory": memory})})


def paper_simulation(config: RunConfig, devices: int = 1, platform: Platform = "cpu") -> "Simulation":
    """The configuration's simulation on `devices` devices that cannot compute: for `jax.eval_shape`.

    What `fft.backend: auto` would measure is planned as the default, `run.memory: auto` as fast. Raises UserError
    where model, grid and initial condition do not fit together, or the grid cannot be shared among so many devices.
    """
    import jax

    from simulator.run.simulation import Simulation

    jax.config.update("jax_enable_x64", True)  # as in every run; starts nothing
    if config.fft.backend != "custom_partitioning":
        config = config.model_copy(update={"fft": FftSettings(block=config.fft.block)})
    config = with_memory(config, "fast") if config.run.memory == "auto" else config
    config = config.model_copy(update={"devices": DeviceSettings(count=devices)})
    cluster = PaperCluster(tuple(PaperDevice(i, platform=platform) for i in range(devices)))
    return Simulation(config, cluster=cast(Any, cluster), report=lambda line: None)
