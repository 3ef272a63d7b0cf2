"""Exponential time differencing.

The equation is du/dt = L u + N(u, t) with a diagonal L, real or complex. In the variation of constants formula, N is
approximated by a polynomial in time, weighted with phi functions of L dt.
"""

from math import factorial

import jax.numpy as jnp
from jaxtyping import Array, Inexact

from simulator.physics.stepping.integrator import Advanced, Integrator
from simulator.physics.stepping.runge_kutta import RungeKutta4

_TERMS = 18


def phi_functions(
    z: Inexact[Array, "*shape"],
) -> tuple[Inexact[Array, "*shape"], Inexact[Array, "*shape"], Inexact[Array, "*shape"]]:
    """phi_1, phi_2, phi_3 of z in double precision, to a few ulp for Re z <= 0 and moderate Re z > 0:

    phi_1 = (exp z - 1) / z,  phi_(n+1) = (phi_n - 1/n!) / z,  phi_n(0) = 1/n!.

    For |z| < 1, where the recurrence suffers from cancellation, phi_3 comes from its Taylor series and the others
    from the recurrence upwards: phi_n = 1/n! + z phi_(n+1).
    """
    small = abs(z) < 1
    x = jnp.where(small, z, 0)
    series = jnp.zeros_like(z)
    for j in reversed(range(_TERMS)):
        series = 1 / factorial(j + 3) + x * series
    series2 = 0.5 + x * series
    series1 = 1 + x * series2
    y = jnp.where(small, -1, z)
    closed1 = jnp.expm1(y) / y
    closed2 = (closed1 - 1) / y
    closed3 = (closed2 - 0.5) / y
    pairs = (series1, closed1), (series2, closed2), (series, closed3)
    phi1, phi2, phi3 = (jnp.where(small, near, far) for near, far in pairs)
    return phi1, phi2, phi3


class ExponentialRungeKutta4(Integrator):
    """ETDRK4 of order 4. With z = L dt, N_u = N(u, t), and phi_1 at z/2 in the first three lines:

    a = e^(z/2) u + dt/2 phi_1 N_u,  b = e^(z/2) u + dt/2 phi_1 N_a,  c = e^(z/2) a + dt/2 phi_1 (2 N_b - N_u),
    u(t + dt) = e^z u + dt [(phi_1 - 3 phi_2 + 4 phi_3) N_u + (2 phi_2 - 4 phi_3) (N_a + N_b)
                + (4 phi_3 - phi_2) N_c].

    Cox & Matthews, J. Comput. Phys. 176, 430 (2002), eqs. 26-29; stable coefficients instead of the contour
    integrals of Kassam & Trefethen, SIAM J. Sci. Comput. 26, 1214 (2005).
    """

    order = 4
    # Without a linear term this is the classical method.
    max_cfl = RungeKutta4.max_cfl

    def step(self, fields, time, dt, first, tendency, linear) -> Advanced:
        names = list(fields)
        u, half, whole, p, q, r, s = fields, {}, {}, {}, {}, {}, {}
        for n in names:
            rate = linear[n]
            double = jnp.result_type(rate.dtype, jnp.float64)
            kind = jnp.result_type(rate.dtype, fields[n].real.dtype)
            z = rate.astype(double) * dt
            phi1, phi2, phi3 = phi_functions(z)
            half[n], whole[n] = jnp.exp(z / 2).astype(kind), jnp.exp(z).astype(kind)
            p[n] = (dt / 2 * phi_functions(z / 2)[0]).astype(kind)
            q[n] = (dt * (phi1 - 3 * phi2 + 4 * phi3)).astype(kind)
            r[n] = (dt * (2 * phi2 - 4 * phi3)).astype(kind)
            s[n] = (dt * (4 * phi3 - phi2)).astype(kind)
        at_u = first
        a = {n: half[n] * u[n] + p[n] * at_u[n] for n in names}
        at_a = tendency(a, time + dt / 2, 1)
        at_b = tendency({n: half[n] * u[n] + p[n] * at_a[n] for n in names}, time + dt / 2, 2)
        at_c = tendency({n: half[n] * a[n] + p[n] * (2 * at_b[n] - at_u[n]) for n in names}, time + dt, 3)
        return {n: whole[n] * u[n] + q[n] * at_u[n] + r[n] * (at_a[n] + at_b[n]) + s[n] * at_c[n] for n in names}
