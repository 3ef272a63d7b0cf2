"""Settings and functions that incompressible flows share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float
from pydantic import AfterValidator, Field, model_validator

from simulator.errors import UserError, shown
from simulator.physics.models import fields as specs
from simulator.physics.models.closures import SubgridSettings
from simulator.physics.models.fields import DerivedField, Fields, FieldSpec
from simulator.physics.models.flow import Damping
from simulator.settings import AxisVector, Integer, NonNegative, Positive, Settings, Vector, wrong
from simulator.spectral import Grid, Layout, Local, Transform, arrays, operators

_OF_MODELS = """
velocity magnetic buoyancy density momentum psi vorticity vorticity_magnitude current current_magnitude
pressure potential speed dissipation_rate energy kinetic_energy magnetic_energy potential_energy lorentz
induction buoyancy_flux longitudinal_gradient transverse_gradient viscous ohmic drag subgrid stress force emf
strain gradient Q R
"""
_OF_TABLES = "step time dt cfl x y z k r r_outer sigma contrast axis"
RESERVED = frozenset(f"{_OF_MODELS} {_OF_TABLES}".split())
"""Names of fields, spectra and quantities of some model, of coordinates of tables and series, and
of products that are computed at points. `viscous`, `ohmic`, `drag`, `subgrid`: columns
`NAME_dissipation`."""
LONGEST_NAME = 64


def free_name(name: str) -> bool:
    """Whether `name` may name fields, columns and files. Names of carried arrays begin with
    `memory_`, `history_` and `series_`, quantities of histograms end with `_deviation` and
    `_gradient`, a scalar's loss to a closure with `_subgrid`, and fields made from a scalar as in
    `scalar_fields`."""
    endings = ("_deviation", "_gradient", "_subgrid", "_gradient_magnitude", "_dissipation_rate")
    taken = (
        name.startswith(("memory", "history", "series"))
        or name.endswith(endings)
        or name in RESERVED
    )
    return name.isidentifier() and len(name) <= LONGEST_NAME and not taken


class Hyperdiffusion(Settings):
    order: Annotated[Integer, Field(ge=2, le=8)]
    """n in the damping rate coefficient * k^(2 n)."""
    coefficient: Positive
    """Units length^(2 n) / time."""


class Drag(Settings):
    coefficient: Positive
    """Damping rate (1/time) of the velocity's large scales."""
    below: Positive
    """The modes with 0 < |k| <= below are damped; the mean flow is not."""


def _scalar_name(name: str) -> str:
    if not free_name(name):
        raise ValueError(
            f"{shown(name)} cannot name a scalar; take another word, e.g. dye or temperature"
        )
    return name


class Scalar(Settings):
    name: Annotated[str, AfterValidator(_scalar_name)]
    """Name of the field; it begins the names of the scalar's columns and spectra."""
    diffusivity: NonNegative
    """Molecular diffusivity, length^2 / time."""
    mean_gradient: AxisVector = (0.0, 0.0, 0.0)
    """G, a number for each axis: the whole field is theta + G . x, and the velocity produces
    fluctuations from G."""


class FlowSettings(Settings):
    """Keys of every incompressible flow."""

    magnetic: ClassVar[bool] = False
    """Whether a magnetic field is evolved."""
    viscosity: NonNegative
    """Kinematic viscosity, length^2 / time."""
    hyperviscosity: Hyperdiffusion | None = None
    """Additional damping of the velocity at the rate coefficient * k^(2 order)."""
    drag: Drag | None = None
    """Damping of the velocity's large scales."""
    rotation: Vector = (0.0, 0.0, 0.0)
    """Angular velocity Omega in the Coriolis force -2 Omega x u. In two dimensions there is
    none."""
    scalars: Annotated[tuple[Scalar, ...], Field(max_length=100)] = ()
    """Passive scalars."""
    subgrid: SubgridSettings | None = None
    """Closure of a large-eddy simulation: the effect of the scales below the grid on the resolved
    scales."""

    @model_validator(mode="after")
    def _names_and_closure_fit(self):
        names = [s.name for s in self.scalars]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise wrong(
                    f"scalars.{index}.name", f"{name} is taken; names of scalars have to differ"
                )
        closure = self.subgrid
        if closure is None:
            return self
        if closure.kind == "python" and closure.flux is None and self.transports_scalars:
            raise wrong(
                "subgrid.flux", "is required, a function for the subgrid flux of the scalars"
            )
        if (
            closure.kind == "smagorinsky"
            and not self.magnetic
            and closure.resistive_coefficient is not None
        ):
            problem = "has no effect without a magnetic field; leave it out"
            raise wrong("subgrid.resistive_coefficient", problem)
        return self

    @property
    def damping(self) -> Damping:
        """Viscosity and hyperviscosity."""
        return damping(self.viscosity, self.hyperviscosity)

    @property
    def transports_scalars(self) -> bool:
        return bool(self.scalars)


