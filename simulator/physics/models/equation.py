"""Equations in a few lines: a `Model` whose fields and parameters are declared in the class."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Complex
from pydantic import create_model

from simulator.physics.models.fields import VECTOR, DerivedField, Fields, FieldSpec
from simulator.physics.models.fluid import advection_rate
from simulator.physics.models.model import Model
from simulator.settings import Flag, Integer, Real, Settings
from simulator.spectral import Evaluated, Local, Points, Transform, arrays
from simulator.spectral.operators import cross, fluctuation, hermitian, squared
from simulator.spectral.transform import Tree

_CHECKED: dict[Any, Any] = {
    float: Real,
    int: Integer,
    bool: Flag,
}  # Numbers as elsewhere in a configuration.


class NoParameters(Settings):
    """The settings of an equation without parameters."""


@dataclass(frozen=True)
class Field:
    """An evolved field in an equation's declaration."""

    name: str
    vector: bool | int = (
        False  # True: one component for each axis of the grid; a number: this many components.
    )
    complex: bool = (
        False  # The values are complex. All fields of an equation are real, or all are complex.
    )
    solenoidal: bool = False  # The divergence of initial conditions is removed.
    units: str = ""  # Units in words, e.g. "length/time".

    def spec(self, dimensions: int) -> FieldSpec:
        """The specification of the field on a grid with `dimensions` axes."""
        count = dimensions if self.vector is True else int(self.vector)
        names = VECTOR[:count] if count <= len(VECTOR) else tuple(str(i) for i in range(count))
        return FieldSpec(self.name, names, self.solenoidal, self.complex, self.units)


