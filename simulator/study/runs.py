"""One run of a sweep, and how values and paths are shown."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.config import RunConfig
from simulator.plan.step import Estimate


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep. `values`: the keys that the sweep sets, with their values in the run's configuration."""

    index: int
    hash: str
    values: Mapping[str, Any]
    config: RunConfig
    folder: Path
    estimate: Estimate


def shown(item: Any) -> str:
    """A value as short text."""
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
