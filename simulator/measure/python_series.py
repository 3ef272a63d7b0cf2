"""Measurements by a user's own functions: one series NAME.h5 for each function."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field

from simulator import spectral
from simulator.errors import UserError
from simulator.measure.kind import Kind, Measured, SeriesCadence, Subject, Unsupported
from simulator.physics import models
from simulator.physics.models import outputs
from simulator.physics.user_function import UserFunction
from simulator.settings import PythonFile
from simulator.spectral.points import SeenPoints, named_points

MOST = 2**20  # The largest number of values in a row.


class PythonOutputSettings(SeriesCadence):
    path: PythonFile
    """A Python file, of which the run keeps a copy; a continued run takes a changed file."""
    function: str
    """function(fields, time, **parameters) returns a dict of numbers and small arrays by name."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=64)] | None = None
    """Name of the series, NAME.h5; by default the name of the function."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the function."""

    @property
    def series(self) -> str:
        return self.name or self.function


def _listed(value: object) -> object:
    return [value] if isinstance(value, Mapping | PythonOutputSettings) else value


def _distinct_series(
    functions: tuple[PythonOutputSettings, ...],
) -> tuple[PythonOutputSettings, ...]:
    for number, function in enumerate(functions):
        if function.series in (other.series for other in functions[:number]):
            raise ValueError(
                f"two functions write {function.series}.h5; give one of them another name: ..."
            )
    return functions


Block = PythonOutputSettings | list[PythonOutputSettings]


class PythonOutput(Kind):
    sheared = True
    name = "python"
    description = (
        "Measurements by your own functions, one block or a list, each in a series NAME.h5."
    )
    Settings = PythonOutputSettings

    @property
    def annotation(self) -> Any:
        return Annotated[
            tuple[PythonOutputSettings, ...],
            BeforeValidator(_listed, json_schema_input_type=Block),
            AfterValidator(_distinct_series),
        ]

    def series(self, settings: Any) -> Mapping[str, Any]:
        return {function.series: function for function in settings or ()}

    def measured(self, subject: Subject, settings: PythonOutputSettings) -> Measured:
        try:
            subject.files.take_changed(str(settings.path))
            function = UserFunction.of(subject.files, settings, "values")

            def compute(state: models.State) -> dict[str, jax.Array]:
                fields = FieldView(subject.model, outputs.contents(subject.model, state))
                return _checked(function(fields, state.time), subject, function.refused)

            shapes = jax.eval_shape(compute, subject.template)
            if (count := sum(math.prod(a.shape) for a in shapes.values())) > MOST:
                raise function.refused(f"returns {count} numbers; a row holds at most {MOST}")
        except UserError as error:
            raise Unsupported(str(error), key="function") from error
        return Measured(*_dimensions(shapes), compute, {"function": settings.function})


def _checked(
    result: object, subject: Subject, refused: Callable[[str], UserError]
) -> dict[str, jax.Array]:
    """The result of the function as arrays, replicated on every device."""
    if not isinstance(result, Mapping) or not result:
        kind = type(result).__name__
        raise refused(f"returned {kind}; a dict of numbers and small arrays by name is needed")
    row = {}
    for name, value in result.items():
        if (
            not isinstance(name, str)
            or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name)
            or name in ("step", "time")
        ):
            raise refused(
                f"{name!r} cannot name a variable; use letters, digits and _, but not step or time"
            )
        try:
            array = jnp.asarray(value)
        except (TypeError, ValueError):
            raise refused(
                f"{name} is {type(value).__name__}; a number or an array is needed"
            ) from None
        grid = subject.transform.grid
        if grid.dimensions > 1 and array.shape[-grid.dimensions :] == grid.seen(grid.shape):
            raise refused(
                f"{name} is a whole field; return a mean, a profile or another small array"
            )
        if jnp.iscomplexobj(array):
            raise refused(f"{name} is complex; return its .real and .imag")
        row[name] = subject.transform.layout.replicated(array)
    return row


def _dimensions(shapes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """A coordinate `index_N` from 0 to N - 1 for every length, and the dimensions of the
    variables."""
    lengths = sorted({n for a in shapes.values() for n in a.shape})
    variables = {name: tuple(f"index_{n}" for n in a.shape) for name, a in shapes.items()}
    return {f"index_{n}": np.arange(n) for n in lengths}, variables


class PhysicalFields(Mapping[str, Any]):
    """Values of evolved and derived fields by name: `fields["velocity"]` is (3, x, y, z), without
    padding; fewer dimensions have fewer axes. Values are computed on access, so that only the fields
    that are used cost time."""

    def __init__(
        self, names: tuple[str, ...], shape: tuple[int, ...], values: Callable[[str], jax.Array]
    ):
        self._names = names
        self._shape = shape
        self._values = values

    def __getitem__(self, name: str) -> jax.Array:
        return self._values(name)[(..., *(slice(n) for n in self._shape))]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class FieldView(PhysicalFields):
    """The fields as a user's function gets them. JAX traces the function: its arrays are
    distributed over the devices, and sums over points are sums over all devices."""

    def __init__(self, model: models.Equation, fields: models.Fields):
        self._model = model
        self._fields = fields
        grid = model.transform.grid
        super().__init__(
            tuple(outputs.field_specs(model)),
            grid.seen(grid.shape),
            lambda name: outputs.field_values(model, name, fields),
        )

    @property
    def points(self) -> SeenPoints:
        """The coordinates x, y, z of the grid points, arrays that broadcast to (x, y, z); in two
        dimensions x, y, in one x."""
        physical = self._model.transform.physical
        inside = tuple(slice(n) for n in physical.grid.seen(physical.grid.shape))
        return named_points(*(x[inside] for x in physical.seen_coordinates()))

    def modes(self, name: str) -> jax.Array:
        """Fourier coefficients of an evolved field, in the order of `layout`; padding is zero."""
        return self._fields[name]

    @property
    def layout(self) -> spectral.Layout:
        """The layout of the modes: `layout.wavenumbers()`, `layout.shell_sum(energy)`, ..."""
        return self._model.transform.layout
