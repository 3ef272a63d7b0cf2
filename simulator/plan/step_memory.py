"""The memory of a step on a device, read from compiled programs without allocating their arrays.

The programs are compiled for a described GPU if JAX's plugin for it is installed, else for virtual
CPU devices. This takes one or a few seconds, whatever the size of the grid."""

import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import ceil, prod
from typing import Any, Literal, cast, get_args

import jax
import jax.numpy as jnp

from simulator.archive.rounded_field import Rounder
from simulator.archive.stored_state import RunInputs
from simulator.cluster.environment import UNOPTIMIZED
from simulator.cluster.hardware import usable_cores
from simulator.config import RunConfig
from simulator.config.compare import Programs
from simulator.physics.models import State, outputs
from simulator.plan.machines import MOST, OPTIONS, described_devices
from simulator.plan.step_count import fixed_steps
from simulator.plan.step_time import StepWork, step_work
from simulator.simulation.abstract_run import Platform, paper_simulation, virtual_devices
from simulator.simulation.compiling import Memory
from simulator.simulation.placement import check_devices
from simulator.simulation.simulation import Simulation
from simulator.spectral.jaxdecomp import NAME as JAXDECOMP
from simulator.spectral.staged import StagedTransform

CompiledProgram = Literal["loop", "diagnostics", "output"]
"""The loop over steps; a row of diagnostics; the values of a snapshot's largest field."""

_FFT = re.compile(r"= [a-z]+(\d+)\[([\d,]*)\]\S* fft\(")
_compilers = ThreadPoolExecutor(usable_cores(), thread_name_prefix="plan")


