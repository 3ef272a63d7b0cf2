"""From the blocks of a sweep's file to one set of values for each run."""

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from simulator.config.messages import nearest
from simulator.config.overrides import Override
from simulator.config.run_config import Places
from simulator.config.yaml12 import Path, dotted
from simulator.errors import UserError
from simulator.settings import evaluate_number
from simulator.sweeps.sample import draw
from simulator.sweeps.settings import Blocks

MOST_RUNS = 10_000

_REFUSED = {
    "name": "names the run's folder, which here is the run's hash; leave it out",
    "output": "may not be replaced whole; sweep one of its keys, e.g. output.diagnostics.every",
    "output.directory": "is where all runs of the sweep lie; give it in the base",
    "slurm": "is one for the whole array; give it in this file's slurm block",
}
_EXCLUSIVE = ("time.cfl", "time.dt")


@dataclass(frozen=True)
class Value:
    """A value that a run gets, and where the sweep's file gives it."""

    value: Any
    path: Path
    place: str


Values = Mapping[str, Value]
"""By key of the run's file (`model.viscosity`)."""


def override(key: str, value: Value) -> Override:
    """The value as an override of the base."""
    path = tuple(int(part) if part.isdecimal() else part for part in key.split("."))
    return Override(path, value.value, value.place)


def keys(blocks: Blocks) -> list[str]:
    """Every key that the sweep sets, in the order of the blocks."""
    found = [*(blocks.grid or ()), *(blocks.zip or ())]
    found += [key for entry in blocks.list or () for key in entry]
    found += blocks.sample.parameters if blocks.sample else ()
    return list(dict.fromkeys(found))


def expand(blocks: Blocks, places: Places) -> list[Values]:
    """The values of every run: the product of grid, zip, list and sample (the first changes slowest), without
    what `exclude` takes out.

    Raises UserError, a line for each mistake: `sweep.yaml:5: sweep.zip.time.cfl: ...`.
    """
    found = _Expansion(places)
    factors = [factor(blocks) for factor in (found.combinations, found.zipped, found.entries, found.samples)]
    factors = [factor for factor in factors if factor is not None]
    if not factors:
        found.wrong(("sweep",), "varies nothing; give grid, zip, list or sample")
    found.check_keys(blocks)
    number = math.prod(map(len, factors))
    if number > MOST_RUNS:
        found.wrong(("sweep",), f"has {number} runs; at most {MOST_RUNS} are possible")
    found.raise_mistakes()
    runs = [_together(parts) for parts in itertools.product(*factors)]
    found.check_exclusive(runs)
    kept = found.without_excluded(runs, blocks)
    found.raise_mistakes()
    return kept


def _together(parts: tuple[Values, ...]) -> dict[str, Value]:
    return {key: value for part in parts for key, value in part.items()}


