"""The error and the cost of the solver itself on the grid of a data set and on coarser ones: the
baseline of a learned solver.

    OUTPUT/NAME/baseline/baseline.csv    every grid, integrator and CFL number that was tried
    OUTPUT/NAME/baseline/baseline.png    error against seconds
    OUTPUT/NAME/baseline/trials.json     the trials so far, from which an interrupted command goes on

The error is `solver.distance` (VRMSE) from the snapshots of the data set, of the runs of `test`; the
coarse solutions start from the initial condition of each run and are interpolated by their Fourier
series. No error is below the distance of the data set itself to the next finer grid, if that is
known. The cost is the time that the steps of a trajectory take on the devices of this machine that
the runs ask for (one by `auto`; a coarse grid takes as many of them as it can be divided among), the
least of some repetitions, without compilation and output: it is measured when no other program
computes."""

import contextlib
import csv
import io
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from simulator.config import RunConfig
from simulator.errors import RunFailure, UserError
from simulator.files import read_json, replace_file, replace_json
from simulator.physics.stepping import INTEGRATORS
from simulator.plugins.datasets.certificate import least_resolved
from simulator.plugins.datasets.frames import check_alike, frame_times
from simulator.plugins.datasets.other_grid import Frames, Solver, Starts, distance, grid_in_words
from simulator.study.batch import groups
from simulator.study.runs import SweepRun
from simulator.study.study_status import MemberState, statuses_of
from simulator.study.sweep import Sweep

Say = Callable[[str], None]
FEWEST_POINTS = 8
CFL = (1.0, 0.5, 0.25, 0.125)
"""The CFL numbers that are tried, relative to the limit of the integrator."""
NEAR = 1.05
"""The best integrator and CFL number of a grid is the cheapest of those whose error is at most this
factor above the least."""
REPETITIONS = 3
ENOUGH = 2.0
"""The steps of a trajectory are timed `REPETITIONS` times, or until this many seconds have passed."""
_FOLDER = "baseline"


@dataclass(frozen=True)
class Trial:
    """One grid, integrator and CFL number: the mean error, the median over the runs of the seconds
    of a trajectory, and the mean number of steps. `error` is infinite if a run diverged."""

    grid: str
    integrator: str
    cfl: float
    error: float
    seconds: float
    steps: float
    best: bool = False  # Whether it is the best of its grid.


@dataclass(frozen=True)
class Point:
    """A learned solver: its error (VRMSE on the runs of `test`) and the seconds that it takes for a
    trajectory."""

    name: str
    error: float
    seconds: float


def parse_point(text: str) -> Point:
    """`NAME=ERROR,SECONDS`. Raises UserError for another form."""
    name, _, numbers = text.partition("=")
    with contextlib.suppress(ValueError):
        error, seconds = (float(number) for number in numbers.split(","))
        if name and min(error, seconds) > 0 and math.isfinite(error + seconds):
            return Point(name, error, seconds)
    raise UserError(
        f"--point: {text!r} is no point; write NAME=ERROR,SECONDS, e.g. fno=0.03,0.2, both above 0"
    )


def measure(sweep: Sweep, most: int, say: Say = print) -> list[Trial]:
    """The trials of the data set's grid and of all coarser ones, from `most` runs of `test` (of
    train, if the data set has no test); those that an earlier call has made are read. Raises
    UserError for data sets whose runs are not done, or cannot be computed on another grid."""
    check_alike(sweep)
    times = frame_times(sweep)
    runs = (sweep.parts["test"] or sweep.parts["train"])[:most]
    statuses = statuses_of([run.folder for run in runs])
    waiting = [
        run.index
        for run, status in zip(runs, statuses, strict=True)
        if status.stage is not MemberState.DONE
    ]
    if waiting:
        raise UserError(
            f"{sweep.file}: run {waiting[0]} is not done; simulator dataset computes the runs first"
        )
    known = _Known(sweep.folder / _FOLDER / "trials.json", [run.hash for run in runs])
    wanted = list(_candidates(runs[0].config))
    if len(wanted) == 1:
        raise UserError(
            f"{sweep.file}: half of {grid_in_words(runs[0].config.grid.shape)} points is below "
            f"{FEWEST_POINTS}; a baseline needs a finer data set"
        )
    reference = {run.hash: _stored(sweep, run) for run in runs}
    for group in groups(runs, most=len(runs)):
        starts: Starts | None = None
        for number, config in enumerate(wanted):
            cfls = [share * _limit(config) for share in CFL]
            missing = [cfl for cfl in cfls if not known.has(config, cfl, group.runs)]
            said = f"{grid_in_words(config.grid.shape)}, {config.time.integrator}"
            if missing:
                starts = starts or Starts(group)
                solver = Solver(group, starts, config, "time.cfl")
                for cfl in missing:
                    for run in group.runs:
                        known.add(config, cfl, run, _tried(solver, run, times, cfl, reference))
                used, given = (len(s.cluster.devices) for s in (solver, starts))
                if used < given:
                    said += (
                        f", on {used} of {given} devices, the most among which it can be divided"
                    )
            say(f"{number + 1:2} of {len(wanted)}: {said}")
    trials = [known.trial(c, share * _limit(c), runs) for c in wanted for share in CFL]
    floor = floor_of(sweep) or 0.0
    return _with_best([replace(t, error=max(t.error, floor)) for t in trials])


