"""The frames that all runs of a study have in common."""

import numpy as np

from simulator.config import as_mapping
from simulator.config.yaml12 import path_of, value_at
from simulator.errors import UserError
from simulator.study.sweep import Sweep

_ALIKE = ("model.kind", "grid.shape", "grid.box", "time.stop", "output.snapshots")
TOLERANCE = 1e-6  # The largest deviation of a frame's time, in intervals.


def check_alike(sweep: Sweep) -> None:
    """Raises UserError, naming the key, if the runs differ in grid, fields or times, or frames are
    uneven."""
    first = as_mapping(sweep.runs[0].config)
    for run in sweep.runs:
        other = as_mapping(run.config)
        for key in _ALIKE:
            if value_at(other, path_of(key)) != value_at(first, path_of(key)):
                pair = f"{sweep.runs[0].index} and {run.index}"
                raise UserError(
                    f"{sweep.file}: {key}: differs between runs {pair}, but a data set has one {key}"
                )
    frame_times(sweep)


def frame_times(sweep: Sweep) -> np.ndarray:
    """The times of the frames, shape (frame,). Raises UserError unless they have a constant
    interval."""
    config = sweep.runs[0].config
    snapshots = config.output.snapshots
    stop = config.time.stop
    every = snapshots.every if isinstance(snapshots.every, float) else 0.0
    number = max(round(stop / (every or stop)), 1)
    if (
        snapshots.every_steps
        or config.time.max_steps
        or abs(number * every - stop) > TOLERANCE * every
    ):
        part = f"give a part of time.stop = {stop:g}, e.g. {stop / number:.6g}, and neither"
        alone = f"frames have a constant interval: {part} output.snapshots.every_steps nor time.max_steps"
        raise UserError(f"{sweep.file}: output.snapshots.every: {alone}")
    return np.arange(number + 1) * every
