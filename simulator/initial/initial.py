"""What an initial condition offers, and how values on the grid become coefficients."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp

from simulator.errors import UserError
from simulator.settings import Settings
from simulator.spectral import Grid, Transform

Fields = dict[str, jax.Array]


class Files(Protocol):
    """Opens what an initial condition names; handed over by the run, which keeps a copy of each file."""

    def function(self, path: str, name: str) -> Callable[..., Any]:
        """The function `name` of a Python file."""
        ...

    def read(self, path: str) -> bytes:
        """The contents of a file."""
        ...

    def snapshot(self, path: str) -> "Stored":
        """A snapshot or checkpoint of a run."""
        ...


class Stored(Protocol):
    """Fields on disk, on a grid of their own; handed over by the run."""

    grid: Grid
    components: Mapping[str, tuple[int, ...]]
    """Fields and their leading shape."""

    def coefficients(self, name: str, transform: Transform) -> jax.Array:
        """A field's modes in the layout of `transform`, which may be of another resolution: modes that are not
        stored are zero, those that it does not keep are left out."""
        ...


class Initial(Protocol):
    Settings: ClassVar[type[Settings]]

    def __init__(self, settings: Any) -> None: ...

    def build(self, transform: Transform, wanted: Mapping[str, tuple[int, ...]], files: Files) -> Fields:
        """Spectral fields by name. `wanted` are the model's fields and their leading shapes; those that are not
        returned start at zero."""
        ...


def start_of(initial: Any, model: Any, files: Files) -> Fields:
    """All fields of a model at the beginning: what the initial condition gives, zero for what it does not, and what
    the model makes of it."""
    if hasattr(initial, "build_for"):
        found = initial.build_for(model, files)
    elif hasattr(model, "parts"):
        raise UserError(
            f"kind: {initial.settings.kind} gives one kind of matter; for a composite it belongs into "
            f"initial: {{kind: composite, components: {{{next(iter(model.parts))}: ..."
        )
    else:
        found = initial.build(model.transform, getattr(model, "given", model.components), files)
    transform, fields = model.transform, dict(found)
    layout, kind = transform.layout, jnp.result_type(transform.dtype, jnp.complex64)
    if not model.components.keys() <= found.keys():
        zero = jax.jit(
            lambda: {
                n: layout.hold(jnp.zeros((*lead, *layout.shape), kind))
                for n, lead in getattr(model, "given", model.components).items()
                if n not in found
            }
        )
        fields |= zero()
    return model.begin(fields) if hasattr(model, "begin") else fields


def from_values(transform: Transform, values: Callable[..., Mapping[str, Any]]) -> Fields:
    """Coefficients of fields given as a function of the coordinates x, y, z (broadcastable, sharded arrays).

    The values are made and transformed in one compiled call, so no device ever holds a whole field.
    """

    @jax.jit
    def build() -> Fields:
        found = values(*transform.physical.coordinates(transform.dtype))
        whole = {n: v if hasattr(v, "ndim") else jnp.stack(list(v)) for n, v in found.items()}
        inside = transform.physical.inside()
        held = {n: transform.physical.hold(jnp.where(inside, v, 0)) for n, v in whole.items()}
        return {n: transform.layout.hold(transform.forward(v)) for n, v in held.items()}

    return build()


def vector(transform: Transform, *components: jax.Array) -> jax.Array:
    """A vector field (3, x, y, z) from components that broadcast."""
    return jnp.stack([jnp.broadcast_to(c, transform.physical.shape) for c in components])


def only(name: str, wanted: Mapping[str, tuple[int, ...]], kind: str) -> None:
    """Refuses a model that has no field `name`."""
    if name not in wanted:
        raise UserError(
            f"{kind} gives {name}, which this model does not have; its fields are {', '.join(wanted)}"
        )
