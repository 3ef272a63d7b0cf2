"""What each run of many would need and measure, quickly: for tables of runs."""

from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

from simulator.config import RunConfig
from simulator.config.programs import Programs
from simulator.planning.step import Step
from simulator.planning.steps import fixed_steps
from simulator.simulation.memory import ROOM


@dataclass(frozen=True)
class Estimate:
    """What a run needs on one device, before anything is known of the machine."""

    columns: tuple[str, ...] = field(repr=False)
    """Of diagnostics.csv."""
    room: int
    """Bytes of memory that none of its programs exceeds."""
    points: int
    steps: int | None
    """None where dt follows from the CFL number."""
    _programs: Programs = field(repr=False)

    @property
    def bytes(self) -> int:
        """Of memory. Programs are compiled for it."""
        return _bytes(self._programs)

    @property
    def cost(self) -> float | None:
        """Grid points times steps."""
        return None if self.steps is None else float(self.points) * self.steps


def estimate(config: RunConfig) -> Estimate:
    """Needs of a run. Raises UserError where model, grid and initial condition do not fit together."""
    same = Programs(config)
    columns, room = _measured(same)
    steps = fixed_steps(config).count if config.time.dt is not None else None
    return Estimate(columns, room, prod(config.grid.shape), steps, same)


@lru_cache(maxsize=1024)
def _measured(given: Programs) -> tuple[tuple[str, ...], int]:
    """(columns of diagnostics.csv, bytes that no program exceeds)."""
    step = Step(given.config)
    names = tuple(name for name in step.simulation.columns if name != "rate")
    return ("step", "time", "dt", *names, "cfl"), round(ROOM * step.state)


@lru_cache(maxsize=1024)
def _bytes(given: Programs) -> int:
    return round(Step(given.config).memory)
