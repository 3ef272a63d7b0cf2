"""Scalars that describe a turbulent flow, measures of its resolution, and the energy of its waves.

Definitions: Pope, Turbulent Flows (2000), sections 6.5 and 13.4. Isotropic formulas are applied to
any flow. In d dimensions the spectrum tensor of isotropic, solenoidal turbulence has the trace 2
E(k) / S_d(k), S_d the surface of the sphere |k|, which gives the factors of `_INTEGRAL` and d (d +
2) of the Taylor scale."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import hypot, pi
from operator import add
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from simulator.spectral import Evaluated, Layout, Local, Transform
from simulator.spectral.arrays import (
    Number,
    OfModes,
    OverModes,
    PhysicalScalar,
    PhysicalVector,
    PointValues,
    SpectralScalar,
    SpectralVector,
)
from simulator.spectral.grid import AXES
from simulator.spectral.operators import cross, curl, dot, squared, symmetric_pairs, wavenumbers

EDGE = 0.8  # The edge of the spectrum consists of the modes with some |k_i| beyond this fraction of the largest.
RESOLVED = (
    1.0  # The smallest k_max eta of a resolved flow; gradients need 1.5 (Pope, section 9.1.2).
)
UNDER_RESOLVED = (
    1e-3  # The largest part of enstrophy, or of waves' energy, at the edge of the spectrum.
)
_NEWTON_STEPS = 8

Damping = Sequence[
    tuple[int, float | jax.Array]
]  # Pairs (n, nu_n): modes are damped at the sum of nu_n k^(2 n).


def tail_fraction(layout: Layout, values: OfModes, floor: Number | float) -> Number:
    """The fraction of the sum of `values` >= 0 over all modes that lies at the edge of the
    spectrum; 0 if it is at most `floor`."""
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


def dissipation_scale(
    damping: Damping, dissipation: Number, of: Literal["energy", "enstrophy"] = "energy"
) -> Number:
    """The length 1 / k at which damping is as fast as the eddies: sum of nu_n k^(2 n) =
    (dissipation k^2)^(1/3), or in a cascade of enstrophy, whose eddies all turn over equally fast,
    (dissipation of enstrophy)^(1/3).

    With viscosity alone this is Kolmogorov's (nu^3 / dissipation)^(1/4), with one hyperviscosity
    alone (nu_n^3 / dissipation)^(1 / (6 n - 2)); with both the result is at least the longer of
    these two lengths. For enstrophy it is Kraichnan's (nu^3 / dissipation)^(1/6) (Phys. Fluids 10,
    1417, 1967). If `dissipation` is 0: nan."""
    eddies = {"energy": 2 / 3, "enstrophy": 0.0}[of]
    orders = jnp.asarray([2 * n - eddies for n, _ in damping], jnp.float64)
    coefficients = jnp.stack([jnp.asarray(nu, jnp.float64) for _, nu in damping])
    dissipation = jnp.asarray(dissipation, jnp.float64)
    third = jnp.log(jnp.where(dissipation > 0, dissipation, 1)) / 3
    log_k = ((third - jnp.log(coefficients)) / orders).min()
    if len(damping) > 1:
        # The damping over the rate of the eddies is convex in log k, and at this point not below
        # the dissipation's third root: Newton's steps decrease log k towards the root without
        # passing it.
        for _ in range(_NEWTON_STEPS):
            terms = jnp.log(coefficients) + orders * log_k
            share = jax.nn.softmax(terms)
            log_k = log_k - (jax.nn.logsumexp(terms) - third) / (share * orders).sum()
    return jnp.where(dissipation > 0, jnp.exp(-log_k), jnp.nan)


def unresolved(row: Mapping[str, float]) -> list[str]:
    """Warnings about the resolution of a flow from a row of diagnostics, one for each field that
    the grid cuts off.

    k_max times the dissipation scale describes where a cascade ends. Before the cascade reaches it,
    as after a start at large scales, the edge of the spectrum is empty and nothing is lost."""
    lines = []
    for field, column, edge in (
        ("flow", "k_max_eta", "edge_enstrophy"),
        ("magnetic field", "k_max_resistive", "edge_magnetic_enstrophy"),
    ):
        if row.get(column, RESOLVED) < RESOLVED and row[edge] > UNDER_RESOLVED:
            found = f"{column} = {row[column]:.2f}, below {RESOLVED:g}, and {row[edge]:.1%} of its squared gradients"
            cure = "a finer grid or more damping resolves it"
            lines.append(
                f"the {field} is under-resolved: {found} lies near the grid's edge; {cure}"
            )
    return lines


def absent(coefficient: float | Number) -> bool:
    """Whether a coefficient is 0. Arrays in place of numbers (runs that share a program) count as
    nonzero."""
    return isinstance(coefficient, int | float) and coefficient == 0


def ratio(a: jax.Array, b: jax.Array) -> jax.Array:
    """a / b; nan if the denominator is zero."""
    return jnp.where(b == 0, jnp.nan, a / jnp.where(b == 0, 1, b))


_INTEGRAL = {
    3: pi / 2,
    2: 2.0,
}  # Factor of the integral scale, by dimensions: L = factor / u_rms^2 sum E(k) / k.


class Cascade(NamedTuple):
    """The quantity that a flow passes on to small scales, and the rate at which viscosity removes
    it there."""

    of: Literal["energy", "enstrophy"]
    dissipation: jax.Array


def products_about(mean: Float[Array, "d"], values: PhysicalVector, name: str) -> PointValues:
    """`NAME_xx`, ...: products of the components of v' = v - <v> at a point, whose means
    `mean_and_rms` uses."""
    fluctuation = [values[i] - mean[i] for i in range(len(values))]
    return {
        f"{name}_{AXES[i]}{AXES[j]}": fluctuation[i] * fluctuation[j]
        for i, j in symmetric_pairs(len(fluctuation))
    }


def mean_and_rms(
    mean: Float[Array, "d"], means: Mapping[str, Number], name: str, rms: str, stress: str
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


def moments(
    transform: Transform,
    inputs: Mapping[str, SpectralVector],
    rate: Callable[[PointValues], PhysicalScalar],
    further: Callable[[PointValues, Any], Local] = lambda values, parameters: Local({}),
    parameters: Any = (),
) -> Evaluated:
    """Moments of the velocity and of its longitudinal gradients du_i/dx_i, and the largest speed,
    divergence and rate; with the maxima and means of `further`, a function of the values of all
    `inputs` and of `parameters`."""
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
        maxima = {
            "speed": jnp.sqrt(squared(v)),
            "divergence": abs(reduce(add, g)),
            "rate": rate(values),
        }
        return Local({}, {**maxima, **more.maxima}, {**means, **more.means})

    mean = transform.layout.at_zero(velocity).real
    return transform.evaluate({**inputs, "longitudinal": slopes}, local, (mean, parameters))


def flow_scalars(
    transform: Transform,
    velocity: SpectralVector,
    damping: Damping,
    cascade: Cascade,
    evaluated: Evaluated,
) -> dict[str, Number]:
    """Scalars of a velocity, by column; the last one is `rate` (1/time), for the choice of dt.

    `damping` lists first viscosity, then hyperviscosity; the dissipation in `cascade` is the sum of
    both. `evaluated` is the result of `moments`.

    All columns but `max_speed` refer to the fluctuations u' = u - <u> and are therefore Galilean
    invariant. With u_rms^2 = <u'^2> / d: integral scale pi / (2 u_rms^2) sum E(k) / k, in two
    dimensions 2 / u_rms^2 sum E(k) / k; Taylor scale sqrt(d (d + 2) u_rms^2 / <omega^2>), turnover
    time integral scale / u_rms; Kolmogorov scale, or Kraichnan's scale of a cascade of enstrophy,
    as in `dissipation_scale`; `edge_enstrophy` is the fraction of the enstrophy at the edge of the
    spectrum. Skewness and flatness are those of the longitudinal gradients du_i/dx_i. Quantities
    that depend on viscosity are left out if it is 0, and the helicity in two dimensions."""
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
    # If no velocity varies along its own direction, as in a parallel flow, longitudinal gradients
    # are round-off.
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


def _linear(
    layout: Layout, rotation: Sequence[float], buoyancy: float, axis: Sequence[float], dtype
) -> tuple[OverModes, OverModes, OverModes]:
    """The linear problem of each mode: 2 Omega . k / |k|, the only part of the rotation that acts
    on a mode; omega >= 0 (1/time), 0 where it is round-off, omega^2 = (N^2 |k x e|^2 + (2 Omega .
    k)^2) / k^2 with e = `axis`; and 1, -1 or 0, the sign of the group velocity of the wave exp(i (k
    . x - omega t)) along e."""
    k = _in_space(wavenumbers(layout, dtype))
    k2 = k[0] ** 2 + k[1] ** 2 + k[2] ** 2
    length = jnp.sqrt(k2)
    inverse = jnp.where(k2 == 0, 0, 1 / jnp.where(k2 == 0, 1, length))
    small = 64 * jnp.finfo(dtype).eps

    def along(vector: Sequence[float]) -> jax.Array:
        return jnp.asarray(sum(v * q for v, q in zip(vector, k, strict=True) if v), dtype) * inverse

    x, y, z = (jnp.asarray(q, dtype) for q in k)
    e = np.asarray(axis)
    across = jnp.sqrt(
        (y * e[2] - z * e[1]) ** 2 + (z * e[0] - x * e[2]) ** 2 + (x * e[1] - y * e[0]) ** 2
    )
    across = across * inverse
    fastest = hypot(buoyancy, 2 * hypot(*rotation))
    coriolis = 2 * along(rotation)
    coriolis = jnp.where(abs(coriolis) <= small * fastest, 0, coriolis)
    squares = coriolis**2 + jnp.where(across <= small, 0, buoyancy * across) ** 2
    # omega omega' |k| = (2 Omega . k) (2 Omega . e) / |k| - omega^2 k . e / |k|
    slope = coriolis * 2 * float(np.dot(rotation, e)) - squares * along(axis)
    rise = jnp.where(abs(slope) <= small * fastest**2, 0, jnp.sign(slope))
    return coriolis, jnp.sqrt(squares), rise


def _in_space(vector: Any) -> list[Any]:
    components = list(vector)
    return components if len(components) == 3 else [*components, 0 * components[0]]


def energy_parts(
    layout: Layout,
    velocity: SpectralVector,
    theta: SpectralScalar | None,
    rotation: Sequence[float],
    buoyancy_frequency: float,
    axis: Sequence[float],
) -> dict[str, OfModes]:
    """The energy of each mode by its part in the linear, inviscid motion

        u_t = P[-2 Omega x u + N theta e],  theta_t = -N u . e,  theta = b / N,

    of an unbounded fluid with any directions of `rotation` Omega and `axis` e. Without
    stratification `theta` is None and N = 0. The energies add up to (|u|^2 + |theta|^2) / 2.

    A mode with frequency omega > 0 is a pair of waves and a steady part of amplitude a = (N u . (k
    x e) / |k| - F theta) / omega, F = 2 Omega . k / |k|, which carries all its linear potential
    vorticity, q = N omega_vorticity . e + 2 Omega . grad theta: |q| = |k| omega |a| (Bartello 1995,
    J. Atmos. Sci. 52, 4410; Smith and Waleffe 2002, J. Fluid Mech. 451, 145). `wave_up_energy` is
    the energy of waves whose group velocity has a positive component along e, `wave_down_energy`
    that of waves with a negative component; the energy of all other waves is divided equally.

    `wave_energy`: both waves. `vortical_energy`: the steady part, and without stratification all
    modes with omega = 0, the two-dimensional flow. `shear_energy`, with stratification only: modes
    with omega = 0, horizontally uniform flow and buoyancy, their means included."""
    dtype = velocity.real.dtype
    coriolis, omega, rise = _linear(layout, rotation, buoyancy_frequency, _in_space(axis), dtype)
    inverse = jnp.where(omega > 0, 1 / jnp.where(omega > 0, omega, 1), 0)
    inverse_k = jnp.sqrt(layout.inverse_k_squared(dtype))
    velocity, axis = jnp.stack(_in_space(velocity)), _in_space(axis)
    scaled_curl = (
        1j * cross(_in_space(wavenumbers(layout, dtype)), velocity) * inverse_k
    )  # i k x u / |k|
    rising, spinning = (
        jnp.asarray(sum(float(d) * v[i] for i, d in enumerate(axis) if d))
        for v in (velocity, scaled_curl)
    )
    total = 0.5 * squared(velocity)
    # Twice the excess of the wave along k over the wave against it: for inertial waves the
    # helicity.
    excess = coriolis * (
        dot(velocity.real, scaled_curl.real) + dot(velocity.imag, scaled_curl.imag)
    )
    vortical = jnp.zeros_like(total)
    if theta is not None:
        total = total + 0.5 * abs(theta) ** 2
        # u . (k x e) = -e . (k x u) = i e . (i k x u)
        amplitude = (1j * buoyancy_frequency * spinning - coriolis * theta) * inverse
        vortical = 0.5 * abs(amplitude) ** 2
        excess = excess + 2 * buoyancy_frequency * (
            rising.real * theta.imag - rising.imag * theta.real
        )
    oscillating = omega > 0
    wave = jnp.where(oscillating, total - vortical, 0)
    difference = -0.5 * rise * excess * inverse
    steady = jnp.where(oscillating, 0, total)
    parts = {
        "wave_energy": wave,
        "wave_up_energy": 0.5 * (wave + difference),
        "wave_down_energy": 0.5 * (wave - difference),
    }
    if theta is None:
        return parts | {"vortical_energy": steady}
    return parts | {"vortical_energy": jnp.where(oscillating, vortical, 0), "shear_energy": steady}
