"""Recovers a flow from observations: the settings of `simulator assimilate`, and its output folder.

OUTPUT/snapshots/00000000   the recovered flow: the initial state, or with method: ensemble the
                            state at the last observation
OUTPUT/run.yaml             the base configuration, started from the recovered flow
OUTPUT/history.csv          a row for each iteration, or for each time of observations
OUTPUT/result.npz           fit, spectra and uncertainty, from which the report is drawn
OUTPUT/checkpoints/         everything on which the next iteration depends
"""

import contextlib
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from simulator.archive.manifest import clean_leftovers
from simulator.archive.run_writer import Output
from simulator.archive.snapshot_reader import open_snapshot
from simulator.archive.snapshot_writer import Options, Writer
from simulator.archive.stored_state import RunInputs, datasets, load_state
from simulator.archive.verify import newest_good, prune_saves
from simulator.cluster.start import Cluster
from simulator.config import RunConfig, as_mapping, dump_config, load_config, read_settings
from simulator.config.run_config import Places
from simulator.config.yaml12 import dump_yaml, path_of
from simulator.errors import UserError
from simulator.files import read_json, replace_file, replace_json
from simulator.measure.probes import values_at
from simulator.physics.models import State
from simulator.plugins.assimilation.background import background, uncertain_fields
from simulator.plugins.assimilation.kalman import Filter
from simulator.plugins.assimilation.observations import Observed, read_observations
from simulator.plugins.assimilation.search import At, Search
from simulator.plugins.assimilation.settings import KEYS_OF_METHOD, AssimilationSettings
from simulator.plugins.assimilation.variational import Variational
from simulator.run.lock import RunLock
from simulator.run.log import RunLog
from simulator.run.refusals import check_configuration
from simulator.run.signals import SignalFlags
from simulator.simulation.abstract_run import paper_simulation
from simulator.simulation.simulation import Simulation
from simulator.study.runs import is_compared
from simulator.words import counted, short

RECORD = "assimilation.json"
RESULT = "result.npz"
HISTORY = "history.csv"
_PROGRAM = "simulator assimilate"
_EVERY = 60.0  # Seconds between two checkpoints.
_METHODS: dict[str, type[Search[Any]]] = {"variational": Variational, "ensemble": Filter}
_FREE = ("iterations", "tolerance", "hessian_products", "output")
Row = dict[str, float]


@dataclass(frozen=True)
class Assimilation:
    settings: AssimilationSettings
    config: RunConfig  # The base.
    places: Places

    def error(self, key: str, message: str) -> UserError:
        return UserError(f"{self.places.of(path_of(key))}: {key}: {message}")

    @contextlib.contextmanager
    def blaming(self, key: str) -> Iterator[None]:
        """Adds the place of `key` to a mistake."""
        try:
            yield
        except UserError as error:
            raise self.error(key, str(error)) from None


def open_assimilation(
    path: str | os.PathLike[str], overrides: Iterable[str] = (), output: str | None = None
) -> Assimilation:
    """The assimilation that the YAML file at `path` describes; `overrides` are those of its base.
    Starts no device, writes nothing. Raises UserError with one line for each mistake."""
    defaults = {"output": f"outputs/{Path(path).stem}"}
    replacements = {"output": output} if output else {}
    settings, places = read_settings(path, AssimilationSettings, defaults, replacements)
    config = load_config(settings.base, overrides)
    if config.time.dt is None:
        raise config.error(
            "time.dt", "is required, because an assimilation takes steps of one length"
        )
    return Assimilation(settings, config, places)


def check_assimilation(task: Assimilation, processes: int = 1) -> None:
    """Raises UserError, with the place, if the search would be refused on any devices: if `run`
    would refuse the base, or if its model has no field that the prior describes. Starts no device.
    The contents of tables are left to the search."""
    check_configuration(task.config, processes)
    with task.blaming("background"):
        uncertain_fields(task.settings.background, paper_simulation(task.config, RunInputs()))


