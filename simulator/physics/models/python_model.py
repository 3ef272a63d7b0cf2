"""An equation from a user's Python file."""

from collections.abc import Callable, Mapping
from functools import partial
from inspect import get_annotations
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field as Key
from pydantic import ValidationError, create_model

from simulator.errors import UserError
from simulator.physics.models.equation import (
    Equation,
    MakeTransform,
    Numerics,
    declared,
    parameters,
    parameters_of,
)
from simulator.physics.models.misspelling import refuse_arguments, refuse_misspelling
from simulator.physics.models.observables.budget import Budget
from simulator.physics.models.outputs import diagnostics
from simulator.physics.models.split_equation import SplitEquation
from simulator.physics.models.tendency import pointwise
from simulator.physics.user_function import POINTS, UserFiles, UserFunction, trace, traced_points
from simulator.registry import subclass_of
from simulator.settings import PythonFile, Settings
from simulator.spectral import Points
from simulator.spectral.transform import Tree

_TAKEN = frozenset(
    ("step", "time", "dt", "cfl", "x", "y", "z", "k", "rate")
)  # Coordinates of tables and series.


class PythonModelSettings(Settings):
    kind: Literal["python"] = "python"
    path: PythonFile
    """A Python file; the run copies the file and executes the copy."""
    equation: str
    """The class in it: a subclass of `simulator.equations.Equation`."""
    parameters: dict[str, Any] = Key(default_factory=dict)
    """Values of the class's annotated attributes; those with a default may be left out."""


def admitted(name: str, model: object) -> type[Equation]:
    """The class that an installed package declares as a kind of model; the parameters of an
    `Equation` are keys of the block `model`. Raises TypeError for anything else."""
    model = subclass_of(Equation)(name, model)
    if "kind" not in model.Settings.model_fields:
        kind: Any = (Literal[name], name)
        model.Settings = create_model(name, __base__=model.Settings, kind=kind)  # type: ignore[assignment]
    return model


class WrongParameters(Exception):
    """Parameters that do not fit their annotations. `settings` describes a configuration that
    consists of them alone, and `data` is such a configuration, so that messages name
    `model.parameters.NAME`."""

    def __init__(self, error: ValidationError, settings: type[Settings], data: Mapping[str, Any]):
        super().__init__(str(error))
        self.error = error
        self.settings = settings
        self.data = data


class PythonModel(Equation):
    """Makes the equation of a user's file; the run then holds an instance of the user's class."""

    Settings = PythonModelSettings
    numerics = Numerics(open=True)

    @classmethod
    def create(cls, settings: Any, make: MakeTransform, files: UserFiles) -> Any:
        """Raises UserError or WrongParameters, with file and line, if the class is not an equation
        that can be solved."""
        path = Path(settings.path)
        kind: Any = files.function(str(path), settings.equation, "class")
        _check_declaration(kind, path, settings.equation)
        model = kind.create(validated(kind, settings.parameters), make, files)
        _Check(model, path, files).all()
        return model


def validated(kind: type[Equation], values: Mapping[str, Any]) -> Settings:
    """The parameters of an equation. Traced values cannot be checked and are taken unchanged."""
    traced = {name: value for name, value in values.items() if isinstance(value, jax.Array)}
    checked = parameters_of(kind, tuple(traced)) if traced else kind.Settings
    data = {"model": {"parameters": {n: v for n, v in values.items() if n not in traced}}}
    inside = create_model("Model", __base__=Settings, parameters=(checked, ...))
    wanted = create_model("Run", __base__=Settings, model=(inside, ...))
    try:
        run = wanted.model_validate(data)
    except ValidationError as error:
        raise WrongParameters(error, wanted, data) from None
    parameters: Settings = run.model.parameters  # type: ignore[attr-defined]
    if not traced:
        return parameters
    every: Any = kind.Settings
    return every.model_construct(
        **{n: getattr(parameters, n) for n in checked.model_fields}, **traced
    )


