"""External potentials and an absorbing layer at the faces of the box."""

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
from pydantic import Field

from simulator.errors import UserError
from simulator.physics.models.fields import along_axes
from simulator.settings import InputPath, NonNegative, Positive, Settings
from simulator.spectral import Grid

Potential = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
"""The coordinates of arrays (three that broadcast) to a potential (length^2 / time^2) or a rate (1 / time)."""


class HarmonicSettings(Settings):
    kind: Literal["harmonic"]
    frequency: Annotated[tuple[NonNegative, ...], Field(min_length=2, max_length=3)]
    """Angular frequencies of a trap about the box's centre, one for each axis of the grid."""


class PythonPotentialSettings(Settings):
    kind: Literal["python"]
    path: InputPath
    """Python file with the function."""
    function: str
    """`function(x, y, z, **parameters)` gives the potential, length^2 / time^2; in two dimensions
    `function(x, y, ...)`."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the function."""


class AbsorberSettings(Settings):
    """Removes mass near the faces of the box: d psi / dt = - rate w psi, w = (1 - distance / width)^2."""

    width: Positive
    """Distance from the faces of the box over which the absorber rises (length)."""
    rate: Positive
    """Damping rate of the wave function at a face (1/time)."""


ExternalSettings = Annotated[HarmonicSettings | PythonPotentialSettings, Field(discriminator="kind")]


def external_potential(settings: Any, grid: Grid, files: Any) -> Potential:
    """The function that the settings describe. `files` opens the user's Python file."""
    if isinstance(settings, HarmonicSettings):
        middle = [length / 2 for length in grid.seen(grid.box)]
        frequency = along_axes(grid, "external_potential.frequency", settings.frequency)

        def harmonic(x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
            points = zip(grid.seen((x, y, z)), middle, frequency, strict=True)
            return reduce(add, (0.5 * w**2 * (q - m) ** 2 for q, m, w in points))

        return harmonic
    where = f"external_potential: {settings.path}: {settings.function}"
    function = files.function(str(settings.path), settings.function)

    def potential(x, y, z):
        try:
            values = jnp.asarray(function(*grid.seen((x, y, z)), **settings.parameters))
        except jax.errors.TracerArrayConversionError:
            raise UserError(f"{where}: uses numpy on the coordinates; use jax.numpy instead") from None
        shape = jnp.broadcast_shapes(x.shape, y.shape, z.shape)
        if values.ndim > 3 or any(
            n not in (1, m) for n, m in zip(values.shape[::-1], shape[::-1], strict=False)
        ):
            own = values.shape[1:] if grid.planar else values.shape
            raise UserError(f"{where} has shape {own}; {grid.seen(shape)} is needed")
        return values

    return potential


def absorption(settings: AbsorberSettings, grid: Grid) -> Potential:
    """The rate (1/time) at which the wave function is damped."""

    def damping(x, y, z):
        total = jnp.zeros((1, 1, 1), x.dtype)
        for q, length in zip(grid.seen((x, y, z)), grid.seen(grid.box), strict=True):
            distance = jnp.minimum(q, length - q)
            total = total + jnp.maximum(0, 1 - distance / settings.width) ** 2
        return settings.rate * total

    return damping
