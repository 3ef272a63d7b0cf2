"""A configuration with other values of some keys; the values may be traced."""

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
from jax.core import Tracer

from simulator.config import RunConfig
from simulator.config.compare import TIME_STEP
from simulator.config.messages import refusal
from simulator.errors import UserError, nearest
from simulator.physics.models.closures import fitted
from simulator.settings import Settings, walk, with_value

BLOCKS = ("model", "forcing", "terms", "initial")
"""The blocks of a configuration whose numbers may be variables."""


def with_values(
    config: RunConfig,
    values: Mapping[str, Any],
    equation: Settings | None,
    arrays: Mapping[str, Any],
) -> RunConfig:
    """The configuration with other values of keys, all of which may be traced.

    `equation`: the settings of a user's equation, whose parameters may be left out of the
    configuration; `arrays`: the model's trees of arrays, by key. Raises UserError for a key that
    does not exist or is no number, for arrays of other names or shapes, and for a number that is
    not traced and out of the key's bounds."""
    known = {f"time.{key}" for key in TIME_STEP} | arrays.keys()
    for block in BLOCKS:
        known |= _numbers(getattr(config, block), block)
    if equation is not None:
        known = {key for key in known if not key.startswith("model.parameters")}
        known |= _numbers(equation, "model.parameters")
    for key, value in values.items():
        # A function's parameters may be left out of the configuration; the call refuses unknown
        # ones.
        if key not in known and f"{key.rpartition('.')[0]}.*" not in known:
            raise UserError(f"{key}: {_refusal(key, known)}")
        check_bounds(config, key, value)
        config = with_value(
            config, key, fitted(value, arrays[key], key) if key in arrays else value
        )
    return config


def check_bounds(config: RunConfig, key: str, value: Any) -> None:
    """Raises UserError for a number that the settings of its key refuse. A traced number passes."""
    if isinstance(value, Tracer) or np.ndim(value) or not np.isrealobj(value):
        return
    block, _, name = key.rpartition(".")
    first = block.partition(".")[0]
    settings = {path: item for path, item, _ in walk(getattr(config, first), first)}.get(block)
    if not (isinstance(settings, Settings) and _is_number(getattr(settings, name, None))):
        return
    if message := refusal(settings, name, float(value)):
        raise UserError(f"{key}: {message}")


def _refusal(key: str, known: set[str]) -> str:
    last = key.rpartition(".")[2]
    same = sorted(other for other in known if other.rpartition(".")[2] == last)
    if meant := nearest(key, same) or nearest(key, known):
        return f"is not a number of this configuration, did you mean {meant}?"
    return "is not a number of this configuration; those of model, forcing, terms and initial, and of time, can vary"


def _numbers(block: object, name: str) -> set[str]:
    items = list(walk(block, name))
    known = {
        key for key, item, annotation in items if _takes_number(annotation) or _is_number(item)
    }
    return known | {f"{key}.*" for key, item, _ in items if isinstance(item, Mapping)}


def _takes_number(annotation: object) -> bool:
    return annotation in (int, float) or any(map(_takes_number, get_args(annotation)))


def _is_number(item: object) -> bool:
    if isinstance(item, tuple | list):
        return bool(item) and all(map(_is_number, item))
    return (isinstance(item, int | float) and not isinstance(item, bool)) or hasattr(item, "dtype")