class Equation(Model):
    """du/dt = L u + N(u), as users write it. `evolved` lists the fields; annotated attributes are
    parameters:

        class Burgers(Equation):
            evolved = ("u",)
            viscosity: Positive = 0.01

            def linear(self):
                return {"u": -self.viscosity * self.k_squared}

            def products(self, values):
                return {"square": values["u"] ** 2}

            def combine(self, products, fields):
                return {"u": -0.5 * self.gradient(products["square"])[0]}

    `linear`, `products` and `combine` are the equation; `advection` gives a CFL condition. All
    other methods of `Model` can be overridden, too. Wavenumbers and derivatives have an entry for
    each axis of the grid."""

    Settings = NoParameters
    planar = True
    evolved: ClassVar[Sequence[Field | str]] = ()  # The fields: names of real scalars, or `Field`s.

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.Settings = parameters_of(cls)

    def __init__(self, settings: Any, transform: Transform):
        fields = [field.spec(len(transform.grid.axes)) for field in declared(type(self))]
        super().__init__(settings, transform, fields)
        for name in type(settings).model_fields.keys() - {"kind"}:
            setattr(self, name, getattr(settings, name))

    @classmethod
    def create(cls, settings: Any, make: Callable[..., Transform], files: Any) -> Self:
        return cls(settings, make(real=not any(field.complex for field in declared(cls))))

    def products(self, values: arrays.PointValues) -> arrays.PointValues:
        """The nonlinear terms at a point: any pointwise function of the values of `inputs`, by
        name."""
        return {}

    def advection(
        self, values: arrays.PointValues
    ) -> arrays.PhysicalVector | Sequence[jax.Array] | None:
        """The velocity (length/time) at a point that limits dt by the CFL number; None: there is no
        limit."""
        return None

    def pointwise(self, values: Tree, points: Points, parameters: Tree) -> Local:
        equation = self.with_parameters(parameters)
        velocity = equation.advection(values)
        rate = {} if velocity is None else {"rate": self.advective_rate(velocity)}
        return Local(dict(equation.products(values)), rate)

    def advective_rate(
        self, velocity: arrays.PhysicalVector | Sequence[jax.Array]
    ) -> arrays.OverPoints:
        """sum_i |v_i| / dx_i (1/time) at a point, of a velocity with one component for each
        axis."""
        return advection_rate(self.transform.grid, velocity)  # type: ignore[arg-type]

    def parameters(self, time: arrays.Number) -> Tree:
        """The traced parameters of the equation: those by which a run is differentiated, or that
        vary within an ensemble. A pointwise function must not close over them."""
        values = {n: getattr(self, n, None) for n in type(self.settings).model_fields}
        return {n: v for n, v in values.items() if isinstance(v, Tracer)}

    def with_parameters(self, parameters: Mapping[str, jax.Array]) -> Self:
        """A copy of the equation with these values of its parameters."""
        other = copy(self)
        vars(other).update(parameters)
        return other

    def combine(self, products: Tree, fields: Fields) -> Fields:
        """N of each field, none for fields without an entry; by default the product of the same
        name."""
        return dict(products)

    def tendency(self, fields, time, accelerations=None, keep=()) -> tuple[Fields, Evaluated]:
        if jax.tree.leaves(self.product_shapes):
            rates, evaluated = super().tendency(fields, time, accelerations, keep)
            return self._whole(rates), evaluated
        rates = dict(self.combine({}, fields))
        for name, acceleration in (accelerations or {}).items():
            rates[name] = rates[name] + acceleration if name in rates else acceleration
        return self._whole(rates), Evaluated({}, {}, {})

    @cached_property
    def product_shapes(self) -> Any:
        """Shapes of the result of `pointwise` at a single point."""
        layout = self.transform.layout
        dtype = (
            self.transform.dtype
            if layout.real
            else jnp.result_type(self.transform.dtype, jnp.complex64)
        )
        kind = jnp.result_type(self.transform.dtype, jnp.complex64)
        state = {n: jax.ShapeDtypeStruct((*s, *layout.shape), kind) for n, s in self.shapes.items()}
        given = jax.eval_shape(self.inputs, state)
        one = jax.ShapeDtypeStruct((1, 1, 1), self.transform.dtype)
        values = jax.tree.map(
            lambda f: jax.ShapeDtypeStruct((*f.shape[:-3], 1, 1, 1), dtype), given
        )
        parameters = jax.eval_shape(self.parameters, jax.ShapeDtypeStruct((), jnp.float64))
        return jax.eval_shape(
            lambda v, x, q: self.pointwise(v, Points(x, x, x), q), values, one, parameters
        )

    def _whole(self, rates: Fields) -> Fields:
        """Tendencies of all fields in the fields' type; made Hermitian if modes of real fields may
        grow."""
        layout, kind = self.transform.layout, jnp.result_type(self.transform.dtype, jnp.complex64)
        whole = {}
        for name, lead in self.shapes.items():
            rate = jnp.asarray(rates.get(name, 0), kind)
            rate = jnp.broadcast_to(rate, (*lead, *layout.shape))
            whole[name] = hermitian(layout, rate) if self.growing else rate
        return whole

    def begin(self, fields: Fields, names: Any) -> Fields:
        """The evolved fields; if modes grow, without the anti-Hermitian part, which is invisible on
        the grid."""
        if not self.growing:
            return fields
        layout = self.transform.layout
        return jax.jit(lambda f: {n: layout.constrain(hermitian(layout, a)) for n, a in f.items()})(
            fields
        )

    def rate(self, maxima: Mapping[str, arrays.Number]) -> arrays.Number:
        """The larger of the advective rate and the growth rate of the linear term. Without
        `advection` there is no limit, even if modes grow, because the nonlinear terms may be
        faster."""
        rate, growth = super().rate(maxima), self._growth
        if "rate" not in maxima:
            return rate
        if growth == "traced":
            return jnp.maximum(rate, largest_of(self, jnp.real))
        return rate if growth in ("paper", 0.0) else jnp.maximum(rate, growth)

    @cached_property
    def _growth(self) -> float | Literal["traced", "paper"]:
        return number_of(self, jnp.real)

    def settle(self) -> None:
        _ = self._growth

    @property
    def growing(self) -> bool:
        """Whether modes of real fields may grow; their coefficients are then kept exactly
        Hermitian."""
        return self.transform.layout.real and self._growth != 0

    def longest_step(self) -> float | None:
        if isinstance(self._growth, str) or self._growth == 0:
            return None
        return 1 / self._growth

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

    def gradient(self, field: arrays.SpectralScalar) -> arrays.SpectralVector:
        """i k f."""
        return jnp.stack([1j * k * field for k in self.k])

    def divergence(self, field: arrays.SpectralVector) -> arrays.SpectralScalar:
        """i k . v; in a plane a third component of v is ignored."""
        return sum(1j * k * part for k, part in zip(self.k, field, strict=False))  # type: ignore[return-value]

    def curl(self, field: Complex[Array, "... ka kb kc"]) -> Complex[Array, "... ka kb kc"]:
        """i k x v. In two dimensions the scalar d_x v_y - d_y v_x of a vector with two components,
        the vector (d_y f, -d_x f) of a scalar, or the curl, with three components, of a vector with
        three components."""
        whole = field.ndim > 3 and field.shape[0] > len(self.k)
        return 1j * cross((*self.k, jnp.zeros((1, 1, 1))) if whole else self.k, field)

    def rotated_gradient(self, field: arrays.SpectralScalar) -> Complex[Array, "2 ka kb kc"]:
        """The velocity (-d_y f, d_x f) in a plane of the stream function f."""
        kx, ky = self.k[:2]
        return jnp.stack([-1j * ky * field, 1j * kx * field])

    def project(self, field: arrays.SpectralVector) -> arrays.SpectralVector:
        """The solenoidal part of a vector, its mean included. In a plane a third component is left
        unchanged."""
        waves = self.k[: field.shape[0]]
        along = sum(k * part for k, part in zip(waves, field, strict=False))
        k2 = sum(k * k for k in waves)
        along = along * jnp.where(k2 == 0, 0, 1 / jnp.where(k2 == 0, 1, k2))
        parts = [field[i] - k * along for i, k in enumerate(waves)]
        return jnp.stack([*parts, *field[len(waves) :]])

    def solenoidal_part(self, field: arrays.SpectralVector) -> arrays.SpectralVector:
        return self.project(field)

    def fluctuation(self, field: arrays.SpectralField) -> arrays.SpectralField:
        """The field without its box mean."""
        return fluctuation(self.transform.layout, field)

    def mean_of(self, a: arrays.SpectralField, b: arrays.SpectralField) -> arrays.Number:
        """The box mean of the product of two fields, summed over their components."""
        return self.transform.layout.inner(a, b).sum()

    def quantities(self, fields: Fields) -> dict[str, arrays.Number]:
        """Scalars for columns of diagnostics.csv, in addition to the mean and the variance of every
        field."""
        return {}

    def diagnostics(self, fields: Fields, time: arrays.Number) -> dict[str, arrays.Number]:
        defaults = super().diagnostics(fields, time)
        rate = defaults.pop("rate")
        return {**self.quantities(fields), **defaults, "rate": rate}

    def derived(self) -> Mapping[str, DerivedField]:
        """The modulus of each complex field and the magnitude of each vector."""

        def sizes(spec: FieldSpec, fields: Fields) -> jax.Array:
            values = self.transform.inverse(fields[spec.name])
            return jnp.sqrt(squared(values if spec.components else values[None]))

        derived = {}
        for name, spec in self.fields.items():
            if spec.complex or spec.components:
                size = FieldSpec(
                    f"{name}_{'magnitude' if spec.components else 'modulus'}", units=spec.units
                )
                derived[size.name] = DerivedField(size, partial(sizes, spec))
        return derived

    @property
    def pictured(self) -> tuple[str, ...]:
        """Every scalar, and the size of every complex field and vector."""
        return self.scalar_fields


