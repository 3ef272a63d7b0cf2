"""Scalars that describe a turbulent flow, and the energy that each wavenumber holds.

Definitions: Pope, Turbulent Flows (2000), sections 6.5 and 13.4. Isotropic formulas are applied to any flow.
"""

from math import pi

import jax
import jax.numpy as jnp

from simulator.spectral import Local, Transform
from simulator.spectral.operators import curl, dot, squared


def ratio(a: jax.Array, b: jax.Array) -> jax.Array:
    """a / b; nan where the denominator is zero and the ratio has no meaning."""
    return jnp.where(b == 0, jnp.nan, a / jnp.where(b == 0, 1, b))


def flow_scalars(
    transform: Transform, velocity: jax.Array, viscosity: float | jax.Array, dissipation: jax.Array, rate
) -> dict[str, jax.Array]:
    """Scalars of a velocity (3, *order), by column; `rate` comes last, for the choice of dt.

    `dissipation` is the viscous one. `rate(v)` is the advective rate of values v at a point.
    With u'^2 = <u^2> / 3: integral scale pi / (2 u'^2) sum E(k) / k, Taylor scale sqrt(15 u'^2 / <omega^2>),
    Kolmogorov scale (viscosity^3 / dissipation)^(1/4), turnover time integral scale / u'. Skewness and flatness
    are those of the longitudinal gradients du_i/dx_i. What depends on viscosity is left out where that is 0.
    """
    layout = transform.layout
    omega = curl(layout, velocity)
    energy = 0.5 * layout.inner(velocity, velocity).sum()
    enstrophy = 0.5 * layout.inner(omega, omega).sum()
    k = layout.wavenumbers(velocity.real.dtype)
    inverse_k = jnp.sqrt(layout.inverse_k_squared(velocity.real.dtype))
    over_k = 0.5 * layout.sum(inverse_k * abs(velocity) ** 2).sum()
    u_rms = jnp.sqrt(2 * energy / 3)
    integral = pi / 2 * ratio(over_k, u_rms**2)
    taylor = jnp.sqrt(ratio(5 * energy, enstrophy))
    inputs = {
        "velocity": velocity,
        "gradient": jnp.stack([1j * k[i] * velocity[i] for i in range(3)]),
    }

    def moments(values, points, parameters) -> Local:
        v, g = values["velocity"], values["gradient"]
        means = {
            "gradient_2": dot(g, g) / 3,
            "gradient_3": dot(g * g, g) / 3,
            "gradient_4": dot(g * g, g * g) / 3,
        }
        divergence = abs(g[0] + g[1] + g[2])
        return Local({}, {"speed": jnp.sqrt(squared(v)), "divergence": divergence, "rate": rate(v)}, means)

    found = transform.evaluate(inputs, moments)
    second = found.means["gradient_2"]
    scalars = {
        "enstrophy": enstrophy,
        "helicity": layout.inner(velocity, omega).sum(),
        "u_rms": u_rms,
        "integral_scale": integral,
        "taylor_scale": taylor,
        "turnover_time": ratio(integral, u_rms),
    }
    # An array in the place of the number (runs that share this program) stands for one that is not zero.
    if not (isinstance(viscosity, int | float) and viscosity == 0):
        eta = jnp.sqrt(jnp.sqrt(ratio(jnp.asarray(viscosity**3, dissipation.dtype), dissipation)))
        scalars["reynolds_taylor"] = u_rms * taylor / viscosity
        scalars["kolmogorov_scale"] = eta
        scalars["k_max_eta"] = transform.grid.largest_wavenumber * eta
    return scalars | {
        "gradient_skewness": ratio(found.means["gradient_3"], second**1.5),
        "gradient_flatness": ratio(found.means["gradient_4"], second**2),
        "max_speed": found.maxima["speed"],
        "max_divergence": found.maxima["divergence"],
        "rate": found.maxima["rate"],
    }
