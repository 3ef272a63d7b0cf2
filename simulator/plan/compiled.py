"""The memory and traffic of a run's programs, read from their compilation; nothing is allocated.

They are compiled for a described GPU if JAX's plugin for it is installed, else for virtual CPU devices. This takes
one or a few seconds, whatever the size of the grid.
"""

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from simulator.config import RunConfig
from simulator.config.programs import Programs
from simulator.plan.abstract_run import Platform, paper_simulation, virtual_devices
from simulator.plan.targets import OPTIONS, described_devices
from simulator.plan.traffic import Traffic, traffic
from simulator.simulation.memory import Memory
from simulator.spectral.collectives import largest_transform

if TYPE_CHECKING:
    from simulator.simulation.simulation import Simulation

Program = Literal["loop", "diagnostics", "output"]
"""The loop over steps; a row of diagnostics; the values of a snapshot's largest field."""

_QUICK = {"xla_backend_optimization_level": 0}
"""Skips the optimization of a processor's code, which comes after the memory layout: the same answer in less time."""


class Needs(NamedTuple):
    """The needs of a compiled program on one device."""

    bytes: int
    """Memory that it holds, including the state and, on GPUs, as much again as the largest local transform."""
    traffic: Traffic
    """The traffic of one execution; of the loop over steps, that of one step."""


def needs(
    config: RunConfig, devices: int, platform: Platform, program: Program, target: str | None = None
) -> Needs:
    """The needs of one of `devices` devices: of the described GPUs `target`, else of a platform's program on virtual
    processors, of which there are at most as many as `virtual_devices`.

    Raises UserError if the grid cannot be distributed over them.
    """
    return _needs(Programs(config), devices, platform, program, target)


@lru_cache(maxsize=8)
def _simulation(key: Programs, devices: int, platform: Platform, target: str | None) -> "Simulation":
    placed_on = virtual_devices()[:devices] if target is None else described_devices(target, devices)
    return paper_simulation(key.config, placed_on, platform)


@lru_cache(maxsize=512)
def _needs(key: Programs, devices: int, platform: Platform, program: Program, target: str | None) -> Needs:
    simulation = _simulation(key, devices, platform, target)
    compiled = _lowered(simulation, program).compile(compiler_options=OPTIONS if target else _QUICK)
    # The GPU's FFT library allocates its workspace when it runs: at most as much again.
    scratch = largest_transform(compiled) if platform == "gpu" else 0
    moved = traffic(compiled) if program == "loop" else Traffic()
    return Needs(Memory.of(compiled).total + scratch, moved)


def _lowered(simulation: "Simulation", program: Program) -> Any:
    import jax

    state = simulation.placed_template
    match program:
        case "loop":
            return simulation.lowered_loop()
        case "diagnostics":
            return jax.jit(simulation.diagnostics).lower(state)
        case "output":
            names = simulation.config.output.snapshots.fields or simulation.model.stored
            largest = max((simulation.values(name) for name in names), key=lambda f: _size(f, state))
            return jax.jit(largest).lower(state)


def _size(function: Any, state: Any) -> int:
    import jax

    result = jax.eval_shape(function, state)
    return prod(result.shape) * result.dtype.itemsize
