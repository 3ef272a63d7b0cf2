"""Scalars that describe a turbulent flow.

Definitions: Pope, Turbulent Flows (2000), sections 6.5 and 13.4. Isotropic formulas are applied to any flow.
"""

from collections.abc import Mapping
from math import pi

import jax
import jax.numpy as jnp

from simulator.spectral import Local, Transform
from simulator.spectral.grid import AXES
from simulator.spectral.operators import curl, dot, squared
from simulator.statistics.resolution import Damping, dissipation_scale, tail_fraction


def absent(coefficient: float | jax.Array) -> bool:
    """Whether a coefficient is 0. Arrays in place of numbers (runs that share a program) count as nonzero."""
    return isinstance(coefficient, int | float) and coefficient == 0


def ratio(a: jax.Array, b: jax.Array) -> jax.Array:
    """a / b; nan if the denominator is zero."""
    return jnp.where(b == 0, jnp.nan, a / jnp.where(b == 0, 1, b))


_PAIRS = ("xx", "yy", "zz", "xy", "xz", "yz")


def products_about(mean: jax.Array, values: jax.Array, name: str) -> dict[str, jax.Array]:
    """`NAME_xx`, ...: products of the components of v' = v - <v> at a point; `mean_and_rms` takes their means."""
    fluctuation = [values[i] - mean[i] for i in range(3)]
    return {f"{name}_{p}": fluctuation[AXES.index(p[0])] * fluctuation[AXES.index(p[1])] for p in _PAIRS}


def mean_and_rms(
    mean: jax.Array, means: Mapping[str, jax.Array], name: str, rms: str, stress: str
) -> dict[str, jax.Array]:
    """Of a vector: `mean_NAME_x`, ...; `RMS`, sqrt(<v'^2> / 3), and `RMS_x`, sqrt(<v'_x^2>), ...; `STRESS_xy`,
    <v'_x v'_y>, `STRESS_xz`, `STRESS_yz`. `mean` is its box mean (3,), `means` are those of `products_about`."""
    squares = [means[f"{name}_{axis}{axis}"] for axis in AXES]
    return {
        **{f"mean_{name}_{axis}": mean[i] for i, axis in enumerate(AXES)},
        rms: jnp.sqrt((squares[0] + squares[1] + squares[2]) / 3),
        **{f"{rms}_{axis}": jnp.sqrt(square) for axis, square in zip(AXES, squares, strict=True)},
        **{f"{stress}_{pair}": means[f"{name}_{pair}"] for pair in _PAIRS[3:]},
    }


def flow_scalars(
    transform: Transform, velocity: jax.Array, damping: Damping, dissipation: jax.Array, rate
) -> dict[str, jax.Array]:
    """Scalars of a velocity (3, *order), by column; the last one is `rate`, for the choice of dt.

    `damping` lists viscosity, which comes first, and hyperviscosity; `dissipation` is that by both. `rate(v)` is the
    advective rate of values v at a point.

    All but `max_speed` refer to the fluctuations u' = u - <u> and are therefore Galilean invariant. With u_rms^2 =
    <u'^2> / 3: integral scale pi / (2 u_rms^2) sum E(k) / k, Taylor scale sqrt(15 u_rms^2 / <omega^2>), turnover time
    integral scale / u_rms, Kolmogorov scale as in `dissipation_scale`; `edge_enstrophy` is the fraction of the
    enstrophy at the edge of the spectrum. Skewness and flatness are those of the longitudinal gradients du_i/dx_i.
    Quantities that depend on viscosity are left out if it is 0.
    """
    layout = transform.layout
    omega = curl(layout, velocity)
    enstrophy = 0.5 * layout.inner(omega, omega).sum()
    k = layout.wavenumbers(velocity.real.dtype)
    inverse_k = jnp.sqrt(layout.inverse_k_squared(velocity.real.dtype))
    over_k = 0.5 * layout.sum(inverse_k * abs(velocity) ** 2).sum()
    mean = layout.at_zero(velocity).real
    inputs = {
        "velocity": velocity,
        "gradient": jnp.stack([1j * k[i] * velocity[i] for i in range(3)]),
    }

    def moments(values, points, parameters) -> Local:
        v, g = values["velocity"], values["gradient"]
        means = {
            **products_about(parameters, v, "velocity"),
            "gradient_2": dot(g, g) / 3,
            "gradient_3": dot(g * g, g) / 3,
            "gradient_4": dot(g * g, g * g) / 3,
        }
        divergence = abs(g[0] + g[1] + g[2])
        return Local({}, {"speed": jnp.sqrt(squared(v)), "divergence": divergence, "rate": rate(v)}, means)

    evaluated = transform.evaluate(inputs, moments, mean)
    velocities = mean_and_rms(mean, evaluated.means, "velocity", "u_rms", "reynolds_stress")
    u_rms = velocities["u_rms"]
    integral = pi / 2 * ratio(over_k, u_rms**2)
    taylor = jnp.sqrt(ratio(7.5 * u_rms**2, enstrophy))
    second = evaluated.means["gradient_2"]
    scalars = {
        "enstrophy": enstrophy,
        "helicity": layout.inner(velocity, omega).sum(),
        **velocities,
        "integral_scale": integral,
        "taylor_scale": taylor,
        "turnover_time": ratio(integral, u_rms),
    }
    if not absent(damping[0][1]):
        scalars["reynolds_taylor"] = u_rms * taylor / damping[0][1]
    if present := [(n, nu) for n, nu in damping if not absent(nu)]:
        eta = dissipation_scale(present, dissipation)
        scalars["kolmogorov_scale"] = eta
        scalars["k_max_eta"] = transform.grid.largest_wavenumber * eta
    return scalars | {
        "gradient_skewness": ratio(evaluated.means["gradient_3"], second**1.5),
        "gradient_flatness": ratio(evaluated.means["gradient_4"], second**2),
        "max_speed": evaluated.maxima["speed"],
        "max_divergence": evaluated.maxima["divergence"],
        "edge_enstrophy": tail_fraction(layout, squared(omega), 0.0),
        "rate": evaluated.maxima["rate"],
    }
