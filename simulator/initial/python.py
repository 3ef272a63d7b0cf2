"""Fields from a user's Python function."""

from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
from pydantic import Field

from simulator.errors import UserError
from simulator.initial.initial import Fields, Files, from_values
from simulator.settings import InputPath, Settings
from simulator.spectral import Transform


class PythonSettings(Settings):
    kind: Literal["python"] = "python"
    path: InputPath
    function: str
    parameters: dict[str, Any] = Field(default_factory=dict)


class Python:
    """`function(x, y, z, **parameters)` gives a dict of fields by name, as jax.numpy arrays of the coordinates.

    Vectors are (3, x, y, z) or three components that broadcast; scalars broadcast to (x, y, z).
    """

    Settings = PythonSettings

    def __init__(self, settings: PythonSettings):
        self.settings = settings

    def build(self, transform: Transform, wanted: Mapping[str, tuple[int, ...]], files: Files) -> Fields:
        s = self.settings
        function = files.function(str(s.path), s.function)
        where = f"initial.function: {s.path}: {s.function}"

        def values(x, y, z):
            try:
                found = function(x, y, z, **s.parameters)
            except jax.errors.TracerArrayConversionError:
                raise UserError(f"{where}: uses numpy on the coordinates; use jax.numpy instead") from None
            if not isinstance(found, Mapping) or not found:
                raise UserError(
                    f"{where}: returned {type(found).__name__}; a dict of fields by name is needed"
                )
            fields = {}
            for name, value in found.items():
                if name not in wanted:
                    raise UserError(
                        f"{where}: returned {name!r}; this model's fields are {', '.join(wanted)}"
                    )
                fields[name] = _whole(value, (*wanted[name], *transform.physical.shape), f"{where}: {name}")
            return fields

        return from_values(transform, values)


def _whole(value: Any, shape: tuple[int, ...], where: str) -> jax.Array:
    if isinstance(value, list | tuple):
        value = jnp.stack([jnp.broadcast_to(v, shape[1:]) for v in value])
    value = jnp.asarray(value)
    lead = len(shape) - 3
    fits = value.ndim == len(shape) and value.shape[:lead] == shape[:lead]
    fits = fits or (lead == 0 and value.ndim == 0)
    if not fits or any(n not in (1, m) for n, m in zip(value.shape[lead:], shape[lead:], strict=False)):
        raise UserError(f"{where} has shape {value.shape}; {shape} is needed")
    return jnp.broadcast_to(value, shape)