class Assimilating:
    """One start of an assimilation on one process."""

    def __init__(self, task: Assimilation, cluster: Cluster, log: RunLog, signals: SignalFlags):
        self.task = task
        self.cluster = cluster
        self.log = log
        self.signals = signals
        self.settings = task.settings
        self.folder = Path(task.settings.output)
        self.rows: list[Row] = []
        self._saved = self._began = time.monotonic()

    def run(self, overwrite: bool = False) -> int:
        """The exit code: 0 done, 3 stopped early. Raises UserError before anything is written."""
        settings = self.settings
        if self.cluster.together(lambda: self._is_finished(overwrite)):
            self.log.say(f"finished already: {short(self.folder)}")
            return 0
        simulation = Simulation(
            self.task.config, cluster=self.cluster, inputs=RunInputs(None), report=self.log.say
        )
        observed = read_observations(
            settings.observations,
            simulation,
            lambda key, text: self.task.error(f"observations.{key}", text),
        )
        with self.task.blaming("background"):
            prior = background(settings.background, simulation)
        options: dict[str, Any] = {
            key: getattr(settings, key) for key in KEYS_OF_METHOD[settings.method]
        }
        search = _METHODS[settings.method](observed, prior, **options)
        with self._owned(overwrite):
            self._writer = Writer(self.cluster)
            with contextlib.closing(self._writer):
                code = self._searched(search)
        return code

    def _record(self) -> dict[str, Any]:
        settings = self.settings.model_dump(mode="json", exclude_none=True, exclude=set(_FREE))
        config = {
            key: value for key, value in as_mapping(self.task.config).items() if is_compared(key)
        }
        return {"program": _PROGRAM, "settings": settings, "config": config}

    def _is_finished(self, overwrite: bool) -> bool:
        """Whether the folder holds the result. Raises UserError if it holds something else."""
        # Processes that are started by hand meet in a hidden file of the folder.
        if not self.folder.exists() or all(
            path.name.startswith(".") for path in self.folder.iterdir()
        ):
            return False
        record = read_json(self.folder / RECORD)
        if record.get("program") != _PROGRAM:
            raise UserError(
                f"{self.folder}: not the folder of an assimilation; give another output"
            )
        if overwrite:
            return False
        if record != self._record():
            raise UserError(
                f"{self.folder}: holds another assimilation; give another output, or --overwrite"
            )
        return (self.folder / RESULT).exists()

    @contextlib.contextmanager
    def _owned(self, overwrite: bool) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if self.cluster.is_first:
                self.folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(RunLock.acquire(self.folder, os.environ))
                if overwrite:
                    for name in ("checkpoints", "snapshots"):
                        shutil.rmtree(self.folder / name, ignore_errors=True)
                    (self.folder / RESULT).unlink(missing_ok=True)
                replace_json(self.folder / RECORD, self._record())
                self.log.open(self.folder / "run.log")
            yield

    def restored(self, like: State, simulation: Simulation) -> tuple[State, dict[str, Any]] | None:
        """The state of the newest good checkpoint, and its numbers; None if there is none."""

        def look() -> str | None:
            clean_leftovers(self.folder / "checkpoints")
            clean_leftovers(self.folder / "snapshots")
            chosen, _ = newest_good(self.folder / "checkpoints")
            return chosen and str(chosen)

        chosen = self.cluster.together(look)
        if chosen is None:
            return None
        numbers = dict(open_snapshot(Path(chosen)).attributes["assimilation"])
        self.rows = numbers.pop("rows")
        self._began -= self.rows[-1]["seconds"] if self.rows else 0
        self.log.say(f"continuing after {counted(len(self.rows), 'row')} of {HISTORY}")
        return load_state(Path(chosen), like, simulation.model), numbers

    def wrote(self, row: Row, search: Search[At], at: At) -> bool:
        """Adds the row of the point `at` to the history, and writes a checkpoint if one is due;
        returns whether to stop early."""
        now = time.monotonic()
        self.rows.append({**row, "seconds": round(now - self._began, 2)})
        stop, due = self.cluster.any(
            np.array([self.signals.received > 0, now - self._saved > _EVERY])
        )
        if self.cluster.is_first:
            lines = [
                ",".join(self.rows[0]),
                *(",".join(f"{v:.10g}" for v in r.values()) for r in self.rows),
            ]
            replace_file(self.folder / HISTORY, "\n".join(lines) + "\n")
        if stop or due or search.is_finished(at):
            self._saved = now
            state, numbers = search.stored(at)
            self._writer.submit(
                self.folder / "checkpoints",
                len(self.rows),
                datasets(state, search.simulation.model),
                {"time": 0.0, "assimilation": {**numbers, "rows": self.rows}},
                options=Options(index=False),
                after=lambda folder: prune_saves(folder.parent, 2),
            )
            self._writer.wait()
        return bool(stop)

    def _finish(self, search: Search[Any], state: State, result: dict[str, Any]) -> None:
        """Writes the flow, the configuration that starts from it, and the result."""
        simulation = search.simulation
        result.setdefault("rms", np.sqrt([row["misfit"] for row in self.rows]))
        result["time"] = simulation.first_time + search.steps * search.dt
        result["number"] = search.number(int(search.steps[-1]))
        if located := [one for one in search.observed if one.positions is not None]:
            result |= plane(simulation, state, located[0], search.shown)
        inside = {"configuration": dump_config(simulation.config)}
        output = Output(simulation, self.folder, self._writer, inside=inside)
        output.snapshot(state)
        stored = self._writer.wait()
        if self.cluster.is_first and stored is not None:
            mapping = as_mapping(simulation.config)
            mapping["initial"] = {
                "kind": "snapshot",
                "path": str(stored.absolute()),
                "time": "keep",
            }
            mapping["time"]["stop"] += float(state.time) - simulation.first_time
            mapping["output"]["directory"] = str((self.folder / "run").absolute())
            replace_file(self.folder / "run.yaml", dump_yaml(mapping))
            temporary = self.folder / "result.partial.npz"
            np.savez(temporary, **result)
            temporary.replace(self.folder / RESULT)

    def _searched(self, search: Search[At]) -> int:
        checkpoint = self.restored(search.template(), search.simulation)
        at = search.loaded(*checkpoint) if checkpoint else search.first()
        while not search.is_finished(at):
            at, row, said = search.next(at)
            self.log.say(said)
            if self.wrote(row, search, at):
                self.log.say("stopped; the same command continues")
                return 3
        state, result = search.recovered(at, self.log.say)
        if "expected_misfit" in result:
            self.log.say(
                f"misfit {self.rows[-1]['misfit']:.4g} (expected {result['expected_misfit']:.4g})"
            )
        self._finish(search, state, result)
        return 0


def plane(simulation: Simulation, state: State, observed: Observed, number: int) -> dict[str, Any]:
    """The first observed variable on the plane of the grid through the first point, or in one
    dimension on the line, and the points there, with their observations at the time `number`."""
    assert observed.positions is not None
    grid = simulation.grid
    column, (field, component) = next(iter(observed.variables.items()))
    points = observed.positions[: len(observed.positions) // len(observed.variables)]
    places = [np.arange(n) * h for n, h in zip(grid.shape, grid.spacing, strict=True)]
    here = np.arange(len(points))
    if grid.dimensions == 3:
        places[2] = points[:1, 2]
        here = np.flatnonzero(abs(points[:, 2] - points[0, 2]) < 1e-6 * grid.box[2])
    layout = simulation.model.transforms[field].layout
    interpolate = partial(values_at, layout, positions=places)
    values = jax.jit(interpolate, out_shardings=layout.everywhere)(state.fields[field])
    image = np.asarray(values).reshape(-1, *grid.seen(grid.shape)[:2])[component]
    observations = {
        "points": points[here, :2],
        "values": observed.values[number][here],
        "seen": observed.weight[number][here] > 0,
    }
    return {"variable": column, "image": image, "box": grid.seen(grid.box)[:2], **observations}
