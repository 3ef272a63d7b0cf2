"""The contract of an equation, ours and users': its fields, its parameters and its terms."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache, reduce
from operator import add
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Self, TypeVar, Union, get_args, get_origin

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Complex
from pydantic import create_model

from simulator.physics.models.closures import Closure
from simulator.physics.models.cosmology import Background
from simulator.physics.models.damping import Damping
from simulator.physics.models.extension import Extension
from simulator.physics.models.fields import VECTOR, Fields, FieldSpec
from simulator.physics.models.growth import Growth
from simulator.physics.models.limits import Advective, StepLimit
from simulator.physics.models.linear_waves import Waves
from simulator.physics.models.observables.budget import Budget
from simulator.physics.models.observables.moments import FieldMoments
from simulator.physics.models.observables.observable import Observable
from simulator.physics.models.passive_scalars import TransportedScalar
from simulator.physics.models.variables import Variables
from simulator.physics.particles.population import Populations
from simulator.physics.terms.term import Term
from simulator.physics.user_function import UserFiles
from simulator.settings import Flag, Integer, Real
from simulator.settings import Settings as BlockSettings
from simulator.spectral import Points, Transform, arrays, operators
from simulator.spectral.sheared import ShearedFrame
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


class Equation:
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
    integrators: ClassVar[tuple[str, ...]] = ()
    """The integrators that solve the equation, the default first; empty: all of its kind."""
    dealias: ClassVar[tuple[str, ...]] = ()
    """The allowed values of `grid.dealias`, the default first; empty: all."""
    planar: ClassVar[bool] = True
    """Whether the equation can also be solved in two dimensions."""
    split: ClassVar[bool] = False
    """Whether the equation is solved by split steps, as a `SplitEquation`."""
    decays: ClassVar[bool] = False
    """Whether no mode grows by the linear term, whatever the parameters are."""
    guarded: ClassVar[bool] = False
    """Whether the rate is NaN, and fields stay, if a `trouble` of `has` allows no step."""
    open: ClassVar[bool] = False
    """Whether a user's file defines the equation, against which other keys are checked."""
    pushed: ClassVar[str | None] = None
    """The input to which a forcing is added; None: it is added to the rates of the fields."""

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
    closure: Closure | None = None
    """The effect of the scales below the grid, in a large-eddy simulation."""
    variables: Variables[Any] = Variables()
    """The fields of an initial condition in terms of the evolved ones."""
    terms: Sequence[Term] = ()
    """Further terms, functions of the fields at a point, of place and time."""
    extension: Extension[Any] = Extension()
    """How `terms` are added."""
    receives: Mapping[str, str] = {}
    """The products to which `terms` add their rates of fields, by field; other rates are products
    of their own."""
    transports: Mapping[str, str] = {}
    """The products to which `terms` add their fluxes of fields, by field."""
    varied_arrays: Mapping[str, Tree] = {}
    """Trees of arrays by which a run can be differentiated, by their keys in the configuration."""
    background: Background | None = None
    """The expanding background; None: a static box."""
    sheared: ShearedFrame | None = None
    """The frame of a uniform shear flow, whose wavenumbers turn; None: a box at rest."""
    unforced: str | None = None
    """The reason why the equation cannot be forced; None if it can."""
    transported: Sequence[TransportedScalar] = ()
    """The scalars that a flow carries along."""
    parts: Mapping[str, Any] = {}
    """The components of a composite, by name."""
    populations: Populations = {}  # noqa: RUF012 - never changed
    """The particles that are matter of the equation itself."""
    pictured: Sequence[str] | None = None
    """The scalars whose mid-planes are stored by default; None: all."""
    unit_system: str = ""
    """The system of units, e.g. kpc_km_s_msun."""
    misfit: Any = None
    """(settings, integrator) to the reason why it cannot solve the equation, or None."""
    jeans_frequency_squared: Any = None
    """(k^2, density) to omega^2 (1/time^2) of a small density wave in homogeneous matter at rest."""
    wave_frequency: float = 0.0
    """The largest frequency (1/time) of waves in the explicit terms, which dt resolves."""
    usual_waves: ClassVar[Literal["exact", "explicit"]] = "exact"
    """The default of `time.waves`."""
    integrated: Sequence[str] = ()
    """The fields whose `waves` the integrator solves exactly."""
    waves_about: str | None = None
    """The vector field about whose mean, the attribute `mean_field`, exact waves run."""

    transform: Transform
    settings: Any
    fields: Mapping[str, FieldSpec]
    transforms: Mapping[str, Transform]
    """The transform of each evolved field. All transforms share one arrangement of points."""
    shapes: Mapping[str, tuple[int, ...]]
    """Leading shape of each evolved field: (d,) for a vector in d dimensions, () for a scalar."""
    solenoidal: tuple[str, ...]
    """Names of the fields that are kept free of divergence."""
    diffuses: Sequence[str]
    """The fields that may have a viscosity or diffusivity that depends on the place."""
    initial_shapes: Mapping[str, tuple[int, ...]]
    """The fields of an initial condition, with their leading shapes."""
    accelerated: Mapping[str, tuple[int, ...]]
    """The fields that a forcing accelerates, with their leading shapes."""
    density_transform: Transform
    """The transform of real fields with all modes of the equation."""
    linear_growth: Growth
    """The growth of modes by the linear term."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "Settings" not in vars(cls):
            cls.Settings = parameters_of(cls)

    def __init__(self, settings: BlockSettings, transform: Transform):
        """The parameters become attributes, by their keys."""
        self.settings = settings
        self.transform = transform
        self.density_transform = transform
        for name in type(settings).model_fields.keys() - {"kind"}:
            setattr(self, name, getattr(settings, name))
        axes = len(transform.grid.axes)
        specs = [field.spec(axes) for field in declared(self)]
        self.fields = {spec.name: spec for spec in specs}
        self.shapes = {spec.name: spec.shape for spec in specs}
        self.solenoidal = tuple(spec.name for spec in specs if spec.solenoidal)
        self.diffuses = tuple(spec.name for spec in specs if not spec.shape)
        self.transforms = dict.fromkeys(self.fields, transform)
        self.initial_shapes = self.shapes
        self.accelerated = self.shapes
        self.linear_growth = Growth(self)

    @classmethod
    def create(cls, settings: Any, make: MakeTransform, files: UserFiles) -> Self:
        """The equation of a run; `files` opens files. Raises UserError, beginning with the key, for
        settings that do not fit the grid."""
        real = not any(field.complex for field in declared(cls))
        return cls(settings, make(real=real, every=cls.split))

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
        `points.y` and `points.z` (0 in a plane), which broadcast against the values, and the time;
        either may be left out."""
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
        if self.sheared is None or self.transform is not self.sheared.transform:
            return self
        other = copy(self)
        other.transform = self.sheared.at(time, since)
        other.transforms = dict.fromkeys(self.fields, other.transform)
        other.density_transform = other.transform
        return other

    def quantities(self, fields: Fields) -> dict[str, arrays.Number]:
        """Scalars for columns of diagnostics.csv, in addition to the mean and the variance of every
        field."""
        return {}

    def spectral_energies(self, fields: Fields) -> dict[str, arrays.OfModes]:
        """The energy of each mode, by name; by default half the square of every field."""
        return {name: 0.5 * operators.squared(field) for name, field in fields.items()}

    @property
    def k(self) -> tuple[arrays.OverModes, ...]:
        """Wavenumbers (1/length) along the axes of the grid."""
        return self.transform.grid.seen(self.transform.layout.wavenumbers(self.transform.dtype))

    @property
    def k_squared(self) -> arrays.OfModes:
        """|k|^2 (1/length^2)."""
        return self.transform.layout.k_squared(self.transform.dtype)

    @property
    def inverse_k_squared(self) -> arrays.OfModes:
        """1 / |k|^2, and 0 at k = 0."""
        return self.transform.layout.inverse_k_squared(self.transform.dtype)

    def laplacian(self, field: arrays.SpectralField) -> arrays.SpectralField:
        """-|k|^2 f."""
        return -self.k_squared * field

    def inverse_laplacian(self, field: arrays.SpectralField) -> arrays.SpectralField:
        """-f / |k|^2, and 0 at k = 0."""
        return -self.inverse_k_squared * field

    def gradient(
        self, field: Complex[Array, "*component ka kb kc"]
    ) -> Complex[Array, "... ka kb kc"]:
        """i k f, with the direction of the derivative as the first axis."""
        if field.ndim == 3:
            return operators.gradient(self.transform.layout, field)
        return jnp.stack([1j * k * field for k in self.k])

    def divergence(self, field: arrays.SpectralVector) -> arrays.SpectralScalar:
        """i k . v; in a plane a third component of v is ignored, and a missing one is zero."""
        parts = zip(self.k, jnp.unstack(field), strict=False)
        return 1j * reduce(add, (k * part for k, part in parts))

    def curl(self, field: Complex[Array, "... ka kb kc"]) -> Complex[Array, "... ka kb kc"]:
        """i k x v. In two dimensions the scalar d_x v_y - d_y v_x of a vector with two components,
        the vector (d_y f, -d_x f) of a scalar, or the curl, with three components, of a vector with
        three components."""
        if field.ndim > 3 and field.shape[0] > len(self.k):
            return 1j * operators.cross((*self.k, jnp.zeros((1, 1, 1))), field)
        return operators.curl(self.transform.layout, field)

    def rotated_gradient(self, field: arrays.SpectralScalar) -> Complex[Array, "2 ka kb kc"]:
        """The velocity (-d_y f, d_x f) in a plane of the stream function f."""
        kx, ky = self.k[:2]
        return jnp.stack([-1j * ky * field, 1j * kx * field])

    def project(self, field: arrays.SpectralVector) -> arrays.SpectralVector:
        """The solenoidal part of a vector, its mean included. In a plane a third component is left
        unchanged; a vector of two components in space is projected within their plane."""
        k = self.k[: len(field)]
        part = operators.project_with(k, field[: len(k)])
        return part if len(field) == len(k) else jnp.concatenate([part, field[len(k) :]])

    def fluctuation(self, field: arrays.SpectralField) -> arrays.SpectralField:
        """The field without its box mean."""
        return operators.fluctuation(self.transform.layout, field)

    def mean_of(self, a: arrays.SpectralField, b: arrays.SpectralField) -> arrays.Number:
        """The box mean of the product of two fields, summed over their components."""
        return self.transform.layout.inner(a, b).sum()


