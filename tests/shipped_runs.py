"""The configurations of runs in configs/."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from plugin_parts import absent_plugin

from simulator.config import read_yaml
from simulator.config.blocks import OutputSettings
from simulator.measure import OUTPUTS
from simulator.physics.initial import INITIALS
from simulator.physics.terms import TERMS

CONFIGS = Path(__file__).parents[1] / "configs"
ALL = sorted(path for path in CONFIGS.glob("*.yaml") if "sweep" not in path.stem)


@cache
def shipped_runs() -> tuple[Path, ...]:
    """Without those that need a model, a start, a term or an output of a plugin that is absent."""
    return tuple(path for path in ALL if _is_known(read_yaml(path).value))


def _is_known(run: dict[str, Any]) -> bool:
    if absent_plugin(run) is not None:
        return False
    outputs = {*OutputSettings.model_fields, *OUTPUTS}
    starts, terms = set(_kinds(run["initial"])), {term["kind"] for term in run.get("terms", ())}
    return starts <= {*INITIALS} and terms <= {*TERMS} and run.get("output", {}).keys() <= outputs


def _kinds(start: dict[str, Any]) -> Iterator[str]:
    yield start["kind"]
    for component in start.get("components", {}).values():
        yield component["kind"]
