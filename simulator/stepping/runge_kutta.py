"""Explicit Runge-Kutta integrators with an integrating factor.

The equation is du/dt = -L u + N(u, t) with a diagonal L >= 0. Substituting v = exp(L t) u leaves an equation without
the linear term, to which the classical formulas are applied; the linear term is integrated exactly.
"""

import jax
import jax.numpy as jnp

from simulator.models import Fields
from simulator.stepping.integrator import Tendency


def damping(decay: Fields, duration: jax.Array) -> Fields:
    """exp(-L duration) for every field."""
    return {name: jnp.exp(-rate * duration.astype(rate.dtype)) for name, rate in decay.items()}


class RungeKutta4:
    """The classical method of order 4. With E = exp(-L dt/2):

    a = N(u, t),  b = N(E (u + dt/2 a), t + dt/2),  c = N(E u + dt/2 b, t + dt/2),  d = N(E^2 u + dt E c, t + dt),
    u(t + dt) = E^2 u + dt/6 (E^2 a + 2 E (b + c) + d).

    Canuto et al., Spectral Methods: Fundamentals in Single Domains (2006), appendix D.
    """

    order = 4
    # The stability region reaches to 2.83 on the imaginary axis and the largest wavenumber that the 2/3 rule
    # keeps is (2/3) pi / dx: dt sum_i |v_i| / dx_i <= 2.83 / (2 pi / 3).
    max_cfl = 1.35

    def step(
        self,
        fields: Fields,
        time: jax.Array,
        dt: jax.Array,
        first: Fields,
        tendency: Tendency,
        decay: Fields,
    ) -> Fields:
        half = damping(decay, dt / 2)
        names = list(fields)
        h = {n: dt.astype(fields[n].real.dtype) for n in names}

        def each(formula) -> Fields:
            return {n: formula(n, half[n], h[n]) for n in names}

        u, a = fields, first
        b = tendency(each(lambda n, e, h: e * (u[n] + h / 2 * a[n])), time + dt / 2)
        total = each(lambda n, e, h: e * (e * (u[n] + h / 6 * a[n]) + h / 3 * b[n]))
        c = tendency(each(lambda n, e, h: e * u[n] + h / 2 * b[n]), time + dt / 2)
        total = each(lambda n, e, h: total[n] + h / 3 * e * c[n])
        d = tendency(each(lambda n, e, h: e * (e * u[n] + h * c[n])), time + dt)
        return each(lambda n, e, h: total[n] + h / 6 * d[n])
