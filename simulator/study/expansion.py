"""Expands the blocks of a sweep's file into a set of values for each run."""

import hashlib
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.config.blocks import EXCLUSIVE
from simulator.config.run_config import Places
from simulator.config.yaml12 import Path, dotted
from simulator.errors import UserError, did_you_mean
from simulator.settings import evaluate_number
from simulator.study.settings import Blocks, Distribution, SampleSettings
from simulator.words import each_leaf

MOST_RUNS = 10_000

_REFUSED = {
    "name": "names the run's folder, which in a sweep is named by the run's hash; leave it out",
    "output": "cannot be swept as a whole; sweep one of its keys, e.g. output.diagnostics.every",
    "output.directory": "is the folder of all runs of the sweep; give it in the base",
    "slurm": "applies to the whole array; give it in this file's slurm block",
}
_EXCLUSIVE = tuple(f"time.{key}" for key in EXCLUSIVE)


@dataclass(frozen=True)
class Value:
    """A value of a run, and the origin of the value in the sweep's file."""

    value: Any
    path: Path
    place: str


Lists = Mapping[str, Sequence[Any]]
Values = Mapping[str, Value]  # Values by key of the run's file (`model.viscosity`).


def swept_keys(blocks: Blocks) -> list[str]:
    """Every key that the sweep sets, in the order of the blocks."""
    return list(dict.fromkeys(str(path[-1]) for path in _key_paths(blocks)))


def expand_blocks(blocks: Blocks, places: Places) -> list[Values]:
    """The values of every run: the product of grid, zip, list and sample (the first varies
    slowest), where the points of `sample` belong to the values of `zip`, without the runs that
    `exclude` matches. Raises UserError with a line for each mistake: `sweep.yaml:5:
    sweep.zip.time.cfl: ...`."""
    expansion = _Expansion(places)
    factors = list(expansion.factors(blocks))
    if not factors:
        expansion.wrong(("sweep",), "varies nothing; give grid, zip, list or sample")
    expansion.check_keys(blocks)
    number = math.prod(map(len, factors))
    if number > MOST_RUNS:
        expansion.wrong(("sweep",), f"has {number} runs; at most {MOST_RUNS} are possible")
    expansion.raise_mistakes()
    runs = [_merged(parts) for parts in itertools.product(*factors)]
    expansion.check_exclusive(runs)
    included = expansion.without_excluded(runs, blocks)
    expansion.raise_mistakes()
    return included


def _merged(parts: Iterable[Values]) -> dict[str, Value]:
    return {key: value for part in parts for key, value in part.items()}


class _Expansion:
    """Expands the blocks and collects the mistakes in all blocks."""

    def __init__(self, places: Places):
        self._places = places
        self._mistakes: dict[str, None] = {}

    def wrong(self, path: Path, message: str) -> None:
        self._mistakes[f"{self._places.of(path)}: {dotted(path)}: {message}"] = None

    def raise_mistakes(self) -> None:
        if self._mistakes:
            raise UserError(*self._mistakes)

    def _value(self, value: object, *path: str | int) -> Value:
        return Value(value, path, self._places.of(path))

    def factors(self, blocks: Blocks) -> Iterator[list[Values]]:
        """For each block, the sets of values that the block generates."""
        if blocks.grid is not None:
            yield self._combinations(blocks.grid)
        zipped = None if blocks.zip is None else self._zipped(blocks.zip)
        number = None if zipped is None else len(zipped)
        points = None if blocks.sample is None else self._samples(blocks.sample, number)
        if zipped is not None:
            yield [
                {**one, **other}
                for one, other in zip(zipped, points or [{}] * len(zipped), strict=True)
            ]
        if blocks.list is not None:
            yield [
                {key: self._value(value, "sweep", "list", i, key) for key, value in entry.items()}
                for i, entry in enumerate(blocks.list)
            ]
        if points is not None and zipped is None:
            yield points

    def _combinations(self, grid: Lists) -> list[Values]:
        if math.prod(map(len, grid.values())) > MOST_RUNS:
            problem = (
                f"has more than {MOST_RUNS} combinations, which is the largest number possible"
            )
            self.wrong(("sweep", "grid"), problem)
            return [{}]
        columns = [
            [{key: self._value(value, "sweep", "grid", key, i)} for i, value in enumerate(values)]
            for key, values in grid.items()
        ]
        return [_merged(parts) for parts in itertools.product(*columns)]

    def _zipped(self, lists: Lists) -> list[Values]:
        first, *others = lists
        length = len(lists[first])
        for key in others:
            if (count := len(lists[key])) != length:
                problem = (
                    f"has {count} values, but {first} has {length}; lists in zip have equal length"
                )
                self.wrong(("sweep", "zip", key), problem)
        points: list[dict[str, Value]] = [{} for _ in range(length)]
        for key, values in lists.items():
            for i, value in enumerate(values[:length]):
                points[i][key] = self._value(value, "sweep", "zip", key, i)
        return list(points)

    def _samples(self, sample: SampleSettings, zipped: int | None) -> list[Values]:
        """The points, as many as `zip` has values if it is given."""
        number = sample.n if zipped is None else zipped
        path = ("sweep", "sample")
        if number is None:
            self.wrong((*path, "n"), "missing; give the number of points")
        elif sample.n not in (None, number):
            of_zip = f"but the lists in zip have {number} values, to which the points belong; leave n out"
            self.wrong((*path, "n"), f"is {sample.n}, {of_zip}")
        elif number > MOST_RUNS:
            self.wrong((*path, "n"), f"must be at most {MOST_RUNS}, not {number}")
        else:
            for key, distribution in sample.parameters.items():
                low, high = distribution.seeds or (0, number)
                if (there := high - low + 1) < number:
                    problem = f"seeds: {number} different numbers are needed, but {low} to {high} are {there}"
                    self.wrong((*path, "parameters", key), problem)
        if number is None or self._mistakes:
            return [{}] * (zipped or 1)
        points = sample_points(sample, number)
        path = (*path, "parameters")
        return [
            {key: self._value(value, *path, key) for key, value in point.items()}
            for point in points
        ]

    def check_keys(self, blocks: Blocks) -> None:
        first: dict[str, Path] = {}
        for path in _key_paths(blocks):
            key = str(path[-1])
            block = key.partition(".")[0]
            if not re.fullmatch(r"[^.\s]+(\.[^.\s]+)*", key):
                self.wrong(
                    path, "a key of the run's file is written with dots, e.g. model.viscosity"
                )
            elif reason := _REFUSED.get(key) or (_REFUSED["slurm"] if block == "slurm" else None):
                self.wrong(path, reason)
            elif key in first and first[key][:2] != path[:2]:
                where = f"{dotted(first[key][:2])} (line {self._places.of(first[key]).rpartition(':')[2]})"
                self.wrong(path, f"is in {where} too; a key belongs to one block")
            first.setdefault(key, path)

    def check_exclusive(self, runs: list[dict[str, Value]]) -> None:
        for run in runs:
            one, *others = [
                key for key in _EXCLUSIVE if key in run and run[key].value is not None
            ] or [""]
            for other in others:
                self.wrong(
                    run[other].path,
                    f"excludes {one}, which the same run has too; keep one of the two",
                )

    def without_excluded(self, runs: list[dict[str, Value]], blocks: Blocks) -> list[Values]:
        known = swept_keys(blocks)
        used: set[int] = set()
        included: list[Values] = []
        entries = [{key: normal(value) for key, value in entry.items()} for entry in blocks.exclude]
        for run in runs:
            matching = [i for i, entry in enumerate(entries) if _matches(run, entry)]
            used.update(matching)
            if not matching:
                included.append(run)
        for i, entry in enumerate(blocks.exclude):
            unknown = [key for key in entry if key not in known]
            for key in unknown:
                meant = did_you_mean(key, known, f"; it varies {', '.join(known)}")
                self.wrong(("sweep", "exclude", i, key), f"the sweep does not vary this key{meant}")
            if i not in used and not unknown:
                self.wrong(
                    ("sweep", "exclude", i), "excludes no run; correct its values, or leave it out"
                )
        if not included:
            self.wrong(("sweep", "exclude"), f"excludes all {len(runs)} runs; leave at least one")
        return included


