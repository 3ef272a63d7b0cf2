"""The needs of a step on a device: its memory and its work."""

from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, prod
from typing import TYPE_CHECKING, cast

from simulator.config import RunConfig
from simulator.plan.abstract_run import Platform, paper_simulation, virtual_devices
from simulator.plan.compiled import Needs, Program, needs
from simulator.plan.targets import MOST
from simulator.plan.traffic import Traffic
from simulator.simulation.placement import check_devices
from simulator.spectral.cudecomp import NAME as CUDECOMP
from simulator.spectral.jaxdecomp import NAME as JAXDECOMP
from simulator.spectral.staged import StagedTransform

if TYPE_CHECKING:
    from simulator.simulation.simulation import Simulation


@dataclass
class Step:
    """A configuration's step on one of its devices. Raises UserError if grid and devices are incompatible."""

    config: RunConfig
    devices: int = 1
    platform: Platform = "cpu"
    target: str | None = None
    """The described GPU for which the programs are compiled; None: they are compiled for virtual processors."""
    simulation: "Simulation" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_devices(self.config, self.devices)
        self.simulation = paper_simulation(self.config, self.devices, self.platform)

    @cached_property
    def traffic(self) -> Traffic:
        """The bytes that the compiled step reads, writes, transforms and sends."""
        return self.needs("loop").traffic

    @cached_property
    def state(self) -> float:
        """Bytes of the state."""
        import jax

        leaves = jax.tree.leaves(self.simulation.placed_template)
        return sum(prod(a.sharding.shard_shape(a.shape)) * a.dtype.itemsize for a in leaves)

    # ---- memory ------------------------------------------------------------------------------------------

    @property
    def memory(self) -> float:
        """Bytes that the compiled loop over steps holds: state, temporary arrays and results."""
        return self.held("loop")

    @property
    def output_memory(self) -> float:
        """Bytes held while a snapshot is written: the state, and the largest field's values as they are computed."""
        return self.held("output")

    @property
    def diagnostics_memory(self) -> float:
        """Bytes held while a row of diagnostics is computed, the state included."""
        return self.held("diagnostics")

    @property
    def largest(self) -> float:
        """The largest memory during a run, in bytes."""
        return max(self.memory, self.output_memory, self.diagnostics_memory)

    def held(self, program: Program) -> float:
        """Bytes that a compiled program holds on a device."""
        return self.needs(program).bytes

    def needs(self, program: Program) -> Needs:
        """The needs of a compiled program on a device, as XLA states them. Beyond the number of devices for which
        programs are compiled, those of fewer devices with as many points each, scaled by the ratio of the states,
        which padding may change."""
        if self.devices <= self._most:
            return needs(self.config, self.devices, self.platform, program, self.target)
        counterpart, config = self._counterpart, self.config
        if config.fft.backend not in (JAXDECOMP, CUDECOMP):
            share = self.state / counterpart.state
        else:
            points = prod(config.grid.shape) / self.devices
            share = points * counterpart.devices / prod(counterpart.config.grid.shape)
        needed = counterpart.needs(program)
        return Needs(round(share * needed.bytes), needed.traffic.scaled(share))

    @property
    def _most(self) -> int:
        """The largest number of devices for which programs are compiled."""
        return MOST if self.target else len(virtual_devices())

    @cached_property
    def _counterpart(self) -> "Step":
        """The step on as many devices as programs are compiled for, with the same physical space per device."""
        count, config, transform = self._most, self.config, self.simulation.transform
        if config.fft.backend in (
            JAXDECOMP,
            CUDECOMP,
        ):  # it does not pad, so every side must be divisible for all its meshes
            scale = (count / self.devices) ** (1 / len(config.grid.shape))
            shape = tuple(max(1, round(n * scale / count)) * count for n in config.grid.shape)
        else:  # more devices may need pencils where fewer do not
            plan = cast(StagedTransform, transform).plan.name
            fft = config.fft.model_copy(update={"decomposition": plan})
            config = config.model_copy(update={"fft": fft})
            fewer = paper_simulation(config, count, self.platform).transform
            shape = tuple(
                ceil(n / transform.physical.parts(axis)) * fewer.physical.parts(axis)
                for axis, n in zip(transform.grid.axes, self.config.grid.shape, strict=True)
            )
        grid = config.grid.model_copy(update={"shape": shape})
        return Step(config.model_copy(update={"grid": grid}), count, self.platform, self.target)
