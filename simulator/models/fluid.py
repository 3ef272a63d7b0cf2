"""What incompressible flows have in common: their settings, and small functions of velocity and scalars."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from simulator.models.model import Fields
from simulator.settings import Integer, NonNegative, Positive, Real, Settings, wrong
from simulator.spectral import Grid, Layout, Local, Transform
from simulator.spectral.operators import curl, divergence, dot, squared

RESERVED = frozenset(
    (
        *("velocity", "magnetic", "buoyancy", "density", "momentum", "psi"),
        *(
            "vorticity",
            "vorticity_magnitude",
            "current",
            "current_magnitude",
            "pressure",
            "potential",
            "speed",
        ),
        *("energy", "lorentz", "induction", "buoyancy_flux"),
    )
)
"""Names that fields and spectra of some model have."""


def _three(value: object) -> object:
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise ValueError(f"three numbers are needed, one for each of x, y and z, not {value!r}")
    return value


Vector = Annotated[tuple[Real, Real, Real], BeforeValidator(_three)]


class Hyperviscosity(Settings):
    order: Annotated[Integer, Field(ge=2, le=8)]
    """n in the damping rate coefficient * k^(2 n)."""
    coefficient: Positive
    """length^(2 n) / time."""


class Drag(Settings):
    coefficient: Positive
    """Damping rate (1/time) of the velocity's large scales."""
    below: Positive
    """The modes with |k| <= below are damped."""


def _scalar_name(name: str) -> str:
    if not name.isidentifier() or name in RESERVED:
        raise ValueError(f"{name!r} cannot name a scalar; take another word, e.g. dye or temperature")
    return name


class Scalar(Settings):
    name: Annotated[str, AfterValidator(_scalar_name)]
    diffusivity: NonNegative
    """length^2 / time."""
    mean_gradient: Vector = (0.0, 0.0, 0.0)
    """G: the whole field is theta + G . x, and the velocity makes fluctuations from G."""


class FlowSettings(Settings):
    """Keys of every hydrodynamic model."""

    viscosity: NonNegative
    """Kinematic viscosity, length^2 / time."""
    hyperviscosity: Hyperviscosity | None = None
    """Further damping of the velocity at the rate coefficient * k^(2 order)."""
    drag: Drag | None = None
    """Damping of the velocity's large scales."""
    rotation: Vector = (0.0, 0.0, 0.0)
    """Angular velocity Omega in the Coriolis force -2 Omega x u."""
    scalars: tuple[Scalar, ...] = ()
    """Passive scalars."""

    @model_validator(mode="after")
    def _names_differ(self):
        names = [s.name for s in self.scalars]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise wrong(f"scalars.{index}.name", f"{name} is taken; names of scalars have to differ")
        return self


def constant(vector: Sequence[float], dtype) -> np.ndarray:
    """A constant vector that broadcasts against a vector field (3, ...)."""
    return np.asarray(vector, dtype).reshape(3, 1, 1, 1)


def cross(a: jax.Array, b: jax.Array) -> jax.Array:
    """a x b of vectors (3, ...)."""
    return jnp.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


def advection_rate(grid: Grid, *speeds: jax.Array) -> jax.Array:
    """sum_i (|v_i| + |w_i| + ...) / dx_i of vectors v, w, ... at a point (1/time)."""
    return sum(abs(v[i]) / h for v in speeds for i, h in enumerate(grid.spacing))  # type: ignore[return-value]


def power(layout: Layout, rate: jax.Array | float, field: jax.Array) -> jax.Array:
    """Box mean of (rate f) . f for a rate (1/time) of each mode: twice the energy lost per time."""
    return layout.sum(rate * (field.real**2 + field.imag**2)).sum()


def gain(field: jax.Array, rate: jax.Array) -> jax.Array:
    """Re f* . r of each mode: what the tendency r adds to |f|^2 / 2 per time. Components of vectors are summed."""
    if field.ndim > 3:
        return dot(field.real, rate.real) + dot(field.imag, rate.imag)
    return field.real * rate.real + field.imag * rate.imag


