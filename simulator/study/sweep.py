"""A sweep: its file, its runs and their folders.

OUTPUT/NAME/plan.json       numbers, hashes and values of all runs, including those of earlier
                            versions of the file
OUTPUT/NAME/HASH/           an ordinary run folder for each run
OUTPUT/NAME/logs/ plots/    output of array tasks; pictures of the whole sweep
"""

import itertools
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from simulator.archive.open_run import open_run
from simulator.archive.run_state import CONFIG
from simulator.config import (
    RunConfig,
    diff_configs,
    load_config,
    read_settings,
)
from simulator.config.blocks import FURTHER
from simulator.config.compare import Programs, leaves, zero_or_number
from simulator.config.load import ConfigFile, ConfigTexts, as_mapping, usable_stem
from simulator.config.overrides import Override
from simulator.config.run_config import Places
from simulator.config.yaml12 import path_of, value_at
from simulator.errors import UserError
from simulator.files import replace_file, replace_json
from simulator.plan.step_memory import Estimate, estimate
from simulator.run.folder import PLAN, SWEEP, FolderContent, RunFolder
from simulator.run.refusals import check_configuration
from simulator.settings import RootedText
from simulator.study import table as collect
from simulator.study.expansion import Value, Values, expand_blocks, swept_keys
from simulator.study.extension import StudyBlock
from simulator.study.planned import PlannedSweep, folder_of, read_plan, source_sum
from simulator.study.runs import Identities, SweepRun
from simulator.study.settings import SweepSettings, study_settings
from simulator.study.study_status import MemberState, status_counts, statuses_of
from simulator.study.sweep_array import SweepArray
from simulator.words import Shown, brief, counted, each_leaf, short, version_of


