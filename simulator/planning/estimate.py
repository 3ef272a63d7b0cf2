"""What each run of many would need and measure, quickly: for tables of runs."""

import json
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

from simulator.config import RunConfig, as_mapping
from simulator.planning.step import Step
from simulator.planning.steps import fixed_steps


@dataclass(frozen=True)
class Estimate:
    """What a run needs on one device, before anything is known of the machine."""

    columns: tuple[str, ...] = field(repr=False)
    """Of diagnostics.csv."""
    bytes: int
    """Of memory."""
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
    shape = {name: content.get(name) for name in ("model", "grid", "precision", "forcing", "run")}
    alike = json.dumps([shape, config.time.integrator, config.output.snapshots.fields], default=str)
    columns, needed = _measured(_Config(config, alike))
    steps = fixed_steps(config).count if config.time.dt is not None else None
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
    step = Step(given.config)
    names = tuple(name for name in step.simulation.columns if name != "rate")
    return ("step", "time", "dt", *names, "cfl"), round(step.memory)
