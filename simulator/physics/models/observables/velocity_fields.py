"""Fields derived from a velocity: speed, vorticity, vortices, dissipation and pressure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from simulator.physics.models import fields as specs
from simulator.physics.models.advection import Rotational, strain_rate
from simulator.physics.models.fields import DerivedField, Fields, FieldSpec, products_of
from simulator.physics.models.observables.observable import Observable
from simulator.spectral import Transform, arrays, operators

if TYPE_CHECKING:
    from simulator.physics.models.navier_stokes import NavierStokes


class VelocityFields(Observable["NavierStokes"]):
    """The speed, the vorticity and, in three dimensions, its magnitude, `q_criterion` and
    `lambda_2`; and `dissipation_rate`, 2 nu S_ij S_ij, whose mean is the dissipation by
    viscosity."""

    pictured = ("speed", "vorticity", "vorticity_magnitude")

    def derived(self, model: NavierStokes) -> Mapping[str, DerivedField]:
        transform = model.transform
        inverse = transform.inverse
        layout = transform.layout

        def velocity(fields: Fields) -> jax.Array:
            return inverse(fields["velocity"])

        def vorticity(fields: Fields) -> jax.Array:
            return inverse(operators.curl(layout, fields["velocity"]))

        def dissipation(fields: Fields) -> jax.Array:
            strain = inverse(strain_rate(layout, fields["velocity"]))
            axes = len(transform.grid.axes)
            diagonal = strain[:axes]
            others = strain[axes:]
            squares = operators.squared(diagonal) + 2 * operators.squared(others)
            return 2 * model.viscosity * squares

        criteria = [] if transform.grid.dimensions == 2 else vortex_criteria(transform)
        return specs.by_name(
            *curl_fields(transform, vorticity, specs.VORTICITY, specs.VORTICITY_MAGNITUDE),
            DerivedField(specs.SPEED, specs.magnitude(velocity)),
            *criteria,
            DerivedField(specs.DISSIPATION_RATE, dissipation),
        )


class Pressure(Observable["NavierStokes"]):
    """The pressure over density, without mean: lap(p + |u|^2 / 2) = div F, with F the right-hand
    side of the momentum equation before the projection. A closure states its stress only up to the
    trace, which the pressure contains, so that there is no pressure then; a modal force has no
    divergence."""

    def derived(self, model: NavierStokes) -> Mapping[str, DerivedField]:
        if model.closure is not None and not model.closure.modal:
            return {}
        return specs.by_name(DerivedField(specs.PRESSURE, lambda fields: pressure(model, fields)))


def pressure(model: NavierStokes, fields: Fields) -> arrays.PhysicalScalar:
    """The values of the pressure."""
    transform = model.transform
    layout = transform.layout
    magnetic = "magnetic" in fields
    exact = Rotational(magnetic)
    names = ("velocity", "magnetic") if magnetic else ("velocity",)

    def head(values: arrays.PointValues) -> arrays.PointValues:
        kinetic = 0.5 * operators.squared(values["velocity"])
        return {"force": exact.products(values)["force"], "kinetic": kinetic}

    inputs = {name: fields[name] for name in names} | exact.inputs(layout, fields)
    products = products_of(transform, inputs, head)
    inverse_k2 = layout.inverse_k_squared(transform.dtype)
    fluctuation = jnp.where(inverse_k2 == 0, 0, products["kinetic"])
    forced = operators.divergence(layout, products["force"] + model.body_force(fields))
    return transform.inverse(-inverse_k2 * forced - fluctuation)


def vortex_criteria(transform: Transform) -> list[DerivedField]:
    """Fields that tell vortices from strain, with S and W the symmetric and antisymmetric part of
    the velocity gradient: Q = (W_ij W_ij - S_ij S_ij) / 2, positive in vortices (Hunt, Wray & Moin,
    CTR Proc. 1988), and lambda_2, the middle eigenvalue of S^2 + W^2, negative in vortices (Jeong &
    Hussain, J. Fluid Mech. 285, 69 (1995))."""

    def parts(fields: Fields) -> tuple[jax.Array, jax.Array]:
        layout = transform.layout
        u = fields["velocity"]
        inverse = transform.inverse
        return inverse(strain_rate(layout, u)), inverse(operators.curl(layout, u))

    def q(fields: Fields) -> jax.Array:
        s, w = parts(fields)
        return operators.squared(w) / 4 - operators.squared(s[:3]) / 2 - operators.squared(s[3:])

    def middle(fields: Fields) -> jax.Array:
        (xx, yy, zz, xy, xz, yz), w = parts(fields)
        # W^2 = w w / 4 - trace, of the vector w / 2
        a, b, c = w / 2
        trace = operators.squared(w) / 4
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
    size: FieldSpec,
) -> list[DerivedField]:
    """The curl whose values the function `values` gives, and its magnitude; in a plane only the
    curl, a scalar."""
    curl_itself = DerivedField(spec.on(transform.grid), values)
    if transform.grid.dimensions == 2:
        return [curl_itself]
    return [curl_itself, DerivedField(size, specs.magnitude(values))]
