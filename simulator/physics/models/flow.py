"""Scalars that describe a turbulent flow, and measures of its resolution.

Definitions: Pope, Turbulent Flows (2000), sections 6.5 and 13.4. Isotropic formulas are applied to any flow. In d
dimensions the spectrum tensor of isotropic, solenoidal turbulence has the trace 2 E(k) / S_d(k), S_d the surface of
the sphere |k|, which gives the factors of `_INTEGRAL` and d (d + 2) of the Taylor scale.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import pi
from operator import add
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from simulator.spectral import Evaluated, Layout, Local, Transform
from simulator.spectral.arrays import Number, OfModes, PhysicalScalar, PhysicalVector, PointValues, SpectralVector
from simulator.spectral.grid import AXES
from simulator.spectral.operators import curl, dot, squared, symmetric_pairs, wavenumbers

EDGE = 0.8
"""The edge of the spectrum consists of the modes with some |k_i| beyond this fraction of the largest."""
RESOLVED = 1.0
"""The smallest k_max eta of a resolved flow. Low-order statistics need this much, statistics of velocity gradients
1.5 (Pope, Turbulent Flows, section 9.1.2)."""
UNDER_RESOLVED = 1e-3
"""Fraction of the enstrophy, or of the kinetic energy of waves, at the edge of the spectrum above which a run
warns."""
_NEWTON_STEPS = 8

Damping = Sequence[tuple[int, float | jax.Array]]
"""Pairs (n, nu_n): modes are damped at the sum of nu_n k^(2 n)."""


def tail_fraction(layout: Layout, values: OfModes, floor: Number | float) -> Number:
    """The fraction of the sum of `values` >= 0 over all modes that lies at the edge of the spectrum; 0 if the sum is
    round-off, that is, at most `floor`."""
    edge = jnp.zeros((1, 1, 1), bool)
    for axis, kept in zip(AXES, layout.grid.kept, strict=True):
        mode_numbers = layout.integers(axis)
        largest = int(abs(layout.mode_numbers[axis]).max())
        if layout.truncated:  # a layout may store more modes than belong to the state
            largest = min(largest, kept)
        if largest > 0:
            edge = edge | (abs(mode_numbers) > EDGE * largest)
    total, beyond = layout.sum(values), layout.sum(jnp.where(edge, values, 0))
    return jnp.where(total > floor, beyond / jnp.where(total > 0, total, 1), 0)


def dissipation_scale(damping: Damping, dissipation: Number, of: Literal["energy", "enstrophy"] = "energy") -> Number:
    """The length 1 / k at which damping is as fast as the eddies: sum of nu_n k^(2 n) = (dissipation k^2)^(1/3), or
    in a cascade of enstrophy, whose eddies all turn over equally fast, (dissipation of enstrophy)^(1/3).

    With viscosity alone this is Kolmogorov's (nu^3 / dissipation)^(1/4), with one hyperviscosity alone (nu_n^3 /
    dissipation)^(1 / (6 n - 2)); with both the result is at least the longer of these two lengths. For enstrophy it
    is Kraichnan's (nu^3 / dissipation)^(1/6) (Phys. Fluids 10, 1417, 1967). `dissipation` is the total; if it is 0
    the result is nan.
    """
    eddies = {"energy": 2 / 3, "enstrophy": 0.0}[of]
    orders = jnp.asarray([2 * n - eddies for n, _ in damping], jnp.float64)
    coefficients = jnp.stack([jnp.asarray(nu, jnp.float64) for _, nu in damping])
    dissipation = jnp.asarray(dissipation, jnp.float64)
    third = jnp.log(jnp.where(dissipation > 0, dissipation, 1)) / 3
    log_k = ((third - jnp.log(coefficients)) / orders).min()
    if len(damping) > 1:
        # The damping over the rate of the eddies is convex in log k, and at this point not below the dissipation's
        # third root: Newton's steps decrease log k towards the root without passing it.
        for _ in range(_NEWTON_STEPS):
            terms = jnp.log(coefficients) + orders * log_k
            share = jax.nn.softmax(terms)
            log_k = log_k - (jax.nn.logsumexp(terms) - third) / (share * orders).sum()
    return jnp.where(dissipation > 0, jnp.exp(-log_k), jnp.nan)


def unresolved(row: Mapping[str, float]) -> list[str]:
    """Warnings about the resolution of a flow from a row of diagnostics, one for each field that the grid cuts off.

    k_max times the dissipation scale describes where a cascade ends. Before the cascade reaches it, as after a start
    at large scales, the edge of the spectrum is empty and nothing is lost.
    """
    lines = []
    for field, column, edge in (
        ("flow", "k_max_eta", "edge_enstrophy"),
        ("magnetic field", "k_max_resistive", "edge_magnetic_enstrophy"),
    ):
        if row.get(column, RESOLVED) < RESOLVED and row[edge] > UNDER_RESOLVED:
            lines.append(
                f"the {field} is under-resolved: {column} = {row[column]:.2f}, below {RESOLVED:g}, and "
                f"{row[edge]:.1%} of its squared gradients lies near the grid's edge; a finer grid or more damping "
                f"resolves it"
            )
    return lines


def absent(coefficient: float | Number) -> bool:
    """Whether a coefficient is 0. Arrays in place of numbers (runs that share a program) count as nonzero."""
    return isinstance(coefficient, int | float) and coefficient == 0


def ratio(a: jax.Array, b: jax.Array) -> jax.Array:
    """a / b; nan if the denominator is zero."""
    return jnp.where(b == 0, jnp.nan, a / jnp.where(b == 0, 1, b))


_INTEGRAL = {3: pi / 2, 2: 2.0}
"""Factor of the integral scale, by dimensions: L = factor / u_rms^2 sum E(k) / k."""


class Cascade(NamedTuple):
    """The quantity that a flow passes on to small scales, and the rate at which viscosity removes it there."""

    of: Literal["energy", "enstrophy"]
    dissipation: jax.Array


def products_about(mean: Float[Array, "d"], values: PhysicalVector, name: str) -> PointValues:
    """`NAME_xx`, ...: products of the components of v' = v - <v> at a point, whose means `mean_and_rms` uses."""
    fluctuation = [values[i] - mean[i] for i in range(len(values))]
    return {
        f"{name}_{AXES[i]}{AXES[j]}": fluctuation[i] * fluctuation[j] for i, j in symmetric_pairs(len(fluctuation))
    }