def check_plane(settings: FlowSettings) -> None:
    """Refuses settings that have no meaning in two dimensions. Raises UserError, beginning with the
    key."""
    if any(settings.rotation):
        raise UserError(
            "rotation: has no effect in two dimensions, where the pressure balances the Coriolis force; leave it out"
        )
    if settings.subgrid is not None and settings.subgrid.kind != "python":
        raise UserError(
            f"subgrid: {settings.subgrid.kind} closes the three-dimensional cascade of energy to small scales, which "
            "two-dimensional flows do not have; python takes a closure of your own, hyperviscosity removes enstrophy"
        )


def scalars_on(grid: Grid, scalars: Iterable[Scalar]) -> tuple[Scalar, ...]:
    """The scalars of the settings; each mean gradient has one number for each axis of the grid."""
    keys = ((s, f"scalars.{i}.mean_gradient") for i, s in enumerate(scalars))
    return tuple(
        s.model_copy(update={"mean_gradient": specs.along_axes(grid, k, s.mean_gradient)})
        for s, k in keys
    )


def constant(vector: Sequence[float], dtype) -> Float[np.ndarray, "d 1 1 1"]:
    """A constant vector, to be multiplied with or added to a vector field."""
    return np.asarray(vector, dtype).reshape(-1, 1, 1, 1)


def advection_rate(grid: Grid, *speeds: arrays.PhysicalVector) -> arrays.PhysicalScalar:
    """sum_i (|v_i| + |w_i| + ...) / dx_i of vectors v, w, ... at a point (1/time)."""
    spacing = grid.seen(grid.spacing)
    return sum(abs(v[i]) / h for v in speeds for i, h in enumerate(spacing))  # type: ignore[return-value]


def power(
    layout: Layout, rate: arrays.OverModes | float, field: arrays.SpectralField
) -> arrays.Number:
    """Box mean of (rate f) . f for a damping rate (1/time) of each mode: twice the energy that is
    lost per time."""
    squares = field.real**2 + field.imag**2
    # Components are added first, so that a common factor is not broadcast to them.
    flat = squares.reshape(-1, *squares.shape[-3:])
    return layout.sum(rate * sum(flat[1:], start=flat[0]))


def transfer(field: arrays.SpectralField, rate: arrays.SpectralField) -> arrays.OfModes:
    """Re f* . r of each mode, summed over components: the rate at which the tendency r adds to
    |f|^2 / 2."""
    if field.ndim > 3:
        return operators.dot(field.real, rate.real) + operators.dot(field.imag, rate.imag)
    return field.real * rate.real + field.imag * rate.imag


def coriolis(
    velocity: arrays.SpectralVector, rotation: Sequence[float]
) -> arrays.SpectralVector | float:
    """-2 Omega x u; 0 without rotation."""
    if not any(rotation):
        return 0.0
    return operators.cross(velocity, jnp.asarray(2 * constant(rotation, velocity.real.dtype)))


def damping(coefficient: float, hyper: Hyperdiffusion | None) -> Damping:
    """Viscosity and hyperviscosity, or resistivity and hyperresistivity."""
    return (
        [(1, coefficient)]
        if hyper is None
        else [(1, coefficient), (hyper.order, hyper.coefficient)]
    )


def damping_rate(layout: Layout, terms: Damping, dtype) -> arrays.OfModes:
    """The rate (1/time) at which `terms` damp each mode.

    Computed in double precision; rates beyond the range of single precision, far above any 1/dt,
    are capped."""
    k2 = layout.k_squared()
    (_, first), *hyper = terms
    rate = first * k2
    for order, coefficient in hyper:
        rate = rate + coefficient * k2**order
    return jnp.minimum(rate, 1e30).astype(dtype)


def drag_rate(layout: Layout, settings: FlowSettings, dtype) -> arrays.OfModes | float:
    """Damping rate (1/time) of velocity modes by large-scale drag; the mean flow keeps its
    momentum."""
    if settings.drag is None:
        return 0.0
    k2, reach = layout.k_squared(), settings.drag.below**2 * (1 + 1e-12)
    return jnp.where((k2 > 0) & (k2 <= reach), settings.drag.coefficient, 0.0).astype(dtype)