# ---- advection -------------------------------------------------------------------------------------------


def exact(grid: Grid) -> bool:
    """Whether products of two fields have no aliasing errors, so that all forms of the advection term are one."""
    return grid.dealias == "two_thirds"


def advection_inputs(transform: Transform, velocity: jax.Array) -> Fields:
    """What `advection_products` needs beside the velocity."""
    return {} if exact(transform.grid) else {"vorticity": curl(transform.layout, velocity)}


def advection_products(grid: Grid, values: Fields) -> Fields:
    """The nonlinear term of a solenoidal velocity; pointwise.

    Where products are exact, the stress u_i u_j - u_z^2 delta_ij, whose divergence is that of u_i u_j but for a
    gradient: five products of three fields instead of three of six, eight transforms instead of nine (Basdevant,
    J. Comput. Phys. 50, 209 (1983)). Else u x omega, which conserves energy whatever the aliasing.
    """
    u = values["velocity"]
    if not exact(grid):
        return {"force": cross(u, values["vorticity"])}
    x, y, z = u[0], u[1], u[2]
    return {"stress": jnp.stack([x * x - z * z, y * y - z * z, x * y, x * z, y * z])}


def advection_force(
    layout: Layout, products: Fields, velocity: jax.Array, rotation: Sequence[float]
) -> jax.Array:
    """u x (omega + 2 Omega), up to a gradient, from the coefficients of the products."""
    if "force" in products:
        force = products["force"]
    else:
        xx, yy, xy, xz, yz = products["stress"]
        kx, ky, kz = layout.wavenumbers(velocity.real.dtype)
        rows = (kx * xx + ky * xy + kz * xz, kx * xy + ky * yy + kz * yz, kx * xz + ky * yz)
        force = -1j * jnp.stack(rows)
    if any(rotation):
        force = force + cross(velocity, jnp.asarray(2 * constant(rotation, velocity.real.dtype)))
    return force


# ---- linear damping --------------------------------------------------------------------------------------


def viscous_rate(layout: Layout, settings: FlowSettings, dtype) -> jax.Array:
    """Damping rate (1/time) of velocity modes by viscosity and hyperviscosity.

    Computed in double; rates that single precision cannot hold are cut, far beyond what a step resolves.
    """
    k2 = layout.k_squared()
    rate = settings.viscosity * k2
    if settings.hyperviscosity is not None:
        rate = rate + settings.hyperviscosity.coefficient * k2**settings.hyperviscosity.order
    return jnp.minimum(rate, 1e30).astype(dtype)


def drag_rate(layout: Layout, settings: FlowSettings, dtype) -> jax.Array | float:
    """Damping rate (1/time) of velocity modes by large-scale drag."""
    if settings.drag is None:
        return 0.0
    reach = settings.drag.below**2 * (1 + 1e-12)
    return jnp.where(layout.k_squared() <= reach, settings.drag.coefficient, 0.0).astype(dtype)


# ---- passive scalars -------------------------------------------------------------------------------------


def fluxes(scalars: Iterable[Scalar], values: Fields) -> Fields:
    """u theta of every scalar, by its name; pointwise."""
    return {s.name: values[s.name] * values["velocity"] for s in scalars}


def scalar_tendencies(
    layout: Layout, scalars: Iterable[Scalar], products: Fields, velocity: jax.Array
) -> Fields:
    """-div(u theta) - u . G."""
    found = {}
    for s in scalars:
        found[s.name] = -divergence(layout, products[s.name])
        if any(s.mean_gradient):
            found[s.name] -= along(s.mean_gradient, velocity)
    return found


def along(direction: Sequence[float], vector: jax.Array) -> jax.Array:
    """d . v, for a constant d."""
    return sum(d * vector[i] for i, d in enumerate(direction) if d)  # type: ignore[return-value]


