"""A configuration with other values of some keys; the values may be traced."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from simulator.config import RunConfig
from simulator.config.compare import TIME_STEP
from simulator.errors import UserError, nearest
from simulator.settings import Settings

_BLOCKS = ("model", "forcing", "initial")


def with_values(config: RunConfig, values: Mapping[str, Any], equation: Settings | None) -> RunConfig:
    """The configuration with other values of keys. They are not validated: they may be traced.

    `equation`: the settings of a user's equation, whose parameters may be left out of the configuration. Raises
    UserError for a key that does not exist or is no number.
    """
    known = {f"time.{key}" for key in TIME_STEP}
    for block in _BLOCKS:
        known |= {key for key, number in _keys(block, getattr(config, block)) if number}
    if equation is not None:
        known = {key for key in known if not key.startswith("model.parameters")}
        known |= {key for key, number in _keys("model.parameters", equation) if number}
    for key, value in values.items():
        # A function's parameters may be left out of the configuration; the call refuses unknown ones.
        if key not in known and f"{key.rpartition('.')[0]}.*" not in known:
            raise UserError(f"{key}: {_refusal(key, known)}")
        config = with_value(config, key, value)
    return config


def _refusal(key: str, known: set[str]) -> str:
    last = key.rpartition(".")[2]
    same = sorted(other for other in known if other.rpartition(".")[2] == last)
    if meant := nearest(key, same) or nearest(key, known):
        return f"is not a number of this configuration, did you mean {meant}?"
    return "is not a number of this configuration; those of model, forcing and initial, and of time, can vary"


def _keys(key: str, item: Any, annotation: Any = None) -> Iterator[tuple[str, bool]]:
    """The dotted keys at and below an item, and whether they are numbers; `KEY.*` for a function's parameters."""
    yield key, _takes_number(annotation) or _is_number(item)
    if isinstance(item, Settings):
        for name, field in type(item).model_fields.items():
            yield from _keys(f"{key}.{name}", getattr(item, name), field.annotation)
    elif isinstance(item, Mapping):
        yield f"{key}.*", True
        for name, inner in item.items():
            yield from _keys(f"{key}.{name}", inner)
    elif isinstance(item, tuple | list):
        for i, inner in enumerate(item):
            yield from _keys(f"{key}.{i}", inner)


def _takes_number(annotation: Any) -> bool:
    return annotation in (int, float) or any(map(_takes_number, get_args(annotation)))


def _is_number(item: Any) -> bool:
    """Whether an item is a number, a traced one included, or a list of numbers."""
    if isinstance(item, tuple | list):
        return bool(item) and all(map(_is_number, item))
    return (isinstance(item, int | float) and not isinstance(item, bool)) or hasattr(item, "dtype")


def with_value(settings: Any, key: str, value: Any) -> Any:
    """Settings with another value of `key` (`model.scalars.0.diffusivity`), which exists, not validated."""
    name, _, rest = key.partition(".")
    if isinstance(settings, tuple | list):
        i = int(name)
        inner = with_value(settings[i], rest, value) if rest else value
        return (*settings[:i], inner, *settings[i + 1 :])
    if isinstance(settings, Mapping):  # parameters of a user's equation or function
        inner = with_value(settings[name], rest, value) if rest else value
        return {**settings, name: inner}
    assert isinstance(settings, Settings)
    inner = with_value(getattr(settings, name), rest, value) if rest else value
    return settings.model_copy(update={name: inner})