def declared(equation: type[Equation]) -> tuple[Field, ...]:
    """The fields that an equation evolves."""
    return tuple(f if isinstance(f, Field) else Field(f) for f in equation.evolved)


def parameters_of(equation: type, without: Sequence[str] = ()) -> type[Settings]:
    """The settings class of an equation's parameters: the annotated attributes of the class and of
    its bases up to `Equation`, with their values as defaults. `without`: names to leave out."""
    fields: dict[str, Any] = {}
    for base in reversed(equation.__mro__):
        if not issubclass(base, Equation) or base is Equation:
            continue
        for name, annotation in inspect.get_annotations(base, eval_str=True).items():
            if name.startswith("_") or get_origin(annotation) is ClassVar or name in without:
                continue
            fields[name] = (_checked(annotation), getattr(equation, name, ...))
    return create_model(
        equation.__name__, __base__=Settings, __module__=equation.__module__, **fields
    )


def _checked(annotation: Any) -> Any:
    if annotation in _CHECKED:
        return _CHECKED[annotation]
    arguments = get_args(annotation)
    if get_origin(annotation) in (Union, UnionType):
        return Union[tuple(a if a is NoneType else _checked(a) for a in arguments)]  # noqa: UP007 - made from a list
    if get_origin(annotation) in (tuple, list) and arguments:
        return get_origin(annotation)[tuple(a if a is Ellipsis else _checked(a) for a in arguments)]
    return annotation


def number_of(model: Model, size: Callable[[Any], jax.Array]) -> float | Literal["traced", "paper"]:
    """`largest_of` as a number; "traced" if a parameter is traced, "paper" if there are no devices
    to compute on."""
    if not isinstance(model.transform.layout.mesh.devices.flat[0], jax.Device):
        return "paper"
    try:
        with jax.ensure_compile_time_eval():
            return float(jax.jit(lambda: largest_of(model, size))())
    except jax.errors.ConcretizationTypeError:
        return "traced"


def largest_of(model: Model, size: Callable[[jax.Array], jax.Array]) -> arrays.Number:
    """The maximum over the modes of the state of `size(L)` (1/time), and at least 0."""
    layout, dtype = model.transform.layout, model.transform.dtype
    rates = [jnp.zeros((1, 1, 1), dtype), *model.linear().values()]
    sizes = (jnp.where(layout.mask, size(jnp.asarray(rate)), 0) for rate in rates)
    whole = (layout.constrain(jnp.broadcast_to(r, (*r.shape[:-3], *layout.shape))) for r in sizes)
    return jnp.stack([rates.max() for rates in whole]).max()