_Equation = TypeVar("_Equation", bound=Equation)


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
        settings = vars(ancestor).get("Settings", Parameters)
        if ancestor is Equation or not issubclass(settings, Parameters):
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
    values = {name: getattr(model, name, None) for name in type(model.settings).model_fields}
    traced = {name: value for name, value in values.items() if isinstance(value, Tracer)}
    return {**traced, **model.parameters(fields)}


def products_at(
    model: Equation, values: arrays.PointValues, points: Points, time: arrays.Number | float
) -> arrays.PointValues:
    """The products of an equation, with the points and the time if it asks for them."""
    asked = asked_arguments(type(model).products)
    if not asked:
        return model.products(values)
    grid = model.transform.grid
    across = () if not grid.planar else (points.x,)
    known = {
        "points": Points(*grid.seen(points), *across),
        "time": jnp.asarray(time, model.transform.dtype),
    }
    return model.products(values, **{name: known[name] for name in asked})


@cache
def asked_arguments(products: Callable[..., Any]) -> tuple[str, ...]:
    """Those of `points` and `time` that the method `products` of an equation takes."""
    names = inspect.signature(products).parameters
    return tuple(name for name in ("points", "time") if name in names)


def with_parameters(model: _Equation, numbers: Mapping[str, jax.Array]) -> _Equation:
    """A copy of the equation with these values of its attributes."""
    if not numbers:
        return model
    other = copy(model)
    vars(other).update(numbers)
    return other
