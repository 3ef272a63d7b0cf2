"""The contract of an equation, ours and users': its fields, its parameters and its terms."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache, cached_property
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Self, TypeVar, Union, get_args, get_origin

import jax
import jax.numpy as jnp
from jax.core import Tracer
from pydantic import create_model

from simulator.errors import UserError
from simulator.physics.models.calculus import SpectralCalculus
from simulator.physics.models.closures import Closure
from simulator.physics.models.damping import Damping
from simulator.physics.models.extension import Extension
from simulator.physics.models.fields import VECTOR, Fields, FieldSpec
from simulator.physics.models.growth import Growth
from simulator.physics.models.limits import Advective, StepLimit
from simulator.physics.models.linear_waves import Waves
from simulator.physics.models.observables.budget import Budget
from simulator.physics.models.observables.moments import FieldMoments
from simulator.physics.models.observables.observable import Observable
from simulator.physics.models.variables import Variables
from simulator.physics.terms.term import Term
from simulator.physics.user_function import UserFiles
from simulator.settings import Flag, Integer, Real
from simulator.settings import Settings as BlockSettings
from simulator.spectral import Points, Transform, arrays, operators, seen_points
from simulator.spectral.transform import Tree

MakeTransform = Callable[..., Transform]
"""`make(real=True, every=False)` makes a transform of the run: of real or complex fields, with the
modes that dealiasing keeps or with all."""

_CHECKED: dict[Any, Any] = {float: Real, int: Integer, bool: Flag}
"""Types of numbers as elsewhere in a configuration."""


class Parameters(BlockSettings):
    """The settings of an equation that are made from its annotated attributes."""


@dataclass(frozen=True)
class Field:
    """An evolved field in an equation's declaration."""

    name: str
    vector: bool | int = False
    """True: one component for each axis of the grid; a number: this many components."""
    complex: bool = False
    """The values are complex. All fields of an equation are real, or all are complex."""
    solenoidal: bool = False
    """The divergence of initial conditions is removed."""
    units: str = ""
    """Units in words, e.g. "length/time"."""

    def spec(self, dimensions: int) -> FieldSpec:
        """The specification of the field on a grid with `dimensions` axes."""
        count = dimensions if self.vector is True else int(self.vector)
        names = VECTOR[:count] if count <= len(VECTOR) else tuple(str(i) for i in range(count))
        return FieldSpec(self.name, names, self.solenoidal, self.complex, self.units)


@dataclass(frozen=True)
class Numerics:
    """The grids and integrators on which an equation can be solved."""

    integrators: Sequence[str] = ()
    """The integrators that solve the equation, the default first; empty: all of its kind."""
    dealias: Sequence[str] = ()
    """The allowed values of `grid.dealias`, the default first; empty: all."""
    decays: bool = False
    """Whether no mode grows by the linear term, whatever the parameters are."""
    split: bool = False
    """Whether the equation is solved by split steps, as a `SplitEquation`."""
    waves: Literal["exact", "explicit"] = "exact"
    """The default of `time.waves`."""
    waves_about: str | None = None
    """The vector field about whose mean, the attribute `mean_field`, exact waves run."""
    open: bool = False
    """Whether a user's file defines the equation, against which other keys are checked."""
    guarded: bool = False
    """Whether the rate is NaN, and fields stay, if a `trouble` of `has` allows no step."""


