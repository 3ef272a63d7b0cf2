"""An equation from a user's Python file."""

from collections.abc import Mapping
from inspect import get_annotations
from pathlib import Path
from typing import Any, Literal

import jax
from pydantic import Field as Key
from pydantic import ValidationError, create_model

from simulator.errors import UserError
from simulator.physics.models.equation import (
    Equation,
    MakeTransform,
    Numerics,
    declared,
    parameters_of,
)
from simulator.physics.models.equation_check import EquationCheck
from simulator.physics.models.misspelling import refuse_arguments, refuse_misspelling
from simulator.physics.models.split_equation import SplitEquation
from simulator.physics.user_function import UserFiles
from simulator.registry import subclass_of
from simulator.settings import PythonFile, Settings

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
        EquationCheck(model, path, files).all()
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
    if kind.dimensions not in (None, 1, 2, 3):
        raise UserError(f"{where}: dimensions is 1, 2 or 3, or left out for all")
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
    refuse_arguments(kind, "quantities", ("time",))
    if issubclass(kind, SplitEquation) and kind.forcing is not Equation.forcing:
        raise UserError(
            f"{where}: a SplitEquation cannot be forced; add the force to flow, or derive from Equation"
        )
