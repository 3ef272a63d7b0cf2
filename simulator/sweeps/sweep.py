"""A sweep: its file, the runs that it describes, and where they lie.

OUTPUT/NAME/plan.json       numbers, hashes and values of all runs, those of earlier versions of the file too
OUTPUT/NAME/HASH/           one run each, a run folder like any other
OUTPUT/NAME/logs/ plots/    output of array tasks; pictures of the whole sweep
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simulator.config import RunConfig, as_mapping, dump_config, load_config, read_yaml
from simulator.config.messages import explain
from simulator.config.overrides import Override
from simulator.config.run_config import Places
from simulator.errors import UserError
from simulator.files import replace_file, replace_json
from simulator.planning.estimate import Estimate, estimate
from simulator.run.folder import CONFIG, PLAN, SWEEP, Found, RunFolder
from simulator.sweeps import collect
from simulator.sweeps.expansion import Value, Values, expand, keys, override
from simulator.sweeps.identity import identity, value
from simulator.sweeps.settings import SweepSettings


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep. `values` holds the keys that the sweep sets, as the run's configuration has them."""

    index: int
    hash: str
    values: Mapping[str, Any]
    config: RunConfig
    folder: Path
    estimate: Estimate


@dataclass(frozen=True)
class Sweep:
    """What a sweep's file describes, everything in it checked. Nothing was written."""

    file: Path
    settings: SweepSettings
    folder: Path
    """OUTPUT/NAME"""
    runs: tuple[SweepRun, ...]
    collected: tuple[collect.Expression, ...]
    earlier: tuple[Mapping[str, Any], ...]
    """Entries of plan.json of runs that the file does not describe any more."""

    @property
    def name(self) -> str:
        return self.settings.name

    @cached_property
    def swept(self) -> tuple[str, ...]:
        """The keys that the sweep sets, in the order of the file."""
        return tuple(dict.fromkeys(key for run in self.runs for key in run.values))

    @cached_property
    def varied(self) -> tuple[str, ...]:
        """Those of them that tell its runs apart; all of them where there is only one run."""
        first = self.runs[0].values
        found = tuple(
            key for key in self.swept if any(run.values.get(key) != first.get(key) for run in self.runs)
        )
        return found or self.swept

    @property
    def common(self) -> str:
        """What all runs are given alike: `time.stop=10 precision=single`, or nothing."""
        same = {key: item for key, item in self.runs[0].values.items() if key not in self.varied}
        return " ".join(f"{key}={shown(item)}" for key, item in same.items())

    def label(self, run: SweepRun) -> str:
        """What tells a run from the others: `model.viscosity=0.001 precision=single`."""
        return " ".join(f"{key}={shown(run.values[key])}" for key in self.varied if key in run.values)

    def run(self, index: int) -> SweepRun:
        """The run with this number. UserError where there is none."""
        for run in self.runs:
            if run.index == index:
                return run
        known = [run.index for run in self.runs]
        text = (
            f"{known[0]} to {known[-1]}" if known == list(range(known[0], known[-1] + 1)) else _listed(known)
        )
        raise UserError(f"--index: {self.file} has no run {index}; it has {text}")

    def prepare(self) -> list[str]:
        """Freezes every configuration into its run's folder and writes plan.json; returns lines on what changed.

        A run that has started keeps its configuration, except for keys of `output`, which follow the file
        until it is finished.
        """
        lines: list[str] = []
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            entries = [
                *self.earlier,
                *({"index": r.index, "hash": r.hash, "values": r.values} for r in self.runs),
            ]
            replace_json(
                self.folder / PLAN,
                {
                    "program": SWEEP,
                    "file": str(self.file),
                    "base": str(self.settings.base),
                    "runs": sorted(entries, key=lambda entry: entry["index"]),
                },
            )
            for run in self.runs:
                lines += _freeze(run)
        except OSError as error:
            raise UserError(f"{error.filename or self.folder}: {error.strerror}") from None
        return lines

    def table(self) -> Any:
        """The swept values and the collected quantities, one row per run: a pandas frame where pandas is
        installed, else a dict of arrays by column. `state` marks unfinished runs; what they would give is nan."""
        from simulator.sweeps.table import frame

        return frame(self)