def _candidates(config: RunConfig) -> Iterator[RunConfig]:
    """The configuration itself, then on every coarser grid with every integrator of its kind. A
    CFL number sets the pace of each."""
    dealias = config.grid.dealias

    def pace(name: str) -> dict[str, Any]:
        cfl = INTEGRATORS[name].max_cfl[dealias]
        return {"integrator": name, "cfl": cfl, "dt": None, "steps": None, "spacing": None}

    yield config.changed(time=pace(config.time.integrator))
    split = INTEGRATORS[config.time.integrator].split
    names = [
        name
        for name, kind in INTEGRATORS.items()
        if kind.split == split and not kind.growing and dealias in kind.max_cfl
    ]
    shape = [n // 2 for n in config.grid.shape if n % 2 == 0]
    while len(shape) == len(config.grid.shape) and min(shape) >= FEWEST_POINTS:
        for name in names:
            yield config.changed(grid={"shape": tuple(shape)}, time=pace(name))
        shape = [n // 2 for n in shape if n % 2 == 0]


def _limit(config: RunConfig) -> float:
    return INTEGRATORS[config.time.integrator].max_cfl[config.grid.dealias]


def _stored(sweep: Sweep, run: SweepRun) -> Frames:
    fields = sweep.runs[0].config.output.snapshots.fields
    names = fields or Starts(groups([run])[0]).fields
    return {name: sweep.array(name, runs=[run.index])[0] for name in names}


def _tried(
    solver: Solver, run: SweepRun, times: np.ndarray, cfl: float, reference: dict[str, Frames]
) -> list[float]:
    """The error, the least seconds and the steps of one run."""
    timings: list[float] = []
    try:
        frames, seconds, steps = solver.trajectory(run, times, cfl)
        timings.append(seconds)
        while len(timings) < REPETITIONS and sum(timings) < ENOUGH:
            timings.append(solver.trajectory(run, times, cfl)[1])
    except RunFailure:
        return [math.inf, math.inf, 0]
    shape = next(iter(reference[run.hash].values())).shape[-len(solver.config.grid.shape) :]
    error = distance(frames, reference[run.hash], shape)
    return [error if math.isfinite(error) else math.inf, min(timings), steps]


class _Known:
    """The trials so far, in a file that belongs to some runs."""

    def __init__(self, path: Path, runs: Sequence[str]):
        self._path = path
        stored = read_json(path)
        same = stored.get("runs") == list(runs)
        self._content = stored if same else {"runs": list(runs), "trials": {}}

    @staticmethod
    def _key(config: RunConfig, cfl: float) -> str:
        return f"{grid_in_words(config.grid.shape)}, {config.time.integrator}, cfl {cfl:.6g}"

    def has(self, config: RunConfig, cfl: float, runs: Sequence[SweepRun]) -> bool:
        results = self._content["trials"].get(self._key(config, cfl), {})
        return all(run.hash in results for run in runs)

    def add(self, config: RunConfig, cfl: float, run: SweepRun, numbers: list[float]) -> None:
        self._content["trials"].setdefault(self._key(config, cfl), {})[run.hash] = numbers
        self._path.parent.mkdir(exist_ok=True)
        replace_json(self._path, self._content)

    def trial(self, config: RunConfig, cfl: float, runs: Sequence[SweepRun]) -> Trial:
        results = self._content["trials"][self._key(config, cfl)]
        errors, seconds, steps = zip(*(results[run.hash] for run in runs), strict=True)
        return Trial(
            grid_in_words(config.grid.shape),
            config.time.integrator,
            float(f"{cfl:.6g}"),
            statistics.fmean(errors),
            statistics.median(seconds),
            statistics.fmean(steps),
        )


def _with_best(trials: Sequence[Trial]) -> list[Trial]:
    """The trials, with the best of each grid marked."""
    chosen = set()
    for grid in dict.fromkeys(trial.grid for trial in trials):
        there = [t for t in trials if t.grid == grid and math.isfinite(t.error)]
        least = min((t.error for t in there), default=math.inf)
        near = [t for t in there if t.error <= NEAR * least]
        chosen |= {min(near, key=lambda t: t.seconds)} if near else set()
    return [replace(t, best=t in chosen) for t in trials]


def comparison(point: Point, trials: Sequence[Trial]) -> str:
    """A learned solver beside the trials: the time of the cheapest with at most its error, and the
    error of the best in at most its time."""
    as_good = [t.seconds for t in trials if t.error <= point.error]
    as_quick = [t.error for t in trials if t.seconds <= point.seconds]
    equal_error = (
        f"the solver with at most this error takes {min(as_good):.3g} s, "
        f"{min(as_good) / point.seconds:.3g} times as long"
        if as_good
        else "no grid has so small an error"
    )
    equal_time = (
        f"in this time the solver has an error of {min(as_quick):.3g}"
        if as_quick
        else "no grid is so quick"
    )
    said = f"{point.name}: error {point.error:.3g} in {point.seconds:.3g} s"
    return f"{said}; {equal_error}; {equal_time}"


def floor_of(sweep: Sweep) -> float | None:
    """The distance of the data set itself to the next finer grid, below which errors mean nothing;
    None if it is not known."""
    return least_resolved(sweep).get("distance_to_finer")


def write_table(sweep: Sweep, trials: Sequence[Trial], points: Sequence[Point]) -> Path:
    """Writes all trials, and the learned solvers after them, with every digit to baseline.csv;
    returns its folder."""
    folder = sweep.folder / _FOLDER
    folder.mkdir(exist_ok=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(asdict(trials[0])), lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(asdict(trial) for trial in trials)
    for point in points:
        writer.writerow({"integrator": point.name, "error": point.error, "seconds": point.seconds})
    replace_file(folder / "baseline.csv", text.getvalue())
    return folder