class _Expansion:
    """Collects the mistakes of all blocks."""

    def __init__(self, places: Places):
        self._places = places
        self._mistakes: dict[str, None] = {}

    def wrong(self, path: Path, message: str) -> None:
        self._mistakes[f"{self._places.of(path)}: {dotted(path)}: {message}"] = None

    def raise_mistakes(self) -> None:
        if self._mistakes:
            raise UserError("\n".join(self._mistakes))

    def _value(self, value: Any, *path: str | int) -> Value:
        return Value(value, path, self._places.of(path))

    # ---- the blocks --------------------------------------------------------------------------------------

    def combinations(self, blocks: Blocks) -> list[Values] | None:
        if blocks.grid is None:
            return None
        lists = [
            [(key, self._value(value, "sweep", "grid", key, i)) for i, value in enumerate(values)]
            for key, values in blocks.grid.items()
        ]
        if math.prod(map(len, lists)) > MOST_RUNS:
            self.wrong(
                ("sweep", "grid"), f"has more than {MOST_RUNS} combinations, which are the most possible"
            )
            return [{}]
        return [dict(combination) for combination in itertools.product(*lists)]

    def zipped(self, blocks: Blocks) -> list[Values] | None:
        if blocks.zip is None:
            return None
        first, *others = blocks.zip
        length = len(blocks.zip[first])
        for key in others:
            if len(blocks.zip[key]) != length:
                self.wrong(
                    ("sweep", "zip", key),
                    f"has {len(blocks.zip[key])} values and {first} has {length}; lists in zip have one length",
                )
        return [
            {
                k: self._value(values[i], "sweep", "zip", k, i)
                for k, values in blocks.zip.items()
                if i < len(values)
            }
            for i in range(length)
        ]

    def entries(self, blocks: Blocks) -> list[Values] | None:
        if blocks.list is None:
            return None
        return [
            {key: self._value(value, "sweep", "list", i, key) for key, value in entry.items()}
            for i, entry in enumerate(blocks.list)
        ]

    def samples(self, blocks: Blocks) -> list[Values] | None:
        if blocks.sample is None:
            return None
        if blocks.sample.n > MOST_RUNS:
            self.wrong(("sweep", "sample", "n"), f"must be at most {MOST_RUNS}, not {blocks.sample.n}")
            return [{}]
        return [
            {key: self._value(value, "sweep", "sample", "parameters", key) for key, value in point.items()}
            for point in draw(blocks.sample)
        ]

    # ---- what they may not say ---------------------------------------------------------------------------

    def check_keys(self, blocks: Blocks) -> None:
        first: dict[str, Path] = {}
        for path in _key_paths(blocks):
            key = str(path[-1])
            block = key.partition(".")[0]
            if not re.fullmatch(r"[^.\s]+(\.[^.\s]+)*", key):
                self.wrong(path, "a key of the run's file is written with dots, e.g. model.viscosity")
            elif reason := _REFUSED.get(key) or (_REFUSED["slurm"] if block == "slurm" else None):
                self.wrong(path, reason)
            elif key in first and first[key][:2] != path[:2]:
                where = f"{dotted(first[key][:2])} (line {self._places.of(first[key]).rpartition(':')[2]})"
                self.wrong(path, f"is in {where} too; a key belongs to one block")
            first.setdefault(key, path)

    def check_exclusive(self, runs: list[dict[str, Value]]) -> None:
        one, other = _EXCLUSIVE
        for run in runs:
            if all(key in run and run[key].value is not None for key in _EXCLUSIVE):
                self.wrong(
                    run[other].path, f"excludes {one}, which the same run is given; keep one of the two"
                )

    def without_excluded(self, runs: list[dict[str, Value]], blocks: Blocks) -> list[Values]:
        known = keys(blocks)
        used: set[int] = set()
        kept: list[Values] = []
        entries = [{key: normal(value) for key, value in entry.items()} for entry in blocks.exclude]
        for run in runs:
            matching = [i for i, entry in enumerate(entries) if _matches(run, entry)]
            used.update(matching)
            if not matching:
                kept.append(run)
        for i, entry in enumerate(blocks.exclude):
            unknown = [key for key in entry if key not in known]
            for key in unknown:
                close = nearest(key, known)
                meant = f", did you mean {close}?" if close else f"; it varies {', '.join(known)}"
                self.wrong(("sweep", "exclude", i, key), f"the sweep does not vary this key{meant}")
            if i not in used and not unknown:
                self.wrong(("sweep", "exclude", i), "takes out no run; correct its values, or leave it out")
        if not kept:
            self.wrong(("sweep", "exclude"), f"takes out all {len(runs)} runs; leave at least one")
        return kept


def _key_paths(blocks: Blocks) -> Iterator[Path]:
    yield from (("sweep", "grid", key) for key in blocks.grid or ())
    yield from (("sweep", "zip", key) for key in blocks.zip or ())
    for i, entry in enumerate(blocks.list or ()):
        yield from (("sweep", "list", i, key) for key in entry)
    if blocks.sample is not None:
        yield from (("sweep", "sample", "parameters", key) for key in blocks.sample.parameters)


def _matches(run: Values, entry: Mapping[str, Any]) -> bool:
    return all(key in run and normal(run[key].value) == value for key, value in entry.items())


def normal(value: Any) -> Any:
    """`value` such that two ways to write one value are equal: 1 and 1.0, 1/1600 and 6.25e-4."""
    match value:
        case bool():
            return ("flag", value)
        case int() | float():
            return float(value)
        case str():
            return _number_or(value, lambda: value)
        case list() | tuple():
            return [normal(item) for item in value]
        case dict():
            return {key: normal(item) for key, item in value.items()}
    return value


def _number_or(text: str, otherwise: Callable[[], Any]) -> Any:
    try:
        return evaluate_number(text)
    except ValueError:
        return otherwise()