@dataclass(frozen=True, repr=False)
class Sweep(PlannedSweep, Shown):
    """The runs that a sweep's file describes. A notebook and `print` show them on one screen."""

    runs: tuple[SweepRun, ...]
    settings: SweepSettings
    sources: Mapping[str, str]  # The checksums of the files that describe the runs, by path.
    # Entries of plan.json for runs that are no longer in the file.
    earlier: tuple[Mapping[str, Any], ...]

    def run(self, index: int) -> SweepRun:
        """The run with this number. Raises UserError if there is none."""
        known = {run.index: run for run in self.runs}
        if index in known:
            return known[index]
        first = min(known)
        last = max(known)
        text = (
            f"{first} to {last}" if len(known) == last - first + 1 else ", ".join(map(str, known))
        )
        raise UserError(f"--index: {self.file} has no run {index}; it has {text}")

    def check(self, runs: Sequence[SweepRun] | None = None) -> None:
        """Raises UserError with a line for each mistake for which `run` would refuse one of `runs`
        (default: all).

        Takes up to a second per checked run, because the user's files are loaded and called. Of
        runs that differ only in numbers the first is checked, and for each number the runs with the
        smallest and the largest value; every configuration was validated when the sweep was opened.
        Writes nothing."""
        mistakes: dict[str, None] = {}
        for run in self._extremes(self.runs if runs is None else runs):
            try:
                check_configuration(run.config)
            except UserError as error:
                mistakes |= dict.fromkeys(error.args)
        if mistakes:
            raise UserError(*mistakes)

    def _extremes(self, runs: Sequence[SweepRun]) -> list[SweepRun]:
        """The first run of each group of runs that are `alike`, and the runs with the smallest and
        the largest value of each key."""
        groups: dict[str, list[SweepRun]] = defaultdict(list)
        for run in runs:
            groups[run.alike].append(run)
        chosen: dict[str, SweepRun] = {}
        for group in groups.values():
            chosen[group[0].hash] = group[0]
            for key in self.varied:
                ordered = [run for run in group if isinstance(run.values.get(key), int | float)]
                for pick in (min, max) if ordered else ():
                    run = pick(ordered, key=lambda run, key=key: run.values[key])
                    chosen[run.hash] = run
        return list(chosen.values())

    def prepare(self) -> list[str]:
        """Writes plan.json, and every configuration into its run's folder; returns lines about
        changed keys.

        A run that has started keeps its configuration but for keys of `output`, which follow the
        file to its end."""
        lines: list[str] = []
        self.folder.mkdir(parents=True, exist_ok=True)
        entries = [
            *self.earlier,
            *({"index": r.index, "hash": r.hash, "values": r.values} for r in self.runs),
        ]
        plan: dict[str, Any] = {
            "program": SWEEP,
            "version": version_of(),
            "file": str(self.file),
            "base": str(self.settings.base),
            "sources": self.sources,
            "earlier": [entry["index"] for entry in self.earlier],
        }
        plan["runs"] = sorted(entries, key=lambda entry: entry["index"])
        replace_json(self.folder / PLAN, plan)
        texts = ConfigTexts()
        for run in self.runs:
            lines += _freeze(run, texts.of(run.config))
        return lines

    def table(self) -> Any:
        """The swept values and the collected quantities, one row per run, as a pandas frame if
        pandas is installed, else as a dict of arrays by column. `state` marks unfinished runs,
        whose quantities are nan."""
        return collect.frame(self.rows())

    def array(self, field: str, *, runs: str | Sequence[int] | None = None) -> SweepArray:
        """The snapshots of a field as a lazy array (run, time, component, x, y, z); shape and dtype
        are known without reading values. `runs`: numbers of runs, or the name of one of
        `parts`, such as `train` of a data set; by default all. Raises UserError if a run is not
        done, has no such field, or has other frames than the first run."""
        chosen = self._chosen(runs)
        statuses = zip(chosen, statuses_of([run.folder for run in chosen]), strict=True)
        if waiting := [
            str(run.index) for run, status in statuses if status.stage is not MemberState.DONE
        ]:
            first = ", ".join([*waiting[:5], *["..."] * (len(waiting) > 5)])
            raise UserError(
                f"{self.file}: {counted(len(waiting), 'run')} not done ({first}); choose others by runs=[...]"
            )
        return SweepArray(field, chosen)

    @cached_property
    def blocks(self) -> Mapping[str, StudyBlock]:
        """The blocks of plugins by key, those that the file lacks with their defaults."""
        return {
            key: kind() if block is None else block for key, kind, block in _blocks(self.settings)
        }

    @cached_property
    def parts(self) -> Mapping[str, Sequence[SweepRun]]:
        """The runs of each part that a plugin makes of the study, by the part's name."""
        by_number = {run.index: run for run in self.runs}
        return {
            name: [by_number[index] for index in numbers]
            for block in self.blocks.values()
            for name, numbers in block.parts(self).items()
        }

    def __getattr__(self, name: str) -> Any:
        """An attribute that a plugin adds."""
        if not name.startswith("_"):  # `copy` asks before there are fields
            for block in self.blocks.values():
                if name in block.attributes:
                    return block.attributes[name](self)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _chosen(self, runs: str | Sequence[int] | None) -> Sequence[SweepRun]:
        if isinstance(runs, str):
            if runs not in self.parts:
                raise UserError(f"runs: {runs!r} is none of {', '.join(self.parts) or 'no parts'}")
            return self.parts[runs]
        return self.runs if runs is None else [self.run(index) for index in runs]

    def shown(self) -> tuple[str, Mapping[str, Any]]:
        statuses = self.statuses()
        rows: dict[str, Any] = {
            "runs": f"{len(self.runs)}: {status_counts(statuses)}",
            "folder": str(short(self.folder)),
        }
        for key in self.varied[:12]:
            items = list(dict.fromkeys(brief(run.values.get(key)) for run in self.runs))
            rows[key] = ", ".join(
                items if len(items) < 7 else [*items[:5], f"... {len(items)} values"]
            )
        rows["all runs"] = self.common
        finished = [
            run
            for run, status in zip(self.runs, statuses, strict=True)
            if status.stage is MemberState.DONE
        ]
        frames = open_run(finished[0].folder).snapshots if finished else []
        for name, field in (frames[0] if frames else {}).items():
            rows[name] = (
                f"(run, time, ...) = {(len(finished), len(frames), *field.shape)} {field.dtype}"
            )
        for block in self.blocks.values():
            rows |= block.shown(self)
        return f"sweep {self.name}", rows

    __repr__ = Shown.__str__


def _blocks(
    settings: SweepSettings,
) -> Iterator[tuple[str, type[StudyBlock], StudyBlock | None]]:
    """The key and the class of each block of a plugin, and the block; None if the file lacks it."""
    for key, kind in FURTHER.beginning_with("study.").items():
        if issubclass(kind, StudyBlock):
            yield key, kind, getattr(settings, key)


def open_sweep(path: str | os.PathLike[str]) -> Sweep:
    """The sweep that the YAML file at `path` describes.

    Reads the file and its base, starts no device, writes nothing. Raises UserError with one line
    for each mistake in the file and in the configurations of its runs; `Sweep.check` finds mistakes
    in their input files."""
    settings, places = read_settings(path, study_settings(), {"name": usable_stem(os.fspath(path))})
    assignments = expand_blocks(settings.sweep, places)
    file = Path(os.path.abspath(path))
    resolved = _resolve(settings, assignments, file)
    folder = folder_of(file, resolved[0].config.output.directory, settings.name)
    plan = read_plan(folder)
    identities = Identities({key: path_of(key) for key in swept_keys(settings.sweep)})
    runs = _number(resolved, assignments, identities, folder, plan, places)
    hashes = {run.hash for run in runs}
    earlier = tuple(entry for entry in plan if entry["hash"] not in hashes)
    sources = {str(path): source_sum(path) for path in (file, settings.base)} | identities.sources
    collected = _collected(settings, runs, places)
    return Sweep(file, settings.name, folder, runs, collected, settings, sources, earlier)