def fluxes(names: Iterable[str], values: arrays.PointValues) -> arrays.PointValues:
    """u theta of every scalar, by its name; pointwise."""
    return {
        name: jnp.stack([values[name] * u for u in jnp.unstack(values["velocity"])])
        for name in names
    }


def along(direction: Sequence[float], vector: arrays.SpectralVector) -> arrays.SpectralScalar:
    """d . v for a constant vector d."""
    return sum(d * vector[i] for i, d in enumerate(direction) if d)  # type: ignore[return-value]


def scalar_diagnostics(
    layout: Layout, scalars: Iterable[Scalar], fields: Fields
) -> dict[str, jax.Array]:
    """For each scalar the mean, the variance <theta'^2> (without the mean), its dissipation 2 D
    <|grad theta|^2>, and its production -2 <theta' u'> . G: d variance/dt = production -
    dissipation."""
    columns = {}
    for s in scalars:
        theta = fields[s.name]
        k2, fluctuations = layout.k_squared(theta.real.dtype), operators.fluctuation(layout, theta)
        columns[f"{s.name}_mean"] = layout.at_zero(theta).real
        columns[f"{s.name}_variance"] = layout.inner(fluctuations, fluctuations)
        columns[f"{s.name}_dissipation"] = 2 * s.diffusivity * power(layout, k2, theta)
        if any(s.mean_gradient):
            carried = along(s.mean_gradient, fields["velocity"])
            columns[f"{s.name}_production"] = -2 * layout.inner(fluctuations, carried)
    return columns


def variance_modes(layout: Layout, field: arrays.SpectralScalar) -> arrays.OfModes:
    """|f|^2 of each mode except k = 0; their sum is the variance of a scalar."""
    return abs(operators.fluctuation(layout, field)) ** 2


def scalar_fluxes(
    layout: Layout, names: Iterable[str], fields: Fields
) -> dict[str, arrays.OfModes]:
    """Re theta* u_i of each mode but k = 0, as `NAME_flux_x`, ...; the sum over the modes is
    <theta' u_i'>."""
    found = {}
    for name in names:
        own = operators.fluctuation(layout, fields[name])
        for i, axis in enumerate(layout.grid.names.values()):
            found[f"{name}_flux_{axis}"] = transfer(own, fields["velocity"][i])
    return found


def flow_fields(transform: Transform) -> dict[str, DerivedField]:
    """The speed, the vorticity and, in three dimensions, its magnitude, `q_criterion` and
    `lambda_2`."""
    inverse, layout = transform.inverse, transform.layout
    speed = DerivedField(specs.SPEED, lambda f: jnp.sqrt(operators.squared(inverse(f["velocity"]))))

    def vorticity(fields: Fields) -> jax.Array:
        return inverse(operators.curl(layout, fields["velocity"]))

    criteria = [] if transform.grid.planar else vortex_criteria(transform)
    curls = curl_fields(transform, vorticity, specs.VORTICITY, specs.VORTICITY_MAGNITUDE)
    return specs.by_name(*curls, speed, *criteria)


def vortex_criteria(transform: Transform) -> list[DerivedField]:
    """Fields that tell vortices from strain, with S and W the symmetric and antisymmetric part of
    the velocity gradient: Q = (W_ij W_ij - S_ij S_ij) / 2, positive in vortices (Hunt, Wray & Moin,
    CTR Proc. 1988), and lambda_2, the middle eigenvalue of S^2 + W^2, negative in vortices (Jeong &
    Hussain, J. Fluid Mech. 285, 69 (1995))."""

    def parts(fields: Fields) -> tuple[jax.Array, jax.Array]:
        layout, u = transform.layout, fields["velocity"]
        return transform.inverse(strain_rate(layout, u)), transform.inverse(
            operators.curl(layout, u)
        )

    def q(fields: Fields) -> jax.Array:
        s, w = parts(fields)
        return operators.squared(w) / 4 - operators.squared(s[:3]) / 2 - operators.squared(s[3:])

    def middle(fields: Fields) -> jax.Array:
        (xx, yy, zz, xy, xz, yz), w = parts(fields)
        a, b, c, trace = (
            *(w / 2),
            operators.squared(w) / 4,
        )  # W^2 = w w / 4 - trace, of the vector w / 2
        diagonal = (
            xx**2 + xy**2 + xz**2 + a * a,
            xy**2 + yy**2 + yz**2 + b * b,
            xz**2 + yz**2 + zz**2 + c * c,
        )
        others = (
            xy * (xx + yy) + xz * yz + a * b,
            xz * (xx + zz) + xy * yz + a * c,
            yz * (yy + zz) + xy * xz + b * c,
        )
        mean = sum(diagonal) / 3
        (k, m, n), (d, e, f) = (each - mean for each in diagonal), others
        # The eigenvalues of a traceless matrix of unit size are 2 cos(angle + 2 pi j / 3), cos(3
        # angle) = det / 2.
        size = jnp.sqrt((k * k + m * m + n * n + 2 * (d * d + e * e + f * f)) / 6)
        determinant = k * (m * n - f * f) - d * (d * n - e * f) + e * (d * f - e * m)
        cosine = determinant / jnp.where(size > 0, 2 * size**3, 1)
        angle = jnp.arccos(jnp.clip(cosine, -1, 1)) / 3
        return mean - trace + 2 * size * jnp.cos(angle - 2 * jnp.pi / 3)

    return [DerivedField(specs.Q_CRITERION, q), DerivedField(specs.LAMBDA_2, middle)]


