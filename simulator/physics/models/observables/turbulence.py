"""Scalars that describe a turbulent flow.

Definitions: Pope, Turbulent Flows (2000), sections 6.5 and 13.4. Isotropic formulas are applied to
any flow. In d dimensions the spectrum tensor of isotropic, solenoidal turbulence has the trace 2
E(k) / S_d(k), S_d the surface of the sphere |k|, which gives the factors of `_INTEGRAL` and d (d +
2) of the Taylor scale."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from math import pi
from operator import add
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from simulator.physics.models.damping import absent, damping_rate, diffusive_terms
from simulator.physics.models.fields import Fields
from simulator.physics.models.observables.budget import weighted_square
from simulator.physics.models.observables.observable import Columns, Observable, PointMoments, Row
from simulator.physics.models.observables.resolution import (
    dissipation_scale,
    ratio,
    tail_fraction,
)
from simulator.spectral import Local, Points
from simulator.spectral.arrays import Number, PhysicalVector, PointValues
from simulator.spectral.grid import AXES
from simulator.spectral.operators import curl, dot, squared, symmetric_pairs, wavenumbers
from simulator.spectral.transform import Tree

if TYPE_CHECKING:
    from simulator.physics.models.navier_stokes import NavierStokes

_INTEGRAL = {3: pi / 2, 2: 2.0}
"""Factor of the integral scale, by dimensions: L = factor / u_rms^2 sum E(k) / k."""


class Turbulence(Observable["NavierStokes"]):
    """Scalars of the velocity. All but `max_speed` refer to the fluctuations u' = u - <u> and are
    therefore Galilean invariant.

    With u_rms^2 = <u'^2> / d: integral scale pi / (2 u_rms^2) sum E(k) / k, in two dimensions 2 /
    u_rms^2 sum E(k) / k; Taylor scale sqrt(d (d + 2) u_rms^2 / <omega^2>), turnover time integral
    scale / u_rms; Kolmogorov scale, or Kraichnan's scale of a cascade of enstrophy, as in
    `dissipation_scale`; `edge_enstrophy` is the fraction of the enstrophy at the edge of the
    spectrum. Skewness and flatness are those of the longitudinal gradients du_i/dx_i. Quantities
    that depend on viscosity are left out if it is 0, and the helicity in two dimensions. With a
    closure, which is for flows that the grid cuts off, the cascade ends at scales below the
    grid.

    `resolves`: whether the grid has to resolve the flow, which a prescribed one does not need."""

    def __init__(self, resolves: bool = True):
        self.resolves = resolves

    def moments(self, model: NavierStokes, fields: Fields) -> PointMoments:
        """PointMoments of the velocity and of its longitudinal gradients du_i/dx_i, and the largest
        speed, divergence and rate."""
        velocity = fields["velocity"]
        dimensions = len(velocity)
        k = wavenumbers(model.transform.layout, velocity.real.dtype)
        slopes = jnp.stack([1j * k[i] * velocity[i] for i in range(dimensions)])

        def at_point(values: PointValues, points: Points, mean: Tree) -> Local:
            v = values["velocity"]
            g = values["longitudinal"]
            means = {
                **products_about(mean, v, "velocity"),
                "gradient_2": dot(g, g) / dimensions,
                "gradient_3": dot(g * g, g) / dimensions,
                "gradient_4": dot(g * g, g * g) / dimensions,
            }
            maxima = {"speed": jnp.sqrt(squared(v)), "divergence": abs(reduce(add, g))}
            return Local({}, {**maxima, **model.step_limit.maxima(model, values)}, means)

        mean = model.transform.layout.at_zero(velocity).real
        return PointMoments({"velocity": velocity, "longitudinal": slopes}, at_point, mean)

    def columns(self, model: NavierStokes, fields: Fields, row: Row) -> Columns:
        layout = model.transform.layout
        velocity = fields["velocity"]
        dimensions = len(velocity)
        omega = curl(layout, velocity)
        enstrophy = 0.5 * layout.inner(omega, omega).sum()
        inverse_k = jnp.sqrt(layout.inverse_k_squared(velocity.real.dtype))
        over_k = 0.5 * layout.sum(inverse_k * squared(velocity))
        mean = layout.at_zero(velocity).real
        velocities = mean_and_rms(mean, row.moments.means, "velocity", "u_rms", "reynolds_stress")
        u_rms = velocities["u_rms"]
        integral = _INTEGRAL[dimensions] * ratio(over_k, u_rms**2)
        taylor = jnp.sqrt(ratio(dimensions * (dimensions + 2) / 2 * u_rms**2, enstrophy))
        # If no velocity varies along its own direction, as in a parallel flow, longitudinal
        # gradients are round-off.
        noise = (64 * jnp.finfo(velocity.real.dtype).eps) ** 2 * enstrophy
        second = jnp.where(
            row.moments.means["gradient_2"] > noise, row.moments.means["gradient_2"], 0
        )
        columns = {"enstrophy": enstrophy}
        if dimensions == 3:
            columns["helicity"] = layout.inner(velocity, omega).sum()
        columns |= velocities
        columns["integral_scale"] = integral
        columns["taylor_scale"] = taylor
        columns["turnover_time"] = ratio(integral, u_rms)
        if not absent(model.viscosity):
            columns["reynolds_taylor"] = u_rms * taylor / model.viscosity
        return {
            **columns,
            **self._cascade(model, omega, row.before["viscous_dissipation"]),
            "gradient_skewness": ratio(row.moments.means["gradient_3"], second**1.5),
            "gradient_flatness": ratio(row.moments.means["gradient_4"], second**2),
            "max_speed": row.moments.maxima["speed"],
            "max_divergence": row.moments.maxima["divergence"],
            "edge_enstrophy": tail_fraction(layout, squared(omega), 0.0),
        }

    def _cascade(self, model: NavierStokes, omega: jax.Array, viscous: Number) -> Columns:
        """The end of the cascade: of enstrophy in a plane without a magnetic field, else of
        energy."""
        layout = model.transform.layout
        terms = diffusive_terms(model.viscosity, model.hyperviscosity)
        columns: Columns = {}
        scale = None
        if model.transform.grid.dimensions == 2 and "magnetic" not in model.fields:
            lost = weighted_square(layout, damping_rate(layout, terms, omega.real.dtype), omega)
            columns["enstrophy_dissipation"] = lost
            if terms:
                scale = dissipation_scale(terms, lost, "enstrophy")
                columns["kraichnan_scale"] = scale
        elif terms and model.closure is None:
            scale = dissipation_scale(terms, viscous)
            columns["kolmogorov_scale"] = scale
        if scale is not None and model.closure is None and self.resolves:
            columns["k_max_eta"] = model.transform.grid.largest_wavenumber * scale
        return columns


def products_about(mean: Float[Array, " d"], values: PhysicalVector, name: str) -> PointValues:
    """`NAME_xx`, ...: products of the components of v' = v - <v> at a point, whose means
    `mean_and_rms` uses."""
    fluctuation = [values[i] - mean[i] for i in range(len(values))]
    return {
        f"{name}_{AXES[i]}{AXES[j]}": fluctuation[i] * fluctuation[j]
        for i, j in symmetric_pairs(len(fluctuation))
    }


def mean_and_rms(
    mean: Float[Array, " d"], means: Mapping[str, Number], name: str, rms: str, stress: str
) -> dict[str, Number]:
    """Columns of a vector: `mean_NAME_x`, ...; `RMS`, sqrt(<v'^2> / d), and `RMS_x`,
    sqrt(<v'_x^2>), ...; `STRESS_xy`, <v'_x v'_y>, `STRESS_xz`, `STRESS_yz`. `mean`: that of the
    vector; `means`: those of `products_about`."""
    axes = AXES[: len(mean)]
    squares = [means[f"{name}_{axis}{axis}"] for axis in axes]
    across = [axes[i] + axes[j] for i, j in symmetric_pairs(len(axes)) if i != j]
    return {
        **{f"mean_{name}_{axis}": mean[i] for i, axis in enumerate(axes)},
        rms: jnp.sqrt(reduce(add, squares) / len(axes)),
        **{f"{rms}_{axis}": jnp.sqrt(square) for axis, square in zip(axes, squares, strict=True)},
        **{f"{stress}_{pair}": means[f"{name}_{pair}"] for pair in across},
    }
