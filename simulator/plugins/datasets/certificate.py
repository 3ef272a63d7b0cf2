"""Whether the trajectories of a data set are resolved."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from simulator.archive.manifest import committed
from simulator.archive.open_run import open_run
from simulator.archive.series_file import read_columns
from simulator.archive.snapshot_reader import open_snapshot
from simulator.errors import RunFailure, UserError
from simulator.files import read_json, replace_json
from simulator.physics.resolution_columns import LIMITS, UNDER_RESOLVED, measured_resolutions
from simulator.plugins.datasets.other_grid import Solver, Starts, distance, finer, grid_in_words
from simulator.plugins.datasets.settings import certificate_file, dataset_of
from simulator.study.batch import groups
from simulator.study.runs import SweepRun
from simulator.study.sweep import Sweep

Say = Callable[[str], None]
_REDUCED: Mapping[str, Callable[[np.ndarray], Any]] = {
    "k_max_eta": np.min,
    "edge_share": np.max,
    "budget_residual": lambda values: abs(values).max(),
}
MEASURED = tuple(_REDUCED)
"""The numbers that follow from the diagnostics of a run: the smallest k_max times the dissipation
scale of flow, magnetic field or a scalar, the largest share of squared gradients (or of the energy)
at the grid's edge, and the largest residual of the energy budget relative to the dissipation."""

ROUNDING = "error_asked", "error_measured"
"""The errors of rounded snapshots: the one that was asked, and the largest of any shell."""

THRESHOLDS = f"k_max_eta {LIMITS}; or edge_share at most {UNDER_RESOLVED:g}"
"""The numbers of a resolved run."""


def resolution_of(run: SweepRun) -> dict[str, float]:
    """The numbers MEASURED of a finished run, over the rows of its diagnostics, nan where its model
    has none; with rounded snapshots also those of ROUNDING."""
    columns = _diagnostics(run)
    measures = measured_resolutions(columns)
    sources = {
        "k_max_eta": [m.scale for m in measures],
        "edge_share": [m.edge for m in measures],
        "budget_residual": ["budget_residual"],
    }
    numbers = {}
    for name, reduced in _REDUCED.items():
        none = np.empty(0)
        values = np.concatenate([none, *(columns.get(source, none) for source in sources[name])])
        values = values[np.isfinite(values)]
        numbers[name] = float(reduced(values)) if len(values) else math.nan
    snapshots = map(open_snapshot, committed(run.folder / "snapshots"))
    errors = [error for s in snapshots if (error := s.error) is not None]
    if errors:
        numbers |= zip(ROUNDING, np.max(errors, axis=0).tolist(), strict=True)
    return numbers


def _diagnostics(run: SweepRun) -> Mapping[str, np.ndarray]:
    """The columns of diagnostics.csv; none if the run does not write it."""
    path = run.folder / "diagnostics.csv"
    return read_columns(path) if path.exists() else {}


def certified(sweep: Sweep, times: np.ndarray, say: Say = print) -> dict[str, float]:
    """Writes the certificate of every run that it lacks into `dataset/certificate.json`, and returns
    the worst numbers of all runs.

    For the first `dataset.refined_runs` runs of train, `distance_to_finer` is the distance to the
    same run on a grid with twice the points along each axis and half the time step. The runs are
    done; an interrupted call is continued by the next one."""
    path = certificate_file(sweep)
    entries: dict[str, Any] = read_json(path).get("runs", {})
    for run in sweep.runs:
        if run.hash not in entries:
            rows = len(_diagnostics(run).get("step", ()))
            entries[run.hash] = {"index": run.index, "rows": rows} | _plain(resolution_of(run))
    replace_json(path, {"runs": entries})
    for run in sweep.parts["train"][: dataset_of(sweep).refined_runs]:
        if "distance_to_finer" not in entries[run.hash]:
            entries[run.hash] |= _plain({"distance_to_finer": refined(run, times, say)})
            replace_json(path, {"runs": entries})
    return least_resolved(sweep)


def refined(run: SweepRun, times: np.ndarray, say: Say) -> float:
    """The distance of the snapshots of a run to the same run on the next finer grid; nan, with a
    line, if that run cannot be computed here."""
    config = finer(run.config)
    grid = grid_in_words(config.grid.shape)
    try:
        (group,) = groups([run])
        starts = Starts(group)
        solver = Solver(group, starts, config)
        if (short := solver.simulation.shortage()) is not None:
            raise RunFailure(f"its steps need {short[1]:.2g} bytes, and {short[2]:.2g} are free")
        frames, *_ = solver.trajectory(run, times)
    except (UserError, RunFailure, MemoryError) as error:
        say(f"run {run.index} on {grid}: not computed: {str(error).splitlines()[0]}")
        return math.nan
    snapshots = open_run(run.folder).snapshots[:]
    stored = {
        name: np.stack([np.asarray(s[name][...]) for s in snapshots if name in s])
        for name in starts.fields
    }
    error = distance(stored, frames, config.grid.shape)
    say(f"run {run.index} on {grid}: distance {error:.2g} (VRMSE)")
    return error


def least_resolved(sweep: Sweep) -> dict[str, float]:
    """The smallest k_max eta of all certified runs, and the largest of the other numbers."""
    entries = read_json(certificate_file(sweep)).get("runs", {}).values()
    numbers: dict[str, float] = {}
    for name in (*MEASURED, *ROUNDING, "distance_to_finer"):
        values = [e[name] for e in entries if e.get(name) is not None]
        if values:
            numbers[name] = float((min if name == "k_max_eta" else max)(values))
    return numbers


def _plain(numbers: Mapping[str, float]) -> dict[str, float | None]:
    """The numbers as JSON has them."""
    return {name: x if math.isfinite(x) else None for name, x in numbers.items()}