def mean_and_rms(
    mean: Float[Array, "d"], means: Mapping[str, Number], name: str, rms: str, stress: str
) -> dict[str, Number]:
    """Columns of a vector: `mean_NAME_x`, ...; `RMS`, sqrt(<v'^2> / d), and `RMS_x`, sqrt(<v'_x^2>), ...;
    `STRESS_xy`, <v'_x v'_y>, `STRESS_xz`, `STRESS_yz`. `mean` is the box mean of the vector; `means` are the box
    means of `products_about`."""
    axes = AXES[: len(mean)]
    squares = [means[f"{name}_{axis}{axis}"] for axis in axes]
    across = [axes[i] + axes[j] for i, j in symmetric_pairs(len(axes)) if i != j]
    return {
        **{f"mean_{name}_{axis}": mean[i] for i, axis in enumerate(axes)},
        rms: jnp.sqrt(reduce(add, squares) / len(axes)),
        **{f"{rms}_{axis}": jnp.sqrt(square) for axis, square in zip(axes, squares, strict=True)},
        **{f"{stress}_{pair}": means[f"{name}_{pair}"] for pair in across},
    }


def moments(
    transform: Transform,
    inputs: Mapping[str, SpectralVector],
    rate: Callable[[PointValues], PhysicalScalar],
    further: Callable[[PointValues, Any], Local] = lambda values, parameters: Local({}),
    parameters: Any = (),
) -> Evaluated:
    """Moments of the velocity and of its longitudinal gradients du_i/dx_i, and the largest speed, divergence and
    rate; with the maxima and means of `further`, a function of the values of all `inputs` and of `parameters`."""
    velocity = inputs["velocity"]
    k, dimensions = wavenumbers(transform.layout, velocity.real.dtype), len(velocity)
    slopes = jnp.stack([1j * k[i] * velocity[i] for i in range(dimensions)])

    def local(values, points, parameters) -> Local:
        v, g, more = values["velocity"], values["longitudinal"], further(values, parameters[1])
        means = {
            **products_about(parameters[0], v, "velocity"),
            "gradient_2": dot(g, g) / dimensions,
            "gradient_3": dot(g * g, g) / dimensions,
            "gradient_4": dot(g * g, g * g) / dimensions,
        }
        maxima = {"speed": jnp.sqrt(squared(v)), "divergence": abs(reduce(add, g)), "rate": rate(values)}
        return Local({}, {**maxima, **more.maxima}, {**means, **more.means})

    mean = transform.layout.at_zero(velocity).real
    return transform.evaluate({**inputs, "longitudinal": slopes}, local, (mean, parameters))