def _check_declaration(kind: object, path: Path, name: str) -> None:
    where = f"{path}: {name}"
    if not (isinstance(kind, type) and issubclass(kind, Equation)):
        raise UserError(
            f"{where}: is not an equation; derive the class from simulator.equations.Equation"
        )
    if not isinstance(kind.evolved, tuple | list):  # a text would be a field for each letter
        raise UserError(f'{where}: evolved is a tuple of names or Fields, e.g. evolved = ("u",)')
    fields = declared(kind)
    if not fields:
        raise UserError(f'{where}: names no field; give it e.g. evolved = ("u",)')
    names = [field.name for field in fields]
    for field in names:
        if (
            not (isinstance(field, str) and field.isidentifier())
            or field in _TAKEN
            or names.count(field) > 1
        ):
            raise UserError(f"{where}: {field!r} cannot name a field; take another word, each once")
        if field.startswith(("memory", "history")):
            raise UserError(
                f"{where}: names that begin with memory or history are taken; rename {field!r}"
            )
    if len({field.complex for field in fields}) > 1:
        raise UserError(
            f"{where}: real and complex fields cannot be mixed; write all as real or all as complex"
        )
    base = SplitEquation if issubclass(kind, SplitEquation) else Equation
    contract = (SplitEquation, *Equation.__mro__[:-1])
    taken = {*dir(base), *(name for part in contract for name in get_annotations(part))}
    for parameter in kind.Settings.model_fields:
        if parameter in taken:
            raise UserError(
                f"{where}: a parameter cannot be called {parameter!r}, which equations have; rename it"
            )
    refuse_misspelling(kind, base, frozenset(kind.Settings.model_fields))
    refuse_arguments(kind, "products", ("points", "time"))
    if issubclass(kind, SplitEquation) and kind.forcing is not Equation.forcing:
        raise UserError(
            f"{where}: a SplitEquation cannot be forced; add the force to flow, or derive from Equation"
        )


def _fits(shape: tuple[int, ...], full: tuple[int, ...]) -> bool:
    """Whether an array of this shape can be broadcast to the `full` one."""
    try:
        return np.broadcast_shapes(shape, full) == full
    except ValueError:
        return False