def open_sweep(path: str | os.PathLike[str]) -> Sweep:
    """The sweep that the YAML file at `path` describes.

    Reads and checks everything, starts no device, writes nothing. Raises UserError with one line for each mistake
    of the file and of all its runs.
    """
    name = os.fspath(path)
    document = read_yaml(name, needs="a sweep needs at least base and sweep")
    places = Places({key: f"{name}:{line}" for key, line in document.lines.items()})
    data = {"name": re.sub(r"[^\w.+-]", "_", Path(name).stem), **document.value}
    context = {"folder": os.path.dirname(os.path.abspath(name)), "check_files": True}
    try:
        settings = SweepSettings.model_validate(data, context=context)
    except ValidationError as error:
        raise explain(error, SweepSettings, data, places) from None
    assignments = expand(settings.sweep, places)
    file = Path(os.path.abspath(name))
    resolved = _resolve(settings, assignments, file)
    folder = resolved[0][0].output.directory / settings.name
    plan = read_plan(folder)
    runs = _number(settings, resolved, assignments, folder, plan, places)
    hashes = {run.hash for run in runs}
    earlier = tuple(entry for entry in plan if entry["hash"] not in hashes)
    return Sweep(file, settings, folder, runs, _collected(settings, runs, places), earlier)


# ---- from values to runs ---------------------------------------------------------------------------------


def _resolve(
    settings: SweepSettings, assignments: Sequence[Values], file: Path
) -> list[tuple[RunConfig, Estimate]]:
    """The configuration of every run and what it needs; the mistakes of all of them together."""
    found: list[tuple[RunConfig, Estimate]] = []
    mistakes: dict[str, None] = {}
    base = _as_typed(settings.base)
    for assignment in assignments:
        try:
            config = load_config(base, _overrides(base, assignment, file))
            _check(config)
            found.append((config, estimate(config)))
        except UserError as error:
            mistakes |= dict.fromkeys(str(error).splitlines())
    if mistakes:
        raise UserError("\n".join(mistakes))
    return found


