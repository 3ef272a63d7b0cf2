"""What a run would measure and need, found without a device: its simulation is built "on paper".

Everything here is shapes and names (`jax.eval_shape`); nothing is compiled or computed.
"""

import json
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil, prod
from typing import TYPE_CHECKING, Any, cast

from simulator.config import RunConfig, as_mapping
from simulator.config.execution import FftSettings

if TYPE_CHECKING:
    from simulator.run.simulation import Simulation

REGISTERS = {"rk4": 3}
"""Arrays of the size of the state that an integrator holds beside it: a stage, its tendency, and the sum."""


@dataclass(frozen=True)
class _PaperDevice:
    """A device that cannot compute: enough to lay out arrays."""

    id: int = 0
    process_index: int = 0
    platform: str = "cpu"
    device_kind: str = "paper"


@dataclass(frozen=True)
class _PaperCluster:
    devices: tuple[_PaperDevice, ...] = (_PaperDevice(),)
    num_processes: int = 1
    process_id: int = 0
    is_first: bool = True


@dataclass(frozen=True)
class Estimate:
    """What a run needs, before anything is known of the machine.

    Memory: the state, the integrator's registers, and one right-hand side (its inputs and products, each before
    and after the exchange between devices). Blocks of physical space and what the compiler adds come on top.
    """

    columns: tuple[str, ...] = field(repr=False)
    """Of diagnostics.csv."""
    bytes: int
    """Of memory, over all devices."""
    points: int
    steps: int | None
    """None where dt follows from the CFL number."""

    @property
    def cost(self) -> float | None:
        """Grid points times steps."""
        return None if self.steps is None else float(self.points) * self.steps


def estimate(config: RunConfig) -> Estimate:
    """Needs of a run. Raises UserError where model, grid and initial condition do not fit together."""
    content = as_mapping(config)
    shape = {name: content.get(name) for name in ("model", "grid", "precision", "forcing")}
    alike = json.dumps([shape, config.time.integrator, config.output.snapshots.fields], default=str)
    columns, needed = _measured(_Config(config, alike))
    time = config.time
    steps = None if time.dt is None else ceil(round(time.stop / time.dt, 6))
    if time.max_steps is not None and steps is not None:
        steps = min(steps, time.max_steps)
    return Estimate(columns, needed, prod(config.grid.shape), steps)


class _Config:
    """A configuration, equal to others that need and measure the same."""

    def __init__(self, config: RunConfig, key: str):
        self.config, self._key = config, key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Config) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=1024)
def _measured(given: _Config) -> tuple[tuple[str, ...], int]:
    """(columns of diagnostics.csv, bytes of memory)."""
    import jax

    config, simulation = given.config, paper_simulation(given.config)
    model: Any = simulation.model

    def right_hand_side(fields: Any, time: Any) -> Any:
        if hasattr(model, "kick"):  # a split step transforms its fields there and back
            return fields, fields
        inputs = model.inputs(fields)
        return inputs, model.transform.evaluate(inputs, model.pointwise, model.parameters(time)).products

    template = simulation.template
    once = _bytes(template.fields)
    exchanged = _bytes(jax.eval_shape(right_hand_side, template.fields, template.time))
    names = tuple(name for name in simulation.columns if name != "rate")
    registers = REGISTERS.get(config.time.integrator, max(REGISTERS.values()))
    needed = (1 + registers) * once + _bytes(template.memory) + 2 * exchanged
    return ("step", "time", "dt", *names, "cfl"), needed


def _bytes(tree: Any) -> int:
    import jax

    return sum(prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def paper_simulation(config: RunConfig) -> "Simulation":
    """The configuration's simulation on a device that cannot compute: for `jax.eval_shape`."""
    import jax

    from simulator.run.simulation import Simulation

    jax.config.update("jax_enable_x64", True)  # as in every run; starts nothing
    config = config.model_copy(update={"fft": FftSettings()})
    return Simulation(config, cluster=cast(Any, _PaperCluster()), report=lambda line: None)
