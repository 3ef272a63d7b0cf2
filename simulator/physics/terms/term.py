"""The contract of a term that is added to an equation."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, Protocol, Self

import jax
import jax.numpy as jnp

from simulator.errors import UserError, did_you_mean
from simulator.physics.models.fields import Fields
from simulator.physics.names import naming
from simulator.physics.stored_values import ArrayFiles
from simulator.physics.user_function import Stored, UserFiles, UserFunction, traced_points
from simulator.settings import Settings, walk, with_value
from simulator.spectral import Grid, seen_points
from simulator.spectral.arrays import Number, OverPoints, ParticleVectors, PointValues, Truth

if TYPE_CHECKING:
    from simulator.physics.models.equation import Equation
    from simulator.physics.models.state import State

Coordinates = Sequence[OverPoints]
"""A coordinate (length) for each axis of the grid."""


class TermFiles(UserFiles, ArrayFiles, Protocol):
    """Opens the files that a term names."""

    def snapshot(self, path: str) -> Stored:
        """A snapshot or checkpoint of a run."""
        ...

    def clock(self, path: str) -> tuple[float, Mapping[str, Any]]:
        """The time of a snapshot or checkpoint, and the configuration of its run."""
        ...

    def record_series(self, path: str, snapshots: Sequence[str]) -> None:
        """Record which snapshots of the run `path` a term reads."""
        ...


class TermSettings(Settings):
    """Keys of every term."""

    name: Annotated[str, naming("a term, whose columns end with it; e.g. cylinder")]
    """Name of the term, with which its columns end: `power_NAME`."""


class Added(NamedTuple):
    """The contribution of a term at a point, by field."""

    sources: PointValues
    """Rates (field/time)."""
    rate: OverPoints | float
    """The rate (1/time) of the term that dt has to resolve."""
    fluxes: PointValues = {}  # noqa: RUF012
    """Minus their divergence is a rate, too: of a scalar a vector, of a velocity a stress as in
    `advection.stress_without_trace`."""


class Term:
    """A further term of an equation at a point: a function of the fields there, of place and time.

    It knows the fields of an initial condition (`initial_shapes`): for a gas density and velocity,
    else the evolved fields. `__init__` raises UserError, beginning with the key, if it cannot act
    on the model."""

    Settings: ClassVar[type[Settings]]
    acts_on: Sequence[str] = ()
    """The fields that have `sources`."""
    held: Mapping[str, jax.Array]
    """The `arrays` of the state."""

    def __init__(self, settings: Any, model: "Equation", files: TermFiles) -> None:
        """`files` opens the user's files."""
        self.settings = settings
        self.transform = model.transform
        self.grid: Grid = model.transform.grid
        self.shapes = model.initial_shapes
        self.held = {}
        self._unforced = model.extension.unforced

    def trace(
        self,
        function: Callable[..., Any],
        user: UserFunction | None,
        *values: Mapping[str, jax.ShapeDtypeStruct],
    ) -> None:
        """Traces a function (*values, points, time), on a block without a device; and raises
        UserError if the function `user` in it uses values at several points."""
        points, time = traced_points(self.transform.dtype)
        traced = jax.make_jaxpr(function)(*values, seen_points(self.grid, points), time)
        if user is not None:
            user.check_pointwise(traced, "a term works point by point")

    def numbers(self) -> dict[str, jax.Array]:
        """The settings that are traced, because a run is differentiated by them or they vary within
        an ensemble, by key: pointwise functions must not close over them."""
        return {key: item for key, item, _ in walk(self.settings) if isinstance(item, jax.Array)}

    def with_numbers(self, numbers: Mapping[str, jax.Array]) -> Self:
        """A copy with these values of settings."""
        other = copy(self)
        for key, value in numbers.items():
            other.settings = with_value(other.settings, key, value)
        return other

    def arrays(self) -> dict[str, jax.Array]:
        """Arrays of files, read now, as the state carries them (`StateMemory.terms`); their names
        begin with that of the term."""
        return {}

    def array_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes and types of `arrays`, without reading the files."""
        return {}

    def array_keys(self) -> dict[str, str]:
        """The names of those of `arrays` by which a run can be differentiated, by the keys of their
        files in the settings."""
        return {}

    def with_arrays(self, arrays: Mapping[str, jax.Array]) -> Self:
        """A copy with the arrays of a state."""
        start = f"{self.settings.name}/"
        other = copy(self)
        other.held = {name: a for name, a in arrays.items() if name.startswith(start)}
        return other

    def inputs(self, fields: Fields, time: Number) -> Fields:
        """Coefficients of the further fields whose values the term needs."""
        return {}

    def stored(self) -> dict[str, jax.Array]:
        """Values on the grid that the term needs beside `inputs`."""
        return {n: a for n, a in self.held.items() if not jnp.iscomplexobj(a)}

    def modal_rates(self, fields: Fields, time: Number) -> Fields:
        """Rates (field/time) of modes that need no values at points, by evolved field."""
        return {}

    @property
    def modal_limit(self) -> Number | float:
        """The rate (1/time) of `modal_rates` that dt has to resolve."""
        return 0.0

    def near(self, points: Coordinates, time: Number) -> Truth | None:
        """Whether the term may add anything at one of the points; None if that is not asked."""
        return None

    def at_point(
        self, values: PointValues, inputs: PointValues, points: Coordinates, time: Number
    ) -> Added:
        """The contribution of the term at a point. `values` are those of the fields that terms know,
        `inputs` those of `inputs`; `points` has a coordinate for each axis of the grid."""
        raise TypeError(f"{type(self).__name__} does not define at_point")

    def integrands(
        self, momentum: jax.Array | None, points: Coordinates, time: Number
    ) -> PointValues:
        """The values at a point whose integrals over the box are columns, by column; `momentum` is
        the force per volume of the term on the fluid."""
        return {}

    def columns(self, integrals: Mapping[str, Number]) -> dict[str, Number]:
        """Columns of `diagnostics.csv` from the integrals of `integrands`."""
        return dict(integrals)

    @property
    def is_body(self) -> bool:
        """Whether particles can stop at its surface."""
        return False

    @classmethod
    def solids(cls, model: "Equation") -> Mapping[str, Callable[["State"], jax.Array]]:
        """The part (x, y, z) of each point, from 0 to 1, that terms of this kind fill, by name, as a
        function of the state; pictures show the surface, where it is 1/2."""
        return {}

    def stops(
        self, places: ParticleVectors, velocity: ParticleVectors, time: Number
    ) -> ParticleVectors:
        """The velocity (3, particle) of particles that stick to the body at places inside it."""
        raise TypeError(f"{type(self).__name__} is no body")

    def outlook(self) -> dict[str, bool]:
        """Lines about the resolution that the term needs, and whether the grid has it."""
        return {}

    def check_end(self, stop: float) -> None:
        """Raises UserError, beginning with the key, if the term is not known until the time
        `stop`."""

    def check_start(self, time: float) -> None:
        """Raises UserError, beginning with the key, for values at the start that no run can use."""

    def check_field(self, key: str, name: str) -> None:
        """Raises UserError, beginning with `key`, unless a term can act on the field `name`."""
        if name not in self.shapes:
            meant = did_you_mean(name, self.shapes)
            known = f"a term of this model acts on {', '.join(self.shapes)}"
            raise UserError(f"{key}: unknown field {name!r}{meant} {known}")
        if name == "velocity" and self._unforced is not None:
            raise UserError(f"{key}: velocity {self._unforced}")
