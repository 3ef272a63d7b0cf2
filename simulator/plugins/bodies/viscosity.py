"""Viscosities and diffusivities that depend on place, time and the flow."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from pydantic import Discriminator, Field, Tag

from simulator.errors import UserError
from simulator.physics.models.advection import strain_rate, stress_pairs
from simulator.physics.models.closures import diffusive_rate
from simulator.physics.models.equation import Equation
from simulator.physics.models.fields import Fields
from simulator.physics.models.passive_scalars import whole_gradient
from simulator.physics.terms.term import Added, Coordinates, Term, TermFiles, TermSettings
from simulator.physics.user_function import UserFunction, traced_values
from simulator.plugins.bodies.formula import Formula, formula_value
from simulator.settings import Parameters, PythonFile, Settings
from simulator.spectral.arrays import Number, PointValues, root


class PythonCoefficientSettings(Settings):
    path: PythonFile
    """A Python file; the run copies the file and executes the copy."""
    function: str
    """function(values, points, time, **parameters) gives the coefficient at a point, length^2 /
    time. `values` are the fields by name and, for the velocity, `shear_rate`."""
    parameters: Parameters
    """Keyword arguments of the function."""


Coefficient = Annotated[
    Annotated[PythonCoefficientSettings, Tag("a function")] | Annotated[Formula, Tag("a formula")],
    Discriminator(
        lambda value: (
            "a function" if isinstance(value, Mapping | PythonCoefficientSettings) else "a formula"
        )
    ),
]


class ViscositySettings(TermSettings):
    kind: Literal["viscosity"] = "viscosity"
    coefficients: Annotated[dict[str, Coefficient], Field(min_length=1)]
    """The viscosity of the velocity or the diffusivity of a scalar (length^2 / time), by field, in
    addition to the constant one of the model: a number or a formula of x, y, z and t, or {path,
    function, parameters} of a Python function of (values, points, time)."""


class Viscosity(Term):
    """div(2 nu S) of the velocity with its strain S, and div(D grad(theta + G . x)) of a scalar.

    The term is explicit, and dt resolves its rate."""

    Settings = ViscositySettings

    def __init__(self, settings: ViscositySettings, model: Equation, files: TermFiles):
        super().__init__(settings, model, files)
        self._gradients = model.extension.gradients(model)
        self._functions = {}
        for name, coefficient in settings.coefficients.items():
            key = f"coefficients.{name}: "
            if name not in model.extension.diffuses(model):
                known = ", ".join(model.extension.diffuses(model)) or "none"
                raise UserError(f"{key}no field with a viscosity or diffusivity; those are {known}")
            self.check_field("coefficients", name)
            if isinstance(coefficient, PythonCoefficientSettings):
                words = "values and coordinates"
                self._functions[name] = UserFunction.of(files, coefficient, words, key)
            self._trace(name)

    def _trace(self, name: str) -> None:
        """Raises UserError for a coefficient that cannot be evaluated at points."""
        shapes = {**self.shapes, "shear_rate": ()} if name == "velocity" else self.shapes
        values = traced_values(shapes, self.transform.dtype)
        self.trace(partial(self.coefficient, name), self._functions.get(name), values)

    def coefficient(
        self, name: str, values: PointValues, points: Coordinates, time: Number
    ) -> jax.Array:
        """The viscosity or diffusivity of a field at a point."""
        coefficient = self.settings.coefficients[name]
        dtype = self.transform.dtype
        if not isinstance(coefficient, PythonCoefficientSettings):
            try:
                return formula_value(coefficient, points, time).astype(dtype)
            except ValueError as error:
                raise UserError(f"coefficients.{name}: {error}") from None
        function = replace(self._functions[name], parameters=coefficient.parameters)
        value = function(dict(values), points, time)
        some = next(iter(values.values()))
        return function.values(value, (), some.shape[-3:], dtype)

    def inputs(self, fields: Fields, time: Number) -> Fields:
        inputs = {}
        layout = self.transform.layout
        for name in self.settings.coefficients:
            if name == "velocity":
                u = fields[name]
                inputs["strain"] = strain_rate(layout, u, stress_pairs(len(u)))
            else:
                # The same as the input of this name of a closure.
                mean = self._gradients.get(name, ())
                inputs[f"gradient/{name}"] = whole_gradient(layout, fields[name], mean)
        return inputs

    def at_point(
        self, values: PointValues, inputs: PointValues, points: Coordinates, time: Number
    ) -> Added:
        """dt resolves the largest coefficient, and twice that of a function, which may grow with
        the gradients that it damps."""
        fluxes = {}
        largest = jnp.zeros((1, 1, 1), self.transform.dtype)
        for name in self.settings.coefficients:
            known = dict(values)
            if name == "velocity":
                strain, last = _strain(inputs["strain"])
                squares = [(1 if i == j else 2) * part**2 for (i, j), part in strain.items()]
                known["shear_rate"] = root(2 * (sum(squares) + last**2))  # sqrt(2 S_ij S_ij)
                diagonal = [part - last if i == j else part for (i, j), part in strain.items()]
                slope = 2 * jnp.stack(diagonal)
            else:
                slope = inputs[f"gradient/{name}"]
            coefficient = self.coefficient(name, known, points, time)
            fluxes[name] = -coefficient * slope
            factor = 2 if name in self._functions else 1
            largest = jnp.maximum(largest, factor * coefficient)
        return Added({}, diffusive_rate(self.grid, largest), fluxes)

    def check_start(self, time: float) -> None:
        """Refuses formulas with negative values at the start, which make the flow unstable."""
        physical = self.transform.physical
        for name in self.settings.coefficients.keys() - self._functions.keys():

            def least(name: str = name) -> Number:
                points = self.grid.seen(physical.coordinates(self.transform.dtype))
                value = self.coefficient(name, {}, points, jnp.float64(time))
                return physical.min(physical.constrain(jnp.broadcast_to(value, physical.shape)))

            if (low := float(jax.jit(least)())) < 0 or math.isnan(low):
                problem = f"is {low:g} somewhere at the start; it has to be at least 0"
                raise UserError(f"coefficients.{name}: {problem}")


def _strain(components: jax.Array) -> tuple[dict[tuple[int, int], jax.Array], jax.Array]:
    """S by pairs of axes, without the last diagonal component, and that component."""
    dimensions = {2: 2, 5: 3}[len(components)]
    strain = dict(zip(stress_pairs(dimensions), components, strict=True))
    last = -sum(part for (i, j), part in strain.items() if i == j)
    return strain, jnp.asarray(last)