def largest_transform(compiled: jax.stages.Compiled) -> int:
    """Bytes of the largest result of a local Fourier transform in a compiled program."""
    results = _FFT.findall(compiled.as_text() or "")
    sizes = (int(bits) // 8 * prod(map(int, extents.split(","))) for bits, extents in results)
    return max(sizes, default=0)


@lru_cache(maxsize=8)
def _simulation(key: Programs, devices: int, platform: Platform, target: str | None) -> Simulation:
    placed_on = (
        virtual_devices()[:devices] if target is None else described_devices(target, devices)
    )
    return paper_simulation(key.config, RunInputs(), placed_on, platform)


@lru_cache(maxsize=512)
def program_memory(
    key: Programs,
    devices: int,
    platform: Platform,
    program: CompiledProgram,
    target: str | None = None,
) -> Future[int]:
    """Bytes that a compiled program holds on one of `devices` devices, including the state and, on
    GPUs, a workspace of the size of the largest local transform. The program is compiled, in the
    background, for the described GPU `target`, else for as many of the `virtual_devices`. Raises
    UserError if the grid cannot be distributed over the devices."""
    simulation = _simulation(key, devices, platform, target)
    state = simulation.placed_template

    def size(function: Callable[[State], jax.Array]) -> int:
        result = jax.eval_shape(function, state)
        return prod(result.shape) * result.dtype.itemsize

    match program:
        case "loop":
            lowered = simulation.lowered_loop()
        case "diagnostics":
            lowered = jax.jit(simulation.diagnostics).lower(state)
        case "output":
            names = simulation.config.output.snapshots.fields or outputs.stored_fields(
                simulation.model
            )
            largest = max(map(simulation.field_program, names), key=size)
            asked = simulation.config.output.snapshots.error

            def output(state: State) -> Any:
                values = largest(state)
                if asked is None:
                    return values
                is_real = jnp.issubdtype(values.dtype, jnp.floating)
                return Rounder(simulation.placement, asked).program(is_real)(values)

            lowered = jax.jit(output).lower(state)

    def read() -> int:
        # The optimization of a CPU's code follows the assignment of memory.
        compiled = lowered.compile(compiler_options=OPTIONS if target else UNOPTIMIZED)
        # The GPU's FFT library allocates a workspace at run time, at most as large as the
        # transformed array.
        scratch = largest_transform(compiled) if platform == "gpu" else 0
        return Memory.of(compiled).total + scratch

    return _compilers.submit(read)


@dataclass
class Step:
    """The step of a configuration on one of its devices. Raises UserError if grid and devices are
    incompatible."""

    config: RunConfig
    devices: int = 1
    platform: Platform = "cpu"
    target: str | None = None
    """The described GPU for which the programs are compiled; None if they are compiled for virtual
    CPUs."""
    simulation: Simulation = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_devices(self.config, self.devices)
        self.simulation = paper_simulation(self.config, RunInputs(), self.devices, self.platform)

    @cached_property
    def work(self) -> StepWork:
        return step_work(self.simulation, self.platform)

    @cached_property
    def state(self) -> float:
        """Bytes of the state."""
        leaves = jax.tree.leaves(self.simulation.placed_template)
        return sum(prod(a.sharding.shard_shape(a.shape)) * a.dtype.itemsize for a in leaves)

    @property
    def memory(self) -> float:
        """Bytes that the compiled loop over steps holds: state, temporary arrays and results."""
        return self.held("loop")

    @property
    def largest(self) -> float:
        """The largest memory during a run, in bytes."""
        self.begin()
        return max(map(self.held, get_args(CompiledProgram)))

    def begin(self) -> None:
        """Compile all programs in the background."""
        step = self if self.devices <= self._most else self._counterpart
        for program in get_args(CompiledProgram):
            step._compiled(program)

    def _compiled(self, program: CompiledProgram) -> Future[int]:
        key = Programs(self.config)
        return program_memory(key, self.devices, self.platform, program, self.target)

    def held(self, program: CompiledProgram) -> float:
        """Bytes that a compiled program holds on a device, as XLA states them. For more devices
        than programs are compiled for, the bytes of fewer devices with as many points each, times
        the ratio of the states, which differ by padding."""
        if self.devices <= self._most:
            return self._compiled(program).result()
        counterpart = self._counterpart
        config = self.config
        share = self.state / counterpart.state
        if config.fft.backend == JAXDECOMP:
            points = prod(config.grid.shape) / self.devices
            share = points * counterpart.devices / prod(counterpart.config.grid.shape)
        return round(share * counterpart.held(program))

    @property
    def _most(self) -> int:
        return MOST if self.target else len(virtual_devices())

    @cached_property
    def _counterpart(self) -> "Step":
        """The step on the most devices for which programs are compiled, with the same physical
        space per device."""
        count = self._most
        config = self.config
        transform = self.simulation.transform
        # jaxDecomp does not pad, so every side must be divisible for all meshes.
        if config.fft.backend == JAXDECOMP:
            scale = (count / self.devices) ** (1 / len(config.grid.shape))
            shape = tuple(max(1, round(n * scale / count)) * count for n in config.grid.shape)
        else:  # more devices may need pencils where fewer do not
            plan = cast(StagedTransform, transform).plan.name
            config = config.changed(fft={"decomposition": plan})
            fewer = paper_simulation(config, RunInputs(), count, self.platform).transform
            shape = tuple(
                ceil(n / transform.physical.parts(axis)) * fewer.physical.parts(axis)
                for axis, n in zip(transform.grid.axes, self.config.grid.shape, strict=True)
            )
        return Step(config.changed(grid={"shape": shape}), count, self.platform, self.target)


@dataclass(frozen=True)
class Estimate:
    """The needs of a run on one device, known without a device and without compiled programs."""

    columns: tuple[str, ...] = field(repr=False)  # Columns of diagnostics.csv.
    state: int  # Bytes of the state.
    points: int
    steps: int | None  # None if dt follows from the CFL number.

    @property
    def cost(self) -> float | None:
        """Grid points times steps."""
        return None if self.steps is None else float(self.points) * self.steps


def estimate(config: RunConfig, key: Programs) -> Estimate:
    """The estimate of a run, whose programs `key` identifies. Raises UserError if model, grid and
    initial condition are incompatible."""
    columns, state = _traced(key)
    steps = fixed_steps(config).count if config.time.dt or config.time.steps else None
    return Estimate(columns, state, prod(config.grid.shape), steps)


@lru_cache(maxsize=1024)
def _traced(key: Programs) -> tuple[tuple[str, ...], int]:
    """(columns of diagnostics.csv, bytes of the state)."""
    step = Step(key.config)
    names = tuple(name for name in step.simulation.columns if name != "rate")
    return ("step", "time", "dt", *names, "cfl"), round(step.state)
