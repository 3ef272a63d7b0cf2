"""Quick estimates of the needs and columns of many runs, for tables of runs."""

from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

from simulator.config import RunConfig
from simulator.config.programs import Programs
from simulator.plan.step import Step
from simulator.plan.steps import fixed_steps
from simulator.simulation.compiling import ROOM


@dataclass(frozen=True)
class Estimate:
    """The needs of a run on one device, before anything is known about the machine."""

    columns: tuple[str, ...] = field(repr=False)
    """Columns of diagnostics.csv."""
    room: int
    """An upper bound of the memory of all its programs, in bytes."""
    points: int
    steps: int | None
    """None if dt follows from the CFL number."""
    _programs: Programs = field(repr=False)

    @property
    def bytes(self) -> int:
        """Memory in bytes. Programs are compiled for this."""
        return _bytes(self._programs)

    @property
    def cost(self) -> float | None:
        """Grid points times steps."""
        return None if self.steps is None else float(self.points) * self.steps


def estimate(config: RunConfig) -> Estimate:
    """The needs of a run. Raises UserError if model, grid and initial condition are incompatible."""
    programs = Programs(config)
    columns, room = _measured(programs)
    steps = fixed_steps(config).count if config.time.dt is not None else None
    return Estimate(columns, room, prod(config.grid.shape), steps, programs)


@lru_cache(maxsize=1024)
def _measured(given: Programs) -> tuple[tuple[str, ...], int]:
    """(columns of diagnostics.csv, an upper bound of the memory of all programs in bytes)."""
    step = Step(given.config)
    names = tuple(name for name in step.simulation.columns if name != "rate")
    return ("step", "time", "dt", *names, "cfl"), round(ROOM * step.state)


@lru_cache(maxsize=1024)
def _bytes(given: Programs) -> int:
    return round(Step(given.config).memory)