class Equation(SpectralCalculus):
    """du/dt = L u + N(u). `evolved` lists the fields; annotated attributes are parameters:

        class Burgers(Equation):
            evolved = ("u",)
            viscosity: Positive = 0.01

            def linear(self):
                return {"u": -self.viscosity * self.k_squared}

            def products(self, values):
                return {"square": values["u"] ** 2}

            def combine(self, products, fields):
                return {"u": -0.5 * self.gradient(products["square"])[0]}

    L is diagonal and is integrated exactly. N = combine(products(inputs(u))): the transform brings
    the `inputs` to physical space, block by block, forms the `products` at every point, and
    transforms them back. `advection` gives a CFL condition. Wavenumbers and derivatives have an
    entry for each axis of the grid.

    An equation is this page alone. What is measured of it (`has`, `budget`), what limits dt
    (`step_limit`), further damping (`damps`), its `closure` and its `variables` are objects that it
    has."""

    Settings: ClassVar[type[BlockSettings]] = Parameters
    numerics: ClassVar[Numerics] = Numerics()
    """The grids and the integrators on which the equation can be solved."""
    dimensions: ClassVar[int | Sequence[int] | None] = None
    """The dimensions of the grids on which the equation can be solved; None: all, and without one
    dimension if a field is solenoidal."""
    evolved: Sequence[Field | str] = ()
    """The fields: names of real scalars, or `Field`s."""
    has: Sequence[Observable[Any]] = (FieldMoments(),)
    """The observables of the equation, in the order of their columns."""
    budget: Budget[Any] | None = None
    """The energy budget, if the equation states one."""
    step_limit: StepLimit[Any] = Advective()
    """The condition on dt."""
    damps: Sequence[Damping] = ()
    """Further diagonal terms of L: hyperviscosity, drag."""
    closure: Closure[Any] | None = None
    """The effect of the scales below the grid, in a large-eddy simulation."""
    variables: Variables[Any] = Variables()
    """The fields of an initial condition in terms of the evolved ones."""
    terms: Sequence[Term] = ()
    """Further terms, functions of the fields at a point, of place and time."""
    extension: Extension[Any] = Extension()
    """How the equation takes `terms` and forces."""
    wave_frequency: float = 0.0
    """The largest frequency (1/time) of waves in the explicit terms, which dt resolves."""
    integrated: Sequence[str] = ()
    """The fields whose `waves` the integrator solves exactly."""
    constant: Sequence[str] = ()
    """The fields that keep their initial values."""
    fields: Mapping[str, FieldSpec]
    """The specifications of the evolved fields."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "Settings" not in vars(cls):
            cls.Settings = parameters_of(cls)

    def __init__(self, settings: BlockSettings, transform: Transform):
        """The parameters become attributes, by their keys."""
        self.settings = settings
        self.transform = transform
        _check_dimensions(self)
        for name in type(settings).model_fields.keys() - {"kind"}:
            setattr(self, name, getattr(settings, name))
        axes = transform.grid.dimensions
        self.fields = {field.name: field.spec(axes) for field in declared(self)}

    @classmethod
    def create(cls, settings: Any, make: MakeTransform, files: UserFiles) -> Self:
        """The equation of a run; `files` opens files. Raises UserError, beginning with the key, for
        settings that do not fit the grid."""
        return cls(settings, make(real=not any(field.complex for field in declared(cls))))

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Leading shape of each evolved field: (d,) for a vector in d dimensions, () for a
        scalar."""
        return {name: spec.shape for name, spec in self.fields.items()}

    @cached_property
    def solenoidal(self) -> tuple[str, ...]:
        """Names of the fields that are kept free of divergence."""
        return tuple(name for name, spec in self.fields.items() if spec.solenoidal)

    @property
    def transforms(self) -> Mapping[str, Transform]:
        """The transform of each evolved field. All transforms share one arrangement of points."""
        return dict.fromkeys(self.fields, self.transform)

    @property
    def initial_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The fields of an initial condition, with their leading shapes."""
        return self.variables.shapes(self)

    @property
    def accelerated(self) -> Mapping[str, tuple[int, ...]]:
        """The fields that a forcing accelerates, with their leading shapes."""
        return self.variables.accelerated(self)

    @cached_property
    def linear_growth(self) -> Growth:
        """The growth of modes by the linear term."""
        return Growth(self)

    def linear(self) -> dict[str, arrays.OverModes]:
        """The diagonal L of each field (1/time), real or complex, of either sign; it broadcasts
        against the field. Fields without an entry have none.

        For a real field L(-k) has to be the conjugate of L(k)."""
        return {}

    def waves(self) -> Waves:
        """The linear terms that couple fields, mode by mode: {(a, b): factor} of the field b in the
        rate of the field a (1/time), real or complex, of either sign. `time.waves` says whether they
        are integrated exactly, with `linear`, or as explicit terms.

        For real fields a factor at -k has to be the conjugate of that at k."""
        return {}

    def inputs(self, fields: Fields) -> Tree:
        """Spectral fields whose values `products` needs."""
        return fields

    def parameters(self, fields: Fields) -> Mapping[str, arrays.Number]:
        """Attributes that depend on the fields, by name: numbers that are the same at all points,
        for `products`."""
        return {}

    def products(self, values: arrays.PointValues) -> arrays.PointValues:
        """The nonlinear terms at a point: any pointwise function of the values of `inputs`, by
        name. `products(self, values, points, time)` also gets the coordinates `points.x`,
        `points.y` and `points.z` (0 where the grid has no such axis), which broadcast against the
        values, and the time; either may be left out."""
        return {}

    def forcing(self, fields: Fields, time: arrays.Number) -> Fields:
        """Accelerations (field/time) of fields by name, as coefficients, which the energy budget
        counts as injection. The gradient part of an acceleration of a solenoidal field is
        removed."""
        return {}

    def advection(
        self, values: arrays.PointValues
    ) -> arrays.PhysicalVector | Sequence[jax.Array] | None:
        """The velocity (length/time) at a point that limits dt by the CFL number; None: there is no
        limit."""
        return None

    def combine(self, products: Tree, fields: Fields) -> Fields:
        """N of each field, none for fields without an entry; by default the product of the same
        name."""
        return dict(products)

    def at(self, time: arrays.Number | float, since: arrays.Number | float | None = None) -> Self:
        """The equation with its wavenumbers at a time. They depend on it in a sheared flow, whose
        fields have the frame at the time `since`, by default the same."""
        return self

    def quantities(self, fields: Fields) -> dict[str, arrays.Number]:
        """Scalars for columns of diagnostics.csv, in addition to the mean and the variance of every
        field. `quantities(self, fields, time)` also gets the time."""
        return {}

    def spectral_energies(self, fields: Fields) -> dict[str, arrays.OfModes]:
        """The energy of each mode, by name; by default half the square of every field."""
        return {name: 0.5 * operators.squared(field) for name, field in fields.items()}


_Equation = TypeVar("_Equation", bound=Equation)


def _check_dimensions(equation: Equation) -> None:
    grid = equation.transform.grid
    solenoidal = any(field.solenoidal for field in declared(equation))
    possible = equation.dimensions or ((2, 3) if solenoidal else (1, 2, 3))
    possible = (possible,) if isinstance(possible, int) else possible
    if grid.dimensions in possible:
        return
    shape = list(map(str, grid.seen(grid.shape)))
    nearest = min(possible, key=lambda count: abs(count - grid.dimensions))
    if nearest > grid.dimensions:
        further = VECTOR[grid.dimensions : nearest]
        shape += ["1"] * len(further)
        cure = f"[{', '.join(shape)}] makes fields that do not depend on {' and '.join(further)}"
    else:
        cure = f"[{', '.join(shape[:nearest])}] is a {('line', 'plane')[nearest - 1]}"
    name = getattr(equation.settings, "kind", type(equation).__name__)
    number = " or ".join(("one", "two", "three")[count - 1] for count in possible)
    noun = "dimension" if number == "one" else "dimensions"
    raise UserError(f"grid.shape: {name} is solved in {number} {noun}; {cure}")


def declared(equation: Equation | type[Equation]) -> tuple[Field, ...]:
    """The fields that an equation evolves."""
    return tuple(f if isinstance(f, Field) else Field(f) for f in equation.evolved)


def parameters_of(equation: type[Equation], without: Sequence[str] = ()) -> type[BlockSettings]:
    """The settings class of an equation's parameters: the annotated attributes of the class and of
    its bases, with their values as defaults, in addition to the keys of a base that has a settings
    class of its own. `without`: names to leave out."""
    fields: dict[str, Any] = {}
    base: type[BlockSettings] = Parameters
    for ancestor in equation.__mro__:
        settings = vars(ancestor).get("Settings")
        # The contract itself has no parameters; other classes add theirs to those of their bases.
        if settings is Parameters or (settings and not issubclass(settings, Parameters)):
            base = settings
            break
        for name, annotation in inspect.get_annotations(ancestor, eval_str=True).items():
            hidden = name.startswith("_") or get_origin(annotation) is ClassVar
            if not hidden and name not in without and name not in fields:
                fields[name] = (_checked(annotation), getattr(equation, name, ...))
    return create_model(equation.__name__, __base__=base, __module__=equation.__module__, **fields)


def _checked(annotation: Any) -> Any:
    if annotation in _CHECKED:
        return _CHECKED[annotation]
    arguments = get_args(annotation)
    if get_origin(annotation) in (Union, UnionType):
        return Union[tuple(a if a is NoneType else _checked(a) for a in arguments)]  # noqa: UP007 - made from a list
    if get_origin(annotation) in (tuple, list) and arguments:
        return get_origin(annotation)[tuple(a if a is Ellipsis else _checked(a) for a in arguments)]
    return annotation


def parameters(model: Equation, fields: Fields) -> dict[str, arrays.Number]:
    """The numbers on which pointwise functions of an equation depend, and over which they must not
    close: parameters that are traced, because a run is differentiated by them or they vary within
    an ensemble, and those that the equation computes from the fields."""
    numbers: dict[str, arrays.Number] = {}
    for name in type(model.settings).model_fields:
        value = getattr(model, name, None)
        if isinstance(value, Tracer):
            numbers[name] = value
    return {**numbers, **model.parameters(fields)}


def products_at(
    model: Equation, values: arrays.PointValues, points: Points, time: arrays.Number | float
) -> arrays.PointValues:
    """The products of an equation, with the points and the time if it asks for them."""
    asked = asked_arguments(type(model).products)
    if not asked:
        return model.products(values)
    known = {
        "points": seen_points(model.transform.grid, points),
        "time": jnp.asarray(time, model.transform.dtype),
    }
    return model.products(values, **{name: known[name] for name in asked})


@cache
def asked_arguments(products: Callable[..., Any]) -> tuple[str, ...]:
    """The arguments among `points` and `time` that the method `products` of an equation takes."""
    names = inspect.signature(products).parameters
    return tuple(name for name in ("points", "time") if name in names)


def with_parameters(model: _Equation, numbers: Mapping[str, jax.Array]) -> _Equation:
    """A copy of the equation with these values of its attributes."""
    if not numbers:
        return model
    other = copy(model)
    vars(other).update(numbers)
    return other
