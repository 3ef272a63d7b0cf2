"""The size of a run's files."""

from dataclasses import dataclass
from math import floor, prod
from typing import Any

from simulator.config import RunConfig
from simulator.measure import Cadence
from simulator.planning.step import Step


@dataclass(frozen=True)
class Files:
    """Bytes of a snapshot and of a checkpoint, without compression, and their numbers at the end of a run."""

    snapshot: float
    checkpoint: float
    snapshots: int | None
    """None if snapshots are due by wall-clock time."""
    checkpoints: int

    @property
    def all(self) -> float | None:
        """Bytes of the whole run."""
        if self.snapshots is None:
            return None
        return self.snapshots * self.snapshot + self.checkpoints * self.checkpoint


def files_of(step: Step, steps: int | None) -> Files:
    """The files of a run with this step; `steps` is the number of its steps."""
    import jax

    config, simulation = step.config, step.simulation
    wanted = config.output.snapshots
    single = "single" in (wanted.precision, config.precision)
    points = prod(config.grid.shape)

    def values(name: str) -> float:
        array = jax.eval_shape(simulation.values(name), simulation.template)
        number = (4 if single else 8) * (2 if array.dtype.kind == "c" else 1)
        return float(number * prod(array.shape[:-3]) * points)

    def coefficients(array: Any) -> float:
        layout = simulation.transform.layout
        modes = array.ndim >= 3 and array.shape[-3:] == layout.shape
        count = prod(array.shape[:-3]) * prod(layout.valid) if modes else prod(array.shape)
        return float(count * array.dtype.itemsize)

    names = wanted.fields or tuple(simulation.model.fields)
    kept = config.output.checkpoints
    thinned = steps // kept.keep_every if kept.keep_every and kept.every_steps and steps else 0
    return Files(
        sum(map(values, names)),
        sum(map(coefficients, jax.tree.leaves(simulation.template))),
        snapshots_of(config, steps),
        kept.keep_last + thinned,
    )


def snapshots_of(config: RunConfig, steps: int | None) -> int | None:
    """The number of snapshots: the first and the last state, and those due in between; None if it is unknown."""
    wanted: Cadence = config.output.snapshots
    if wanted.every_wall is not None or (wanted.every_steps is not None and steps is None):
        return None
    count = 2
    if wanted.every is not None:
        count += max(0, floor(config.time.stop / wanted.every * (1 - 1e-9)))
    if wanted.every_steps is not None and steps is not None:
        count += max(0, (steps - 1) // wanted.every_steps)
    return count