def _key_paths(blocks: Blocks) -> Iterator[Path]:
    yield from (("sweep", "grid", key) for key in blocks.grid or ())
    yield from (("sweep", "zip", key) for key in blocks.zip or ())
    for i, entry in enumerate(blocks.list or ()):
        yield from (("sweep", "list", i, key) for key in entry)
    if blocks.sample is not None:
        yield from (("sweep", "sample", "parameters", key) for key in blocks.sample.parameters)


def _matches(run: Values, entry: Mapping[str, Any]) -> bool:
    return all(key in run and normal(run[key].value) == value for key, value in entry.items())


def normal(value: object) -> Any:
    """A form of `value` that is equal for different notations of the value: 1 and 1.0, 1/1600 and
    6.25e-4."""
    return each_leaf(value, _normal)


def _normal(value: Any) -> Any:
    if isinstance(value, bool):
        return ("flag", value)
    with suppress(ValueError):
        return evaluate_number(value) if isinstance(value, str) else float(value)
    return value


def sample_points(settings: SampleSettings, number: int) -> list[dict[str, Any]]:
    """`number` points (a value for every key). A parameter's values depend on the seed, not on
    other parameters."""
    columns = {key: _column(settings, key, number) for key in settings.parameters}
    return [{key: values[i] for key, values in columns.items()} for i in range(number)]


def _column(settings: SampleSettings, key: str, number: int) -> list[Any]:
    stream = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little")
    generator = np.random.default_rng([settings.seed, stream])
    distribution = settings.parameters[key]
    if distribution.seeds is not None:
        first, last = distribution.seeds
        seeds: dict[int, None] = {}
        while len(seeds) < number:  # one by one, so that a larger number of points keeps the seeds
            seeds[int(generator.integers(first, last, endpoint=True))] = None
        return list(seeds)
    if settings.method == "latin_hypercube":
        # scipy's hypercube has other points: runs that are identified by these would be lost.
        uniform = (generator.permutation(number) + generator.random(number)) / number
    else:
        uniform = generator.random(number)
    return [_value(distribution, u) for u in np.clip(uniform, 1e-12, 1 - 1e-12)]


def _value(distribution: Distribution, u: float) -> Any:
    """The value at which the distribution's cumulative probability is `u`."""
    if distribution.choice is not None:
        return distribution.choice[int(u * len(distribution.choice))]
    if distribution.normal is not None:
        from statistics import NormalDist

        return NormalDist(*distribution.normal).inv_cdf(float(u))
    if distribution.log_uniform is not None:
        low, high = np.log(distribution.log_uniform)
        return float(np.exp(low + u * (high - low)))
    if distribution.integers is not None:
        first, last = distribution.integers
        return first + int(u * (last - first + 1))
    assert distribution.uniform is not None
    low, high = distribution.uniform
    return float(low + u * (high - low))