def _as_typed(path: Path) -> str:
    """Relative to the current folder where it lies below it: for messages."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def _overrides(base: str, assignment: Values, file: Path) -> list[Override]:
    """The run's values as overrides of the base; input paths among them start at the sweep's folder."""
    found = {key: override(key, item) for key, item in assignment.items()}
    texts = [key for key, item in assignment.items() if isinstance(item.value, str)]
    if texts and file.parent != Path(os.path.abspath(base)).parent:
        try:
            probe = load_config(base, found.values(), check_files=False)
        except UserError:
            return list(found.values())
        for key in texts:
            if isinstance(_attribute(probe, key), Path):
                rooted = file.parent / os.path.expanduser(os.path.expandvars(assignment[key].value))
                found[key] = replace(found[key], value=str(rooted))
    return list(found.values())


def _attribute(settings: Any, key: str) -> Any:
    for part in key.split("."):
        settings = getattr(settings, part, None)
    return settings


def _check(config: RunConfig) -> None:
    """What needs more than the configuration, and no device."""
    if config.devices.count != "auto":
        from simulator.run.sharing import check_devices

        check_devices(config, config.devices.count)


def _number(
    settings: SweepSettings,
    resolved: Sequence[tuple[RunConfig, Estimate]],
    assignments: Sequence[Values],
    folder: Path,
    plan: Sequence[Mapping[str, Any]],
    places: Places,
) -> tuple[SweepRun, ...]:
    """The runs, each with its hash and its number: the one that it has in plan.json, or the next free one."""
    varied = keys(settings.sweep)
    known = {entry["hash"]: int(entry["index"]) for entry in plan}
    following = max(known.values(), default=-1) + 1
    runs: dict[str, SweepRun] = {}
    given: dict[str, Values] = {}
    mistakes: list[str] = []
    for (config, needs), assignment in zip(resolved, assignments, strict=True):
        found = identity(config, varied)
        if found in runs:
            mistakes.append(_same(given[found], assignment, places))
            continue
        index = known.get(found)
        if index is None:
            index, following = following, following + 1
        where = folder / found
        whole = as_mapping(config)
        config = config.model_copy(update={"output": config.output.model_copy(update={"directory": where})})
        values = {key: value(whole, key) for key in varied if key in assignment}
        runs[found] = SweepRun(index, found, values, config, where, needs)
        given[found] = assignment
    if mistakes:
        raise UserError("\n".join(dict.fromkeys(mistakes)))
    return tuple(sorted(runs.values(), key=lambda run: run.index))


def _same(one: Values, other: Values, places: Places) -> str:
    """The message for two runs with one configuration, at the value that makes the second of them."""
    differing = [item for key, item in other.items() if key not in one or one[key] != item]
    blamed = differing[-1] if differing else Value(None, ("sweep",), places.of(("sweep",)))
    label = ", ".join(f"{key}: {shown(item.value)}" for key, item in one.items())
    key = ".".join(map(str, blamed.path))
    return f"{blamed.place}: {key}: gives a run twice, the one with {label}; leave one of them out"


def _collected(
    settings: SweepSettings, runs: Sequence[SweepRun], places: Places
) -> tuple[collect.Expression, ...]:
    known = dict.fromkeys(name for run in runs for name in run.estimate.columns)
    found: list[collect.Expression] = []
    mistakes: list[str] = []
    for i, text in enumerate(settings.collect):
        try:
            expression = collect.parse(text)
            message = collect.unknown_column(expression, known)
        except ValueError as error:
            expression, message = None, str(error)
        if expression in found:
            message = f"{text!r} is there twice; leave one of them out"
        if message is not None:
            mistakes.append(f"{places.of(('collect', i))}: collect.{i}: {message}")
        elif expression is not None:
            found.append(expression)
    if mistakes:
        raise UserError("\n".join(mistakes))
    return tuple(found)


# ---- files -----------------------------------------------------------------------------------------------


def read_plan(folder: Path) -> list[Mapping[str, Any]]:
    """The entries of `folder`/plan.json: `index`, `hash`, `values`. UserError where the folder holds something
    else than a sweep."""
    path = folder / PLAN
    try:
        content = json.loads(path.read_text())
        if content["program"] != SWEEP:
            raise KeyError("program")
        return [dict(entry, index=int(entry["index"]), hash=str(entry["hash"])) for entry in content["runs"]]
    except FileNotFoundError:
        if folder.is_dir() and any(not entry.name.startswith(".") for entry in folder.iterdir()):
            raise UserError(
                f"{folder}: holds something else than a sweep; give this one another name"
            ) from None
        return []
    except NotADirectoryError:
        raise UserError(f"{folder}: is no folder; give this sweep another name") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{path}: cannot be read as the plan of a sweep; give this one another name"
        ) from None


def planned_folder(folder: Path, index: int) -> Path:
    """The run folder of run `index` of the sweep in `folder`, by its plan.json alone: quick, and whatever became
    of the sweep's file."""
    for entry in read_plan(folder):
        if entry["index"] == index:
            return folder / entry["hash"]
    raise UserError(f"--index: the sweep in {folder} has no run {index}")


def _freeze(run: SweepRun) -> list[str]:
    """Writes the run's configuration unless it is finished; lines on the keys of an earlier one that changed."""
    found = RunFolder(run.folder).found()
    if found is Found.FOREIGN:
        raise UserError(f"{run.folder}: not a run of this program; move it away")
    path, text = run.folder / CONFIG, dump_config(run.config)
    if found is Found.FINISHED or (path.exists() and path.read_text() == text):
        return []
    lines: list[str] = []
    if found is Found.UNFINISHED:
        from simulator.config import diff_configs

        old = load_config(path, check_files=False)
        lines = [
            f"{run.index}: {d.key}: {shown(d.old)} -> {shown(d.new)}" for d in diff_configs(old, run.config)
        ]
    run.folder.mkdir(exist_ok=True)
    replace_file(path, text)
    return lines


def shown(item: Any) -> str:
    """A value in a few characters."""
    match item:
        case None:
            return "none"
        case bool():
            return str(item).lower()
        case float():
            return f"{item:.6g}"
        case list() | tuple():
            return ",".join(shown(part) for part in item)
        case dict():
            return "{" + ", ".join(f"{key}: {shown(part)}" for key, part in item.items()) + "}"
    return str(item)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
