"""A configuration with other values of some keys; the values may be traced."""

from collections.abc import Mapping
from typing import Any

from simulator.settings import Settings


def with_value(settings: Any, key: str, value: Any) -> Any:
    """Settings with another value of `key` (`model.scalars.0.diffusivity`), not validated: it may be an array."""
    name, _, rest = key.partition(".")
    if isinstance(settings, tuple | list):
        i = int(name)
        inner = with_value(settings[i], rest, value) if rest else value
        return (*settings[:i], inner, *settings[i + 1 :])
    if isinstance(settings, Mapping):  # the parameters of a user's equation
        inner = with_value(settings[name], rest, value) if rest else value
        return {**settings, name: inner}
    assert isinstance(settings, Settings)
    inner = with_value(getattr(settings, name), rest, value) if rest else value
    return settings.model_copy(update={name: inner})