def flow_scalars(
    transform: Transform, velocity: SpectralVector, damping: Damping, cascade: Cascade, evaluated: Evaluated
) -> dict[str, Number]:
    """Scalars of a velocity, by column; the last one is `rate` (1/time), for the choice of dt.

    `damping` lists first viscosity, then hyperviscosity; the dissipation in `cascade` is the sum of both.
    `evaluated` is the result of `moments`.

    All columns but `max_speed` refer to the fluctuations u' = u - <u> and are therefore Galilean invariant. With
    u_rms^2 = <u'^2> / d: integral scale pi / (2 u_rms^2) sum E(k) / k, in two dimensions 2 / u_rms^2 sum E(k) / k;
    Taylor scale sqrt(d (d + 2) u_rms^2 / <omega^2>), turnover time integral scale / u_rms; Kolmogorov scale, or
    Kraichnan's scale of a cascade of enstrophy, as in `dissipation_scale`; `edge_enstrophy` is the fraction of the
    enstrophy at the edge of the spectrum. Skewness and flatness are those of the longitudinal gradients du_i/dx_i.
    Quantities that depend on viscosity are left out if it is 0; in two dimensions the helicity is left out, which is
    0.
    """
    layout, dimensions = transform.layout, len(velocity)
    omega = curl(layout, velocity)
    enstrophy = 0.5 * layout.inner(omega, omega).sum()
    inverse_k = jnp.sqrt(layout.inverse_k_squared(velocity.real.dtype))
    over_k = 0.5 * layout.sum(inverse_k * squared(velocity))
    mean = layout.at_zero(velocity).real
    velocities = mean_and_rms(mean, evaluated.means, "velocity", "u_rms", "reynolds_stress")
    u_rms = velocities["u_rms"]
    integral = _INTEGRAL[dimensions] * ratio(over_k, u_rms**2)
    taylor = jnp.sqrt(ratio(dimensions * (dimensions + 2) / 2 * u_rms**2, enstrophy))
    # If no velocity varies along its own direction, as in a parallel flow, longitudinal gradients are round-off.
    noise = (64 * jnp.finfo(velocity.real.dtype).eps) ** 2 * enstrophy
    second = jnp.where(evaluated.means["gradient_2"] > noise, evaluated.means["gradient_2"], 0)
    scalars = {
        "enstrophy": enstrophy,
        **({} if transform.grid.planar else {"helicity": layout.inner(velocity, omega).sum()}),
        **velocities,
        "integral_scale": integral,
        "taylor_scale": taylor,
        "turnover_time": ratio(integral, u_rms),
    }
    if not absent(damping[0][1]):
        scalars["reynolds_taylor"] = u_rms * taylor / damping[0][1]
    if cascade.of == "enstrophy":
        scalars["enstrophy_dissipation"] = cascade.dissipation
    if present := [(n, nu) for n, nu in damping if not absent(nu)]:
        name = {"energy": "kolmogorov_scale", "enstrophy": "kraichnan_scale"}[cascade.of]
        scalars[name] = dissipation_scale(present, cascade.dissipation, cascade.of)
        scalars["k_max_eta"] = transform.grid.largest_wavenumber * scalars[name]
    return scalars | {
        "gradient_skewness": ratio(evaluated.means["gradient_3"], second**1.5),
        "gradient_flatness": ratio(evaluated.means["gradient_4"], second**2),
        "max_speed": evaluated.maxima["speed"],
        "max_divergence": evaluated.maxima["divergence"],
        "edge_enstrophy": tail_fraction(layout, squared(omega), 0.0),
        "rate": evaluated.maxima["rate"],
    }
