"""What each run of many would need and measure, quickly: for tables of runs."""

import json
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any

from simulator.config import RunConfig, as_mapping
from simulator.planning.step import Step
from simulator.planning.steps import fixed_steps

ROOM = 20
"""So many times its state are enough for the steps of a run: they take 3 to 18 in the models that there are."""


@dataclass(frozen=True)
class Estimate:
    """What a run needs on one device, before anything is known of the machine."""

    columns: tuple[str, ...] = field(repr=False)
    """Of diagnostics.csv."""
    room: int
    """Bytes of memory that are surely enough."""
    points: int
    steps: int | None
    """None where dt follows from the CFL number."""
    _structure: "_Structure" = field(repr=False)

    @property
    def bytes(self) -> int:
        """Of memory. Programs are compiled for it."""
        return _bytes(self._structure)

    @property
    def cost(self) -> float | None:
        """Grid points times steps."""
        return None if self.steps is None else float(self.points) * self.steps


def estimate(config: RunConfig) -> Estimate:
    """Needs of a run. Raises UserError where model, grid and initial condition do not fit together."""
    structure = _Structure(config)
    columns, room = _measured(structure)
    steps = fixed_steps(config).count if config.time.dt is not None else None
    return Estimate(columns, room, prod(config.grid.shape), steps, structure)


class _Structure:
    """A configuration, equal to others of the same programs: those that differ in the values of numbers only."""

    def __init__(self, config: RunConfig):
        self.config = config
        content = as_mapping(config)
        shape = {name: content.get(name) for name in ("grid", "precision", "run")}
        alike = [_kinds(content.get(name)) for name in ("model", "forcing")]
        fields = config.output.snapshots.fields
        self._key = json.dumps([shape, alike, config.time.integrator, fields], default=str)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Structure) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def _kinds(value: Any) -> Any:
    """A tree with no more of its numbers than whether they are zero."""
    if isinstance(value, float):
        return value != 0
    if isinstance(value, dict):
        return {key: _kinds(inner) for key, inner in value.items()}
    return [_kinds(inner) for inner in value] if isinstance(value, list | tuple) else value


@lru_cache(maxsize=1024)
def _measured(given: _Structure) -> tuple[tuple[str, ...], int]:
    """(columns of diagnostics.csv, bytes that are enough)."""
    step = Step(given.config)
    names = tuple(name for name in step.simulation.columns if name != "rate")
    return ("step", "time", "dt", *names, "cfl"), round(ROOM * step.state)


@lru_cache(maxsize=1024)
def _bytes(given: _Structure) -> int:
    return round(Step(given.config).memory)