class _Check:
    """Traces the methods of an equation, without a device, and refuses an equation that a run could
    not compute."""

    def __init__(self, model: Equation, path: Path, files: UserFiles):
        self._model = model
        self._path = str(path)
        self._files = files
        self._transform = model.transform
        self._layout = model.transform.layout

    def all(self) -> None:
        model = self._model
        state = {n: self._modes(lead) for n, lead in model.shapes.items()}
        self._fields("linear", self._traced("linear", model.linear), model.shapes)
        self._couplings(self._traced("waves", model.waves))
        inputs = self._traced("inputs", model.inputs, state)
        for leaf in jax.tree.leaves(inputs):
            if leaf.shape[-3:] != self._layout.shape:
                shape = self._layout.seen_part(leaf.shape)
                self._refuse("inputs", f"has an array of shape {shape}; spectral fields are needed")
        products = self._pointwise(inputs, state)
        coefficients = jax.tree.map(lambda p: self._modes(p.shape[:-3]), products)
        shapes = model.shapes
        self._fields("combine", self._traced("combine", model.combine, coefficients, state), shapes)
        time = jax.ShapeDtypeStruct((), jnp.float64)
        forces = self._traced("forcing", model.forcing, state, time)
        self._fields("forcing", forces, model.accelerated)
        self._budget(bool(forces))
        for name, value in self._traced(
            "quantities", partial(diagnostics, model), state, time
        ).items():
            if jnp.shape(value) or jnp.iscomplexobj(value) or not name.isidentifier():
                problem = f"{name} has shape {jnp.shape(value)} and type {value.dtype}"
                self._refuse("quantities", f"{problem}; real numbers are needed")

    def _budget(self, forced: bool) -> None:
        """Refuses a budget that lacks a part."""
        model = self._model
        budget = model.budget
        if budget is not None and forced and type(budget).work is Budget.work:
            raise UserError(
                f"{self._path}: {type(budget).__name__}: the budget of an equation with a forcing has "
                "to define work, the power of its accelerations"
            )
        if (
            isinstance(model, SplitEquation)
            and budget is not None
            and budget.momentary(model)
            and type(budget).row is Budget.row
        ):
            raise UserError(
                f"{self._path}: {type(budget).__name__}: a momentary budget of a SplitEquation has to "
                "define row, because the rates of its fields are not known"
            )

    def _modes(self, lead: tuple[int, ...]) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((*lead, *self._layout.shape), self._transform.complex_dtype)

    def _pointwise(self, inputs: Tree, state: Mapping[str, jax.ShapeDtypeStruct]) -> Tree:
        value = self._transform.value_dtype
        values = jax.tree.map(
            lambda f: jax.ShapeDtypeStruct((*f.shape[:-3], *POINTS), value), inputs
        )
        axes, time = traced_points(self._transform.dtype)
        points = Points(*cast(Any, axes))
        # The traceback gives the line in `advection` and other methods.
        numbers = self._traced("parameters", partial(parameters, self._model), state)
        if isinstance(self._model, SplitEquation):
            method = "flow"
            local = self._model.flowing
            numbers = (time, time, numbers)
        else:
            method = "products"
            local = partial(pointwise, self._model, True)
            numbers = {"equation": numbers, "closure": {}, "time": time}
        result = self._traced(method, local, values, points, numbers)
        seen = self._transform.physical.seen_part
        every = [*jax.tree.leaves(result.products), *result.maxima.values(), *result.means.values()]
        for leaf in every:
            if not _fits(leaf.shape[-3:], POINTS):
                self._refuse(
                    method, f"returned shape {seen(leaf.shape)} for values of shape {seen(POINTS)}"
                )
        function = self._user(method, local)
        advice = (
            "it has to work point by point, and sums and derivatives belong into inputs and combine"
        )
        function.check_pointwise(jax.make_jaxpr(local)(values, points, numbers), advice)
        return result.products

    def _traced(self, method: str, function: Callable[..., Any], *arguments: Any) -> Any:
        shapes = self._user(method, partial(jax.eval_shape, function))(*arguments)
        trace(self._files, f"{self._path}: {method}", function, *arguments)
        return shapes

    def _user(self, method: str, function: Callable[..., Any]) -> UserFunction:
        arguments = "values that are not known yet"
        line = self._line_of(method)
        return UserFunction(function, self._path, method, arguments, line=line)

    def _fields(self, method: str, result: object, shapes: Mapping[str, tuple[int, ...]]) -> None:
        if not isinstance(result, Mapping):
            self._refuse(
                method, f"returned {type(result).__name__}; a dict of arrays by field is needed"
            )
        for name, value in result.items():
            if name not in shapes:
                self._refuse(method, f"returned {name!r}; the fields are {', '.join(shapes)}")
            full = (*shapes[name], *self._layout.shape)
            if not _fits(value.shape, full):
                shape, needed = map(self._layout.seen_part, (value.shape, full))
                self._refuse(
                    method, f"{name} has shape {shape}, which does not fit the field's {needed}"
                )

    def _couplings(self, terms: object) -> None:
        shapes = self._model.shapes
        if not isinstance(terms, Mapping):
            problem = "a dict of factors by pairs of fields is needed"
            self._refuse("waves", f"returned {type(terms).__name__}; {problem}")
        for pair, factor in terms.items():
            if not (isinstance(pair, tuple) and len(pair) == 2 and set(pair) <= {*shapes}):
                known = f"two of the fields {', '.join(shapes)} are needed"
                self._refuse("waves", f"returned {pair!r}; {known}")
            one, other = pair
            if shapes[one] != shapes[other]:
                problem = "have different components; evolve these as scalars"
                self._refuse("waves", f"{one} and {other} {problem}")
            full = self._layout.shape
            if not _fits(jnp.shape(factor), full):
                shape = self._layout.seen_part(jnp.shape(factor))
                self._refuse("waves", f"{pair} has shape {shape}; one number a mode is needed")
        if terms and isinstance(self._model, SplitEquation):
            self._refuse("waves", "has no effect in split steps; put the terms into flow")

    def _refuse(self, method: str, problem: str) -> NoReturn:
        raise self._user(method, self._traced).refused(problem)

    def _line_of(self, method: str) -> int | None:
        code = getattr(getattr(type(self._model), method, None), "__code__", None)
        return code.co_firstlineno if code and code.co_filename == self._path else None
