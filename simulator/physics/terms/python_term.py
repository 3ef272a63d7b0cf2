"""A term that a function of a user's file gives."""

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import jax
import jax.numpy as jnp

from simulator.physics.models.limits import damping_limit
from simulator.physics.terms.term import Added, Coordinates, Term, TermFiles, TermSettings
from simulator.physics.user_function import UserFunction, traced_points, traced_values
from simulator.settings import NonNegative, Parameters, PythonFile
from simulator.spectral import seen_points
from simulator.spectral.arrays import Number, PointValues

if TYPE_CHECKING:
    from simulator.physics.models.equation import Equation


class PythonTermSettings(TermSettings):
    kind: Literal["python"] = "python"
    path: PythonFile
    """A Python file; the run copies the file and executes the copy."""
    function: str
    """function(values, points, time, **parameters) gives the rates of fields at a point, by field.
    `values` are the fields by name, `points` the coordinates along the axes of the grid."""
    parameters: Parameters
    """Keyword arguments of the function."""
    rate: NonNegative = 0.0
    """The largest rate (1/time) at which the term changes a field, which dt resolves; with 0 the
    term does not limit dt."""


class PythonTerm(Term):
    """The rates of fields at a point as a function of the fields there, of place and time."""

    Settings = PythonTermSettings

    def __init__(self, settings: PythonTermSettings, model: "Equation", files: TermFiles):
        super().__init__(settings, model, files)
        self._function = UserFunction.of(files, settings, "values and coordinates", "function: ")
        values = traced_values(self.shapes, self.transform.value_dtype)
        points, time = traced_points(self.transform.dtype)
        at = seen_points(self.grid, points), time
        self.acts_on = tuple(jax.eval_shape(self._rates, values, *at))
        for name in self.acts_on:
            self.check_field("function", name)
        self.trace(self._rates, self._function, values)

    def _rates(self, values: PointValues, points: Coordinates, time: Number) -> PointValues:
        function = replace(self._function, parameters=self.settings.parameters)
        rates = function(dict(values), points, time)
        some = next(iter(values.values()))
        return function.by_field(rates, self.shapes, some.shape[-3:], some.dtype, "rates")

    def at_point(
        self, values: PointValues, inputs: PointValues, points: Coordinates, time: Number
    ) -> Added:
        rate = jnp.full((1, 1, 1), 1, self.transform.dtype) * self.settings.rate
        return Added(self._rates(values, points, time), damping_limit(self.grid, rate))
