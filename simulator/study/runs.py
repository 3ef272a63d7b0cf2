"""One run of a sweep, a group of runs, and the hash that identifies a run."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from simulator.config import Change, RunConfig, classify
from simulator.config.yaml12 import Path as KeyPath
from simulator.config.yaml12 import value_at
from simulator.plan.step_memory import Estimate
from simulator.settings import Settings, walk
from simulator.simulation.user_modules import neighbours
from simulator.study.planned import PlannedRun, source_sum

CACHE = 1 << 15
"""Bytes of a state from which on the runs of a batch evict each other from a CPU's cache."""


@dataclass(frozen=True)
class SweepRun(PlannedRun):
    """One run of a sweep, with its configuration."""

    config: RunConfig
    estimate: Estimate
    alike: str = field(repr=False)
    """Equal for runs with the same programs, output and start, apart from numbers and seeds."""


@dataclass(frozen=True)
class Group:
    """The runs of one process: one run, or runs that are stepped together and differ only in the
    numbers `keys`."""

    runs: tuple[SweepRun, ...]
    keys: tuple[str, ...] = ()

    @property
    def together(self) -> bool:
        return len(self.runs) > 1


DIGITS = 12


class Identities:
    """The hashes of the runs of a sweep, which may share blocks."""

    def __init__(self, varied: Mapping[str, KeyPath]):
        """`varied`: the keys that the sweep sets, with their paths."""
        self.varied = varied
        self._others = {k: path for k, path in varied.items() if not is_compared(path[0])}
        self._inputs: dict[int, tuple[Any, dict[str, str]]] = {}
        self.sources: dict[str, str] = {}
        """The checksums of all input files so far, by path."""

    def of(self, config: RunConfig, mapping: Mapping[str, Any]) -> str:
        """The hash of a run: the first hexadecimal digits of the SHA-256 of the configuration and
        of the contents of its input files as canonical JSON, with sorted keys, no spaces, and every
        number in its shortest exact form. `mapping`: the configuration as mappings."""
        # Empty blocks are left out, so that a version of the program with a new kind of block finds
        # the runs of older ones.
        covered = {
            name: value for name, value in mapping.items() if is_compared(name) and value != []
        }
        inputs: dict[str, str] = {}
        for name in covered:
            inputs |= self._files(name, getattr(config, name))
        others = {key: value_at(mapping, path) for key, path in self._others.items()}
        content = {"config": covered, "inputs": inputs, "swept": others}
        text = json.dumps(
            content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str
        )
        return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]

    def _files(self, name: str, block: object) -> dict[str, str]:
        """The checksums of the input files that a block names, by key."""
        if id(block) not in self._inputs:
            paths: dict[str, Path] = {}
            further: dict[str, Sequence[Path]] = {}
            for key, item, _ in walk(block, name):
                if isinstance(item, Path):
                    paths[key] = item
                    further.setdefault(key, _imported(item))
                if isinstance(item, Settings):
                    files = item.further_files().items()
                    further |= {f"{key}.{of}": beside for of, beside in files}
            for key, beside in further.items():
                folder = paths[key].parent
                paths |= {f"{key}:{os.path.relpath(file, folder)}": file for file in beside}
            sums = {key: source_sum(path) for key, path in paths.items()}
            self._inputs[id(block)] = block, sums
            self.sources |= {str(path): sums[key] for key, path in paths.items()}
        return self._inputs[id(block)][1]


def _imported(path: Path) -> list[Path]:
    """The modules that a Python file imports from its folder."""
    if path.suffix != ".py":
        return []
    return neighbours(path, Path.is_file, lambda name: Path(name).read_bytes())


@cache
def is_compared(block: str) -> bool:
    """Whether the hash covers a block of the configuration as a whole."""
    return block != "output" and classify(block) is not Change.FREE