def scalar_decays(layout: Layout, scalars: Iterable[Scalar], dtype) -> Fields:
    return {s.name: s.diffusivity * layout.k_squared(dtype) for s in scalars}


def scalar_diagnostics(layout: Layout, scalars: Iterable[Scalar], fields: Fields) -> dict[str, jax.Array]:
    """Of each scalar the mean, the variance <theta'^2> (without the mean), its dissipation 2 D <|grad theta|^2>,
    and its production -2 <theta u> . G: d variance/dt = production - dissipation."""
    found = {}
    for s in scalars:
        theta = fields[s.name]
        k2 = layout.k_squared(theta.real.dtype)
        mean = layout.at_zero(theta).real
        found[f"{s.name}_mean"] = mean
        found[f"{s.name}_variance"] = layout.inner(theta, theta) - mean**2
        found[f"{s.name}_dissipation"] = 2 * s.diffusivity * power(layout, k2, theta)
        if any(s.mean_gradient):
            found[f"{s.name}_production"] = -2 * layout.inner(
                theta, along(s.mean_gradient, fields["velocity"])
            )
    return found


def scalar_spectra(layout: Layout, scalars: Iterable[Scalar], fields: Fields) -> Fields:
    """|theta|^2 / 2 of each mode, by the scalars' names."""
    return {s.name: 0.5 * abs(fields[s.name]) ** 2 for s in scalars}


def scalar_transfers(layout: Layout, scalars: Iterable[Scalar], products: Fields, fields: Fields) -> Fields:
    """What the flow's stirring adds to |theta|^2 / 2 of each mode per time."""
    return {s.name: gain(fields[s.name], -divergence(layout, products[s.name])) for s in scalars}


# ---- derived fields --------------------------------------------------------------------------------------


def flow_fields(transform: Transform, name: str = "velocity") -> dict[str, Callable[[Fields], jax.Array]]:
    """Vorticity, its magnitude and the speed."""
    inverse, layout = transform.inverse, transform.layout
    return {
        "vorticity": lambda f: inverse(curl(layout, f[name])),
        "speed": lambda f: jnp.sqrt(squared(inverse(f[name]))),
        "vorticity_magnitude": lambda f: jnp.sqrt(squared(inverse(curl(layout, f[name])))),
    }


def pressure(
    transform: Transform,
    inputs: Mapping[str, jax.Array],
    pointwise_force: Callable[[Fields], jax.Array],
    linear_force: jax.Array | float = 0.0,
) -> jax.Array:
    """Values of the pressure over density, without mean: lap(p + |u|^2 / 2) = div F.

    F is everything in the momentum equation before the projection: a pointwise function of the inputs' values
    and a linear part given as coefficients.
    """

    def head(values, points, parameters):
        return Local({"force": pointwise_force(values), "kinetic": 0.5 * squared(values["velocity"])})

    layout = transform.layout
    products = transform.evaluate(inputs, head).products
    inverse_k2 = layout.inverse_k_squared(transform.dtype)
    fluctuation = jnp.where(inverse_k2 == 0, 0, products["kinetic"])
    return transform.inverse(-inverse_k2 * divergence(layout, products["force"] + linear_force) - fluctuation)


def flow_pressure(
    transform: Transform,
    velocity: jax.Array,
    rotation: Sequence[float],
    linear_force: jax.Array | float = 0.0,
) -> jax.Array:
    """`pressure` of a flow that u x (omega + 2 Omega) and a linear force drive."""

    def force(values: Fields) -> jax.Array:
        u, omega = values["velocity"], values["vorticity"]
        if any(rotation):
            omega = omega + 2 * constant(rotation, omega.dtype)
        return cross(u, omega)

    inputs = {"velocity": velocity, "vorticity": curl(transform.layout, velocity)}
    return pressure(transform, inputs, force, linear_force)