def curl_fields(
    transform: Transform,
    values: Callable[[Fields], jax.Array],
    spec: FieldSpec,
    magnitude: FieldSpec,
) -> list[DerivedField]:
    """The curl whose values the function `values` gives, and its magnitude; in a plane only the
    curl, a scalar."""
    curl_itself = DerivedField(spec.on(transform.grid), values)
    if transform.grid.planar:
        return [curl_itself]
    return [curl_itself, DerivedField(magnitude, lambda f: jnp.sqrt(operators.squared(values(f))))]


def strain_rate(layout: Layout, velocity: arrays.SpectralVector) -> Complex[Array, "pair ka kb kc"]:
    """The components xx, yy, zz, xy, xz, yz of S_ij = (du_i/dx_j + du_j/dx_i) / 2; in a plane xx,
    yy, xy."""
    k, u = operators.wavenumbers(layout, velocity.real.dtype), velocity
    return 0.5j * jnp.stack(
        [k[j] * u[i] + k[i] * u[j] for i, j in operators.symmetric_pairs(len(k))]
    )


def dissipation_rate(transform: Transform, viscosity: float | jax.Array) -> DerivedField:
    """2 nu S_ij S_ij at every point; its mean is the dissipation by viscosity."""

    def values(fields: Fields) -> jax.Array:
        s = transform.inverse(strain_rate(transform.layout, fields["velocity"]))
        diagonal, others = s[: len(fields["velocity"])], s[len(fields["velocity"]) :]
        return 2 * viscosity * (operators.squared(diagonal) + 2 * operators.squared(others))

    return DerivedField(specs.DISSIPATION_RATE, values)


def scalar_fields(
    transform: Transform, diffusivities: Mapping[str, float]
) -> dict[str, DerivedField]:
    """Of every scalar `NAME_gradient_magnitude`, |grad theta|, and `NAME_dissipation_rate`, 2 D
    |grad theta|^2, whose mean is the column `NAME_dissipation`."""

    def squares(name: str, fields: Fields) -> jax.Array:
        return operators.squared(
            transform.inverse(operators.gradient(transform.layout, fields[name]))
        )

    found = []
    for name, diffusivity in diffusivities.items():
        found += [
            DerivedField(
                FieldSpec(f"{name}_gradient_magnitude"), lambda f, n=name: jnp.sqrt(squares(n, f))
            ),
            DerivedField(
                FieldSpec(f"{name}_dissipation_rate"),
                lambda f, n=name, d=diffusivity: 2 * d * squares(n, f),
            ),
        ]
    return specs.by_name(*found)


def pressure(
    transform: Transform,
    inputs: Mapping[str, jax.Array],
    pointwise_force: Callable[[Fields], jax.Array],
    linear_force: arrays.SpectralVector | float = 0.0,
) -> arrays.PhysicalScalar:
    """Values of the pressure over density, without mean: lap(p + |u|^2 / 2) = div F.

    F is the right-hand side of the momentum equation before the projection: a pointwise function of
    the inputs' values and a linear part given as coefficients."""

    def head(values, points, parameters):
        return Local(
            {
                "force": pointwise_force(values),
                "kinetic": 0.5 * operators.squared(values["velocity"]),
            }
        )

    layout = transform.layout
    products = transform.evaluate(inputs, head).products
    inverse_k2 = layout.inverse_k_squared(transform.dtype)
    fluctuation = jnp.where(inverse_k2 == 0, 0, products["kinetic"])
    forced = operators.divergence(layout, products["force"] + linear_force)
    return transform.inverse(-inverse_k2 * forced - fluctuation)
