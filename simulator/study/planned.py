"""A sweep as its folder describes it. Opening it validates no configuration and needs no JAX."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from simulator.archive.run_state import CONFIG
from simulator.config import read_settings
from simulator.config.load import output_directory, usable_stem
from simulator.errors import UserError
from simulator.files import read_json
from simulator.run.folder import PLAN, SWEEP
from simulator.study import table as collect
from simulator.study.settings import study_settings
from simulator.study.study_status import MemberStatus, statuses_of
from simulator.words import brief, version_of


@dataclass(frozen=True)
class PlannedRun:
    """A run of a sweep, without its configuration. `values`: the keys that the sweep sets, with
    their values in the run's configuration."""

    index: int
    hash: str
    values: Mapping[str, Any]
    folder: Path


@dataclass(frozen=True, repr=False)
class PlannedSweep:
    """The runs of a sweep by number, hash, values and folder."""

    file: Path
    name: str
    folder: Path  # OUTPUT/NAME
    runs: Sequence[PlannedRun]
    collected: tuple[collect.Expression, ...]

    @cached_property
    def swept(self) -> tuple[str, ...]:
        """The keys that the sweep sets, in the order of the file."""
        return tuple(dict.fromkeys(key for run in self.runs for key in run.values))

    @cached_property
    def varied(self) -> tuple[str, ...]:
        """The keys whose values differ between the runs; all swept keys if there is only one
        run."""
        values = [run.values for run in self.runs]
        first = self.runs[0].values
        different = (k for k in self.swept if any(v.get(k) != first.get(k) for v in values))
        return tuple(different) or self.swept

    @property
    def common(self) -> str:
        """The values that all runs share: `time.stop=10 precision=single`, or nothing."""
        same = {key: item for key, item in self.runs[0].values.items() if key not in self.varied}
        return " ".join(f"{key}={brief(item)}" for key, item in same.items())

    def label(self, run: PlannedRun) -> str:
        """The values that distinguish a run: `model.viscosity=0.001 precision=single`."""
        return " ".join(
            f"{key}={brief(run.values[key])}" for key in self.varied if key in run.values
        )

    def statuses(self) -> list[MemberStatus]:
        """The present status of each run."""
        return statuses_of([run.folder for run in self.runs])

    def rows(self, statuses: Sequence[MemberStatus] | None = None) -> list[dict[str, Any]]:
        """One row per run: `index`, `run` (its hash), `state`, the swept keys, the collected
        quantities. A key that a run lacks is None; quantities of unfinished runs are nan."""
        rows = []
        for run, status in zip(self.runs, statuses or self.statuses(), strict=True):
            name = {"index": run.index, "run": run.hash, "state": str(status.stage)}
            values = {key: run.values.get(key) for key in self.swept}
            rows.append(name | values | collect.collected(run.folder, self.collected, status))
        return rows


def open_plan(path: str | os.PathLike[str]) -> PlannedSweep | None:
    """The sweep in the file at `path` as `Sweep.prepare` planned it; None if nothing is planned
    yet, or if one of the files of which the plan was made has changed since. Raises UserError for
    mistakes in the sweep's file."""
    settings, _ = read_settings(path, study_settings(), {"name": usable_stem(os.fspath(path))})
    file = Path(os.path.abspath(path))
    folder = folder_of(file, output_directory(settings.base), settings.name)
    plan = read_json(folder / PLAN)
    if plan.get("program") != SWEEP or plan.get("version") != version_of():
        return None
    sources = plan.get("sources", {})
    if str(file) not in sources or any(source_sum(Path(p)) != sources[p] for p in sources):
        return None
    present = [entry for entry in plan["runs"] if entry["index"] not in plan["earlier"]]
    runs = [PlannedRun(**entry, folder=folder / entry["hash"]) for entry in present]
    expressions = tuple(map(collect.parse, settings.collect))
    return PlannedSweep(file, settings.name, folder, runs, expressions)


def folder_of(file: Path, output: Path, name: str) -> Path:
    """The folder of the sweep in `file`: `output`/`name`, which starts at the current folder unless
    output.directory is absolute. If the sweep was planned in a folder above `file` and not from
    here, the folder that it has there."""
    if output.is_relative_to(here := Path.cwd()):
        for start in (here, *file.parents):
            folder = start / output.relative_to(here) / name
            if read_json(folder / PLAN).get("file") == str(file):
                return folder
    return output / name


def source_sum(path: Path) -> str:
    """The SHA-256 of a file; for a folder, of its manifest, which covers the other files, for a run
    of the manifests of its snapshots, else of all its files."""
    if (path / "manifest.json").is_file():
        path = path / "manifest.json"
    if path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256()
    inside = (
        path.glob("snapshots/*/manifest.json") if (path / CONFIG).is_file() else path.rglob("*")
    )
    for file in sorted(entry for entry in inside if entry.is_file()):
        digest.update(f"{file.relative_to(path)}\0{source_sum(file)}\n".encode())
    return digest.hexdigest()


def read_plan(folder: Path) -> list[Mapping[str, Any]]:
    """The entries of `folder`/plan.json: `index`, `hash`, `values`. Raises UserError for a foreign
    `folder`."""
    plan = read_json(folder / PLAN)
    if plan.get("program") == SWEEP:
        return plan["runs"]
    if folder.exists() and (
        not folder.is_dir() or any(not entry.name.startswith(".") for entry in folder.iterdir())
    ):
        raise UserError(f"{folder}: not the folder of a sweep; give this sweep another name")
    return []


def planned_folder(folder: Path, index: int) -> Path:
    """The folder of run `index` of the sweep in `folder`, from plan.json alone: quickly, and
    independently of the file of the sweep, which may have changed."""
    for entry in read_plan(folder):
        if entry["index"] == index:
            return folder / entry["hash"]
    raise UserError(f"--index: the sweep in {folder} has no run {index}")
