"""Refuses an equation whose methods a run could not compute. Each method is traced alone, without
a device, so that the message names the method that is wrong, with its line."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, cast

import jax
import jax.numpy as jnp
import numpy as np

from simulator.errors import UserError
from simulator.physics.models.equation import (
    Equation,
    parameters,
    products_at,
    with_parameters,
)
from simulator.physics.models.memory import LOST, RESIDUAL
from simulator.physics.models.observables.budget import Budget
from simulator.physics.models.observables.moments import FieldMoments, moments_of, quantities_of
from simulator.physics.models.observables.observable import Row
from simulator.physics.models.outputs import point_moments
from simulator.physics.models.split_equation import SplitEquation
from simulator.physics.models.tendency import fastest
from simulator.physics.user_function import POINTS, UserFiles, UserFunction, trace, traced_points
from simulator.spectral import Points, seen_points
from simulator.spectral.transform import Tree

_POINTWISE = (
    "it has to work point by point, and sums and derivatives belong into inputs and combine"
)

_COLUMNS = {"step", "time", "dt", "cfl", "injection", "power_equation", RESIDUAL, LOST}
"""Columns of diagnostics.csv that no observable gives."""


def _fits(shape: tuple[int, ...], full: tuple[int, ...]) -> bool:
    """Whether an array of this shape can be broadcast to the `full` one."""
    try:
        return np.broadcast_shapes(shape, full) == full
    except ValueError:
        return False


class EquationCheck:
    """The checks of an equation of the Python file `path`. Methods of objects that the equation has
    are named as in `Enstrophy.columns`."""

    def __init__(self, model: Equation, path: Path, files: UserFiles):
        self._model = model
        self._path = str(path)
        self._files = files
        self._transform = model.transform
        self._layout = model.transform.layout
        self._state = {name: self._modes(lead) for name, lead in model.shapes.items()}
        self._points, self._time = traced_points(model.transform.dtype)

    def all(self) -> None:
        model, state, time = self._model, self._state, self._time
        self._fields("linear", self._traced("linear", model.linear), model.shapes)
        self._couplings(self._traced("waves", model.waves))
        products = self._products(self._inputs())
        coefficients = jax.tree.map(lambda p: self._modes(p.shape[:-3]), products)
        combined = self._traced("combine", model.combine, coefficients, state)
        # The default returns the products themselves.
        own = type(model).combine is not Equation.combine
        self._fields("combine" if own else "products", combined, model.shapes)
        self._used(coefficients, combined)
        forces = self._traced("forcing", model.forcing, state, time)
        self._fields("forcing", forces, model.accelerated)
        self._budget(bool(forces))
        self._traced("step", partial(fastest, model), state, time)
        quantities = self._traced("quantities", partial(quantities_of, model), state, time)
        self._numbers("quantities", quantities)
        energies = self._traced("spectral_energies", model.spectral_energies, state)
        self._of_modes("spectral_energies", energies)
        self._observables(quantities)

    def _modes(self, lead: tuple[int, ...]) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((*lead, *self._layout.shape), self._transform.complex_dtype)

    def _inputs(self) -> Tree:
        """Values of the inputs at the points."""
        inputs = self._mapping("inputs", self._traced("inputs", self._model.inputs, self._state))
        for leaf in jax.tree.leaves(inputs):
            if leaf.shape[-3:] != self._layout.shape:
                problem = f"has an array of shape {leaf.shape}; spectral fields are needed"
                self._refuse("inputs", problem)
        dtype = self._transform.value_dtype
        return jax.tree.map(lambda f: jax.ShapeDtypeStruct((*f.shape[:-3], *POINTS), dtype), inputs)

    def _products(self, values: Tree) -> Tree:
        """The products of an equation, or the fields after the `flow` of a split one, at the
        points. Also checks the methods that limit dt."""
        if isinstance(self._model, SplitEquation):
            return self._flow(values)
        self._at_points("advection", lambda m, v, p, t: m.advection(v), values, self._advection)
        return self._at_points("products", products_at, values, partial(self._shaped, "products"))

    def _advection(self, velocity: Any) -> None:
        """Refuses anything but None and a component for each axis."""
        if velocity is None:
            return
        axes = self._transform.grid.names.values()
        self._shaped("advection", velocity)
        if hasattr(velocity, "shape"):
            # The velocity of a plane may be an array of three components.
            fits = len(velocity.shape) == 1 + len(POINTS) and velocity.shape[0] >= len(axes)
            has = f"an array of shape {velocity.shape}"
        else:
            shapes = [jnp.shape(component) for component in velocity]
            fits = len(shapes) == len(axes) and all(_fits(shape, POINTS) for shape in shapes)
            has = f"{len(shapes)} components of shapes {', '.join(map(str, shapes))}"
        if not fits:
            needed = f"a component for each axis is needed, {', '.join(axes)}"
            self._refuse("advection", f"returned {has}; {needed}")

    def _flow(self, values: Tree) -> Tree:
        grid, dtype = self._transform.grid, self._transform.dtype

        def flow(model: SplitEquation, values: Tree, points: Points, time: jax.Array) -> Tree:
            return model.flow(values, seen_points(grid, points), time, time.astype(dtype))

        def phase_rate(model: SplitEquation, values: Tree, points: Points, time: jax.Array) -> Tree:
            return model.phase_rate(values, seen_points(grid, points), time)

        fits = partial(self._fields, "flow", shapes=self._model.shapes, extents=POINTS)
        self._at_points("flow", flow, values, fits)
        self._at_points("phase_rate", phase_rate, values, partial(self._shaped, "phase_rate"))
        return {name: values[name] for name in self._model.fields}

    def _used(self, products: Mapping[str, Any], rates: Mapping[str, Any]) -> None:
        """Refuses a product of a field's name that `combine` forgets: it neither uses the product
        nor returns a rate of the field."""
        forgotten = self._model.fields.keys() & products.keys() - rates.keys()
        arguments = products, self._state
        traced = jax.make_jaxpr(self._model.combine)(*arguments).jaxpr
        used = {*map(id, traced.outvars)}
        used |= {id(v) for equation in traced.eqns for v in equation.invars}
        variables = jax.tree.unflatten(jax.tree.structure(arguments), traced.invars)[0]
        for name in forgotten:
            if not any(id(variable) in used for variable in jax.tree.leaves(variables[name])):
                self._refuse("combine", f"returned no rate of {name}, which products has")

    def _at_points(
        self, method: str, function: Callable[..., Any], values: Tree, fits: Callable[[Any], None]
    ) -> Any:
        """The result of a function (equation, values, points, time), which `fits` and works point
        by point."""
        numbers = self._traced("parameters", partial(parameters, self._model), self._state)

        def local(values: Tree, points: Any, time: Any, numbers: Any) -> Any:
            return function(with_parameters(self._model, numbers), values, points, time)

        arguments = values, self._points, self._time, numbers
        result = self._traced(method, local, *arguments)
        fits(result)
        self._user(method, local).check_pointwise(jax.make_jaxpr(local)(*arguments), _POINTWISE)
        return result

    def _shaped(self, method: str, result: Tree) -> None:
        """Refuses arrays that do not fit the points."""
        if method == "products":
            self._mapping(method, result)
        elif isinstance(result, Mapping):
            self._refuse(method, "returned a dict; one array of numbers at points is needed")
        for leaf in jax.tree.leaves(result):
            if not _fits(leaf.shape[-3:], POINTS):
                self._refuse(method, f"returned shape {leaf.shape} for values of shape {POINTS}")

    def _observables(self, quantities: Mapping[str, Any]) -> None:
        """Refuses columns that are not numbers or have the name of another one, and energies that
        are not those of modes."""
        model, row = self._model, {}
        if any(isinstance(part, FieldMoments) for part in model.has):
            means = self._traced("quantities", partial(moments_of, model), self._state)
            self._new("quantities", quantities, {"rate", *means})
        moments = self._traced("moments", partial(point_moments, model), self._state)
        for part in model.has:
            name = type(part).__name__
            known = Row(cast(Any, self._time), moments, row)
            columns = self._traced(
                f"{name}.columns", partial(part.columns, model), self._state, known
            )
            self._numbers(f"{name}.columns", columns)
            self._new(f"{name}.columns", columns, row)
            row |= columns
            for method in ("energies", "cospectra", "transfers"):
                measured = partial(getattr(part, method), model)
                label = f"{name}.{method}"
                self._of_modes(label, self._traced(label, measured, self._state))

    def _new(self, method: str, columns: Mapping[str, Any], others: Collection[str]) -> None:
        """Refuses a column of the name of another one, which one of them would replace."""
        for name in columns:
            if name in others or name in _COLUMNS:
                self._refuse(method, f"{name!r} is another column already; rename it")

    def _numbers(self, method: str, columns: object) -> None:
        for name, value in self._mapping(method, columns).items():
            if not name.isidentifier():
                self._refuse(method, f"{name!r} cannot name a column")
            if value.shape or jnp.iscomplexobj(value):
                problem = f"{name} has shape {value.shape} and type {value.dtype}"
                self._refuse(method, f"{problem}; real numbers are needed")

    def _of_modes(self, method: str, energies: object) -> None:
        full = self._layout.shape
        for name, value in self._mapping(method, energies).items():
            if not _fits(value.shape, full) or jnp.iscomplexobj(value):
                problem = f"{name} has shape {value.shape} and type {value.dtype}"
                self._refuse(method, f"{problem}; a real number for each mode, {full}, is needed")

    def _budget(self, forced: bool) -> None:
        """Refuses a budget that lacks a part."""
        model, budget = self._model, self._model.budget
        if budget is None:
            return
        kind = type(budget)
        if forced and kind.work is Budget.work:
            raise UserError(
                f"{self._path}: {kind.__name__}: the budget of an equation with a forcing has to "
                "define work, the power of its accelerations"
            )
        momentary = isinstance(model, SplitEquation) and budget.momentary(model)
        if momentary and kind.row is Budget.row:
            raise UserError(
                f"{self._path}: {kind.__name__}: a momentary budget of a SplitEquation has to "
                "define row, because the rates of its fields are not known"
            )
        if kind.balance is not Budget.balance:
            name = f"{kind.__name__}.balance"
            balance = self._traced(name, partial(budget.balance, model), self._state)
            self._numbers(name, getattr(balance, "_asdict", lambda: balance)())

    def _traced(self, method: str, function: Callable[..., Any], *arguments: Any) -> Any:
        shapes = self._user(method, partial(jax.eval_shape, function))(*arguments)
        trace(self._files, f"{self._path}: {method}", function, *arguments)
        return shapes

    def _user(self, method: str, function: Callable[..., Any]) -> UserFunction:
        arguments = "values that are not known yet"
        line = self._line_of(method)
        return UserFunction(function, self._path, method, arguments, line=line)

    def _mapping(self, method: str, result: object, key: str = "name") -> Mapping[Any, Any]:
        if not isinstance(result, Mapping):
            self._refuse(method, f"returned {type(result).__name__}; a dict by {key} is needed")
        return result

    def _fields(
        self,
        method: str,
        result: object,
        shapes: Mapping[str, tuple[int, ...]],
        extents: tuple[int, ...] = (),
    ) -> None:
        """Refuses arrays that are not of fields with these `shapes`; without `extents` of points
        they are of modes."""
        for name, value in self._mapping(method, result).items():
            if name not in shapes:
                self._refuse(method, f"returned {name!r}; the fields are {', '.join(shapes)}")
            full = (*shapes[name], *(extents or self._layout.shape))
            # One L may serve all components, but one rate for them is a slip.
            alike = method == "linear" or value.shape[:-3] == shapes[name]
            if not (alike and _fits(value.shape, full)):
                problem = f"{name} has shape {value.shape}, which does not fit the field's {full}"
                self._refuse(method, problem)

    def _couplings(self, terms: object) -> None:
        shapes = self._model.shapes
        for pair, factor in self._mapping("waves", terms, "pair of fields").items():
            if not (isinstance(pair, tuple) and len(pair) == 2 and set(pair) <= {*shapes}):
                known = f"two of the fields {', '.join(shapes)} are needed"
                self._refuse("waves", f"returned {pair!r}; {known}")
            one, other = pair
            if shapes[one] != shapes[other]:
                problem = "have different components; evolve these as scalars"
                self._refuse("waves", f"{one} and {other} {problem}")
            if not _fits(jnp.shape(factor), self._layout.shape):
                problem = f"{pair} has shape {jnp.shape(factor)}; one number a mode is needed"
                self._refuse("waves", problem)
        if terms and isinstance(self._model, SplitEquation):
            self._refuse("waves", "has no effect in split steps; put the terms into flow")

    def _refuse(self, method: str, problem: str) -> NoReturn:
        raise self._user(method, self._traced).refused(problem)

    def _line_of(self, method: str) -> int | None:
        owner, _, name = method.rpartition(".")
        kinds = {type(part).__name__: type(part) for part in (*self._model.has, self._model.budget)}
        defined = getattr(kinds[owner] if owner else type(self._model), name, None)
        code = getattr(defined, "__code__", None)
        return code.co_firstlineno if code and code.co_filename == self._path else None
