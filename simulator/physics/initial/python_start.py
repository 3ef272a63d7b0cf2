"""Fields from a user's function."""

from collections.abc import Callable, Mapping
from typing import Literal

import jax
import jax.numpy as jnp

from simulator.errors import UserError
from simulator.physics.initial.initial import (
    Fields,
    Initial,
    ParticleMatter,
    StartFiles,
    from_values,
)
from simulator.physics.models import Equation
from simulator.physics.particles import ParticleSet
from simulator.physics.particles.particle_start import python_positions
from simulator.physics.user_function import UserFunction, coordinates
from simulator.settings import Parameters, PythonFile, Settings
from simulator.spectral import Transform


class PythonStartSettings(Settings):
    kind: Literal["python"] = "python"
    path: PythonFile
    """A Python file; the run copies the file and executes the copy."""
    function: str
    """function(x, y, z, **parameters) gives a dict of fields by name; in two dimensions function(x,
    y, ...). For particles function(id, **parameters) gives a dict of position (3, n), velocity (3,
    n), mass (n,) for ids (n,)."""
    parameters: Parameters
    """Keyword arguments of the function."""


class PythonStart(Initial):
    """`function(x, y, z, **parameters)` gives a dict of fields by name, as jax.numpy arrays of the
    coordinates.

    Vectors are (3, x, y, z) or three components that broadcast; scalars broadcast to (x, y, z); a
    plane has no z."""

    Settings = PythonStartSettings

    def build(self, model: Equation, files: StartFiles) -> Fields:
        transform = model.transform
        wanted = model.initial_shapes
        function = UserFunction.of(files, self.settings, coordinates(transform.grid))

        def values(*points):
            result = function(*points)
            if not isinstance(result, Mapping) or not result:
                problem = f"returned {type(result).__name__}; a dict of fields by name is needed"
                raise function.refused(problem)
            fields = {}
            for name, value in result.items():
                if name not in wanted:
                    raise function.refused(
                        f"returned {name!r}; this model's fields are {', '.join(wanted)}"
                    )
                fields[name] = field_array(value, wanted[name], transform, name, function.refused)
            return fields

        return from_values(transform, values)

    def place(self, matter: ParticleMatter, files: StartFiles) -> ParticleSet:
        """`function(id, **parameters)` gives a dict of `position` and `mass`, and `velocity` unless
        they rest."""
        function = python_positions(self.settings, files, matter.population.records)

        def start(ids: jax.Array) -> dict[str, jax.Array]:
            records = dict(function(ids))
            if "mass" not in records:
                place = f"{self.settings.path}: {self.settings.function}"
                raise UserError(f"{place}: gives no mass; a dict with position and mass is needed")
            return {"velocity": jnp.zeros_like(records["position"]), **records}

        return matter.population.placed(start)


def field_array(
    value: object,
    lead: tuple[int, ...],
    transform: Transform,
    name: str,
    refused: Callable[[str], UserError],
) -> jax.Array:
    """The value that a user gives for a field, as an array of the field's (padded) shape. Raises
    what `refused` makes of a line about another shape or type."""
    points = transform.grid.seen(transform.grid.shape)
    padded = transform.physical.seen_shape
    try:
        if isinstance(value, list | tuple):
            value = jnp.stack([_spread(jnp.asarray(v), points, padded) for v in value])
        array = jnp.asarray(value)  # type: ignore[arg-type]
        if array.shape[: len(lead)] != lead:
            raise ValueError
        array = _spread(array, points, padded)
        if array.shape != (*lead, *padded):
            raise ValueError
    except (TypeError, ValueError):
        parts = value if isinstance(value, list | tuple) else (value,)
        shapes = ", ".join(str(getattr(part, "shape", type(part).__name__)) for part in parts)
        if parts is value:
            has = f"parts of shapes {shapes}"
        else:
            has = f"shape {shapes}" if hasattr(value, "shape") else f"the type {shapes}"
        raise refused(f"{name} has {has}; shape {(*lead, *points)} is needed") from None
    if jnp.iscomplexobj(array) and transform.layout.real:
        raise refused(f"{name} is complex; real values are needed")
    return array


def _spread(value: jax.Array, points: tuple[int, ...], padded: tuple[int, ...]) -> jax.Array:
    """Broadcasts over the points; an array that was made for the grid without its padding is
    padded."""
    lead = value.shape[: max(value.ndim - len(points), 0)]
    if value.shape[len(lead) :] == points:
        ends = [(0, m - n) for n, m in zip(points, padded, strict=True)]
        value = jnp.pad(value, [(0, 0)] * len(lead) + ends)
    return jnp.broadcast_to(value, (*lead, *padded))