class _Resolved(NamedTuple):
    """A run's configuration, and what follows from it."""

    config: RunConfig
    needs: Estimate
    alike: str  # See `SweepRun.alike`.


def _resolve(settings: SweepSettings, assignments: Sequence[Values], file: Path) -> list[_Resolved]:
    resolved: list[_Resolved] = []
    mistakes: dict[str, None] = {}
    base = ConfigFile(short(settings.base))
    present = [block for *_, block in _blocks(settings) if block is not None]
    for assignment in assignments:
        try:
            config = base.config(_overrides(assignment, file))
            for block in present:
                config = block.configured(config)
            mapping = as_mapping(config)
            key = Programs(config, mapping)
            needs = estimate(config, key)
            resolved.append(_Resolved(config, needs, _alike(key, mapping)))
        except UserError as error:
            mistakes |= dict.fromkeys(error.args)
    if mistakes:
        raise UserError(*mistakes)
    return resolved


def _alike(key: Programs, mapping: Mapping[str, Any]) -> str:
    begun = [
        (name, zero_or_number(item))
        for name, item in leaves(mapping["initial"])
        if not name.endswith("seed")
    ]
    output = mapping["output"] | {"directory": None}
    return sys.intern(json.dumps([key.text, begun, output], default=str))


def _overrides(assignment: Values, file: Path) -> list[Override]:
    """The run's values as overrides of the base; input paths in them start at the folder of the
    sweep's file."""

    def rooted(value: object) -> Any:
        return RootedText(value).from_folder(str(file.parent)) if isinstance(value, str) else value

    return [
        Override(path_of(key), each_leaf(v.value, rooted), v.place) for key, v in assignment.items()
    ]


def _number(
    resolved: Sequence[_Resolved],
    assignments: Sequence[Values],
    identities: Identities,
    folder: Path,
    plan: Sequence[Mapping[str, Any]],
    places: Places,
) -> tuple[SweepRun, ...]:
    known = {entry["hash"]: int(entry["index"]) for entry in plan}
    following = itertools.count(max(known.values(), default=-1) + 1)
    runs: dict[str, SweepRun] = {}
    by_hash: dict[str, Values] = {}
    mistakes: list[str] = []
    for run, assignment in zip(resolved, assignments, strict=True):
        mapping = as_mapping(run.config)
        hash_ = identities.of(run.config, mapping)
        if hash_ in runs:
            mistakes.append(_same(by_hash[hash_], assignment, places))
            continue
        index = known[hash_] if hash_ in known else next(following)
        config = run.config.changed(output={"directory": folder / hash_})
        values = {
            key: value_at(mapping, path)
            for key, path in identities.varied.items()
            if key in assignment
        }
        runs[hash_] = SweepRun(index, hash_, values, folder / hash_, config, run.needs, run.alike)
        by_hash[hash_] = assignment
    if mistakes:
        raise UserError(*dict.fromkeys(mistakes))
    return tuple(sorted(runs.values(), key=lambda run: run.index))


def _same(one: Values, other: Values, places: Places) -> str:
    """The message for two runs with the same configuration, at the value that generates the second
    run."""
    differing = [item for key, item in other.items() if key not in one or one[key] != item]
    blamed = differing[-1] if differing else Value(None, ("sweep",), places.of(("sweep",)))
    label = ", ".join(f"{key}: {brief(item.value)}" for key, item in one.items())
    key = ".".join(map(str, blamed.path))
    return f"{blamed.place}: {key}: gives the run with {label} twice; leave one of them out"


def _collected(
    settings: SweepSettings, runs: Sequence[SweepRun], places: Places
) -> tuple[collect.Expression, ...]:
    known = dict.fromkeys(name for run in runs for name in run.estimate.columns)
    expressions: list[collect.Expression] = []
    mistakes: list[str] = []
    for i, text in enumerate(settings.collect):
        try:
            expression = collect.parse(text, known)
            if expression in expressions:
                raise ValueError(f"{text!r} is listed twice; leave one of them out")
            expressions.append(expression)
        except ValueError as error:
            mistakes.append(f"{places.of(('collect', i))}: collect.{i}: {error}")
    if mistakes:
        raise UserError(*mistakes)
    return tuple(expressions)


def _freeze(run: SweepRun, text: str) -> list[str]:
    """Writes `text`, the run's configuration, unless the run is finished; returns lines about changed
    keys."""
    stage = RunFolder(run.folder).content()
    if stage is FolderContent.FOREIGN:
        raise UserError(f"{run.folder}: not a run of this program; move it away")
    path = run.folder / CONFIG
    if stage is FolderContent.FINISHED or (path.exists() and path.read_text() == text):
        return []
    lines: list[str] = []
    if stage is FolderContent.UNFINISHED:
        old = load_config(path, check_files=False)
        lines = [
            f"{run.index}: {d.key}: {brief(d.old)} -> {brief(d.new)}"
            for d in diff_configs(old, run.config)
        ]
    run.folder.mkdir(exist_ok=True)
    replace_file(path, text)
    return lines
