"""What XLA says that programs of a run hold: they are compiled for virtual CPU devices, and nothing is allocated.

The answer takes a second or a few, whatever the size of the grid.
"""

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from simulator.config import RunConfig
from simulator.planning.paper import Platform, paper_simulation, virtual_devices
from simulator.run.memory import Memory, lowered_loop
from simulator.spectral.collectives import largest_transform

if TYPE_CHECKING:
    from simulator.run.simulation import Simulation

Program = Literal["loop", "diagnostics", "output"]
"""The loop over steps; a row of diagnostics; the values of a snapshot's largest field."""

_OPTIONS = {"xla_backend_optimization_level": 0}
"""Of code, which comes after memory has been laid out: the same answer in less time."""


def held(config: RunConfig, devices: int, platform: Platform, program: Program) -> int:
    """Bytes of one of so many devices, the state included; there are as many as `virtual_devices`.

    Raises UserError where the grid cannot be shared among them.
    """
    return _held(_Key(config), devices, platform, program)


class _Key:
    """Equal for configurations of the same programs."""

    def __init__(self, config: RunConfig):
        self.config = config
        self._text = config.model_dump_json(exclude={"name", "output", "slurm"})
        self._fields = tuple(config.output.snapshots.fields or ())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and (self._text, self._fields) == (other._text, other._fields)

    def __hash__(self) -> int:
        return hash((self._text, self._fields))


@lru_cache(maxsize=8)
def _simulation(key: _Key, devices: int, platform: Platform) -> "Simulation":
    return paper_simulation(key.config, virtual_devices()[:devices], platform)


@lru_cache(maxsize=512)
def _held(key: _Key, devices: int, platform: Platform, program: Program) -> int:
    simulation = _simulation(key, devices, platform)
    compiled = _lowered(simulation, program).compile(compiler_options=_OPTIONS)
    # The GPU's library of Fourier transforms takes as much again for itself.
    scratch = largest_transform(compiled) if platform == "gpu" else 0
    return Memory.of(compiled).total + scratch


def _lowered(simulation: "Simulation", program: Program) -> Any:
    import jax

    state = simulation.placed_template
    match program:
        case "loop":
            return lowered_loop(simulation)
        case "diagnostics":
            return jax.jit(simulation.diagnostics).lower(state)
        case "output":
            names = simulation.config.output.snapshots.fields or tuple(simulation.model.components)
            largest = max((simulation.values(name) for name in names), key=lambda f: _size(f, state))
            return jax.jit(largest).lower(state)


def _size(function: Any, state: Any) -> int:
    import jax

    found = jax.eval_shape(function, state)
    return prod(found.shape) * found.dtype.itemsize
