"""Explicit Runge-Kutta integrators with an integrating factor.

The equation is du/dt = L u + N(u, t) with a diagonal L. The substitution v = exp(-L t) u removes
the linear term, which is thus integrated exactly; the classical formulas are applied to the
remaining equation."""

from collections.abc import Callable, Mapping
from functools import partial
from math import factorial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Inexact

from simulator.physics.stepping.integrator import Advanced, Integrator, growth
from simulator.spectral.arrays import Combination, Number, computed

Formulas = Callable[..., tuple[Advanced, Advanced]]


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def finished(
    formulas: Formulas, dt: Number, linear: Advanced, h: Advanced, *fields: Advanced
) -> tuple[Advanced, Advanced]:
    """Two registers, `formulas(linear, h, *fields)`, computed before all later operations.

    Otherwise XLA would postpone sums whose result only the end of a step uses, and keep every
    tendency in these sums until then. XLA drops optimization barriers before it decides; it has to
    obey a condition whose value it cannot know. Combinations are left as they are."""

    def unchanged(
        linear: Advanced, h: Advanced, first: Advanced, second: Advanced, *_: Advanced
    ) -> tuple[Advanced, Advanced]:
        return first, jax.tree.map(lambda a, like: a.astype(like.dtype), second, first)

    later = {n for n, field in fields[0].items() if isinstance(field, Combination)}
    given = [{n: a for n, a in part.items() if n not in later} for part in (linear, h, *fields)]
    rest = [{n: part[n] for n in later} for part in (linear, h, *fields)]
    done = lax.cond(dt < jnp.inf, formulas, unchanged, *given)
    return tuple(a | b for a, b in zip(done, formulas(*rest), strict=True))


@finished.defjvp
def _(formulas: Formulas, primals: Any, tangents: Any) -> Any:
    # The tangents are those of the formulas without the condition: of a condition the reverse would
    # keep every factor.
    return finished(formulas, *primals), jax.jvp(formulas, primals[1:], tangents[1:])[1]


class RungeKutta4(Integrator):
    """The classical method of order 4. With E = exp(L dt/2):

    a = N(u, t),  b = N(E (u + dt/2 a), t + dt/2),  c = N(E u + dt/2 b, t + dt/2),  d = N(E^2 u + dt
    E c, t + dt), u(t + dt) = E^2 u + dt/6 (E^2 a + 2 E (b + c) + d).

    Canuto et al., Spectral Methods: Fundamentals in Single Domains (2006), appendix D."""

    order = 4
    # The stability region reaches to 2.83 on the imaginary axis, which is the limit except for
    # none.
    max_cfl: ClassVar[Mapping[str, float]] = {"two_thirds": 1.35, "spherical": 0.95, "none": 0.4}

    def step(self, fields, time, dt, first, tendency, linear) -> Advanced:
        half = growth(linear, dt / 2)
        names = list(fields)
        h = {n: dt.astype(fields[n].real.dtype) for n in names}

        def each(half: Advanced, h: Advanced, formula: Callable[..., jax.Array]) -> Advanced:
            return {n: formula(n, half[n], h[n]) for n in half}

        u, a = fields, first
        b = tendency(each(half, h, lambda n, e, h: e * (u[n] + h / 2 * a[n])), time + dt / 2)
        total, at = finished(
            lambda half, h, u, a, b: (
                each(half, h, lambda n, e, h: e * (e * (u[n] + h / 6 * a[n]) + h / 3 * b[n])),
                each(half, h, lambda n, e, h: e * u[n] + h / 2 * b[n]),
            ),
            dt,
            half,
            h,
            u,
            a,
            b,
        )
        c = tendency(at, time + dt / 2)
        total, at = finished(
            lambda half, h, total, u, c: (
                each(half, h, lambda n, e, h: total[n] + h / 3 * e * c[n]),
                each(half, h, lambda n, e, h: e * (e * u[n] + h * c[n])),
            ),
            dt,
            half,
            h,
            total,
            u,
            c,
        )
        d = tendency(at, time + dt)
        return each(half, h, lambda n, e, h: total[n] + h / 6 * d[n])


class RungeKutta3(Integrator):
    """Williamson's low-storage method of order 3 with two registers, u and q. With E_i = exp(L
    (c_(i+1) - c_i) dt):

    q <- A_i q + dt N(u, t + c_i dt),  u <- E_i (u + B_i q),  q <- E_i q,

    A = (0, -5/9, -153/128), B = (1/3, 15/16, 8/15), c = (0, 1/3, 3/4, 1).
    Williamson, J. Comput. Phys. 35, 48 (1980), case 7."""

    order = 3
    # The stability region reaches to sqrt(3) on the imaginary axis; the method's damping there sets
    # the limit.
    max_cfl: ClassVar[Mapping[str, float]] = {"two_thirds": 0.6, "spherical": 0.45, "none": 0.18}

    def step(self, fields, time, dt, first, tendency, linear) -> Advanced:
        names = list(fields)
        fields, first = ({n: computed(a) for n, a in part.items()} for part in (fields, first))
        h = {n: dt.astype(fields[n].real.dtype) for n in names}

        def advanced(u: Advanced, q: Advanced, b, duration) -> tuple[Advanced, Advanced]:
            e = growth(linear, duration * dt)
            b = {n: jnp.asarray(b, h[n].dtype) for n in names}
            return {n: e[n] * (u[n] + b[n] * q[n]) for n in names}, {n: e[n] * q[n] for n in names}

        def stage(registers, coefficients):
            u, q = registers
            a, b, c, after = coefficients
            rate = tendency(u, time + c * dt)
            q = {n: a.astype(h[n].dtype) * q[n] + h[n] * rate[n] for n in names}
            return advanced(u, q, b, after - c), None

        # A loop keeps two registers; in a sequence of stages XLA would keep all tendencies to the
        # end.
        first_stage = advanced(fields, {n: h[n] * first[n] for n in names}, 1 / 3, 1 / 3)
        stages = ((-5 / 9, 15 / 16, 1 / 3, 3 / 4), (-153 / 128, 8 / 15, 3 / 4, 1))
        table = [jnp.asarray(column, jnp.float64) for column in zip(*stages, strict=True)]
        (u, _), _ = lax.scan(stage, first_stage, table)
        return u


class RungeKutta2(Integrator):
    """Heun's method, of order 2: with E = exp(L dt), a = N(u, t), b = N(E (u + dt a), t + dt),
    u(t + dt) = E (u + dt/2 a) + dt/2 b.

    In pure advection energy grows slowly, by (k v dt)^4 / 8 per step, which viscosity has to
    outweigh."""

    order = 2
    max_cfl: ClassVar[Mapping[str, float]] = {"two_thirds": 0.4, "spherical": 0.3, "none": 0.15}

    def step(self, fields, time, dt, first, tendency, linear) -> Advanced:
        names = list(fields)
        e = growth(linear, dt)
        h = {n: dt.astype(fields[n].real.dtype) for n in names}
        end = tendency({n: e[n] * (fields[n] + h[n] * first[n]) for n in names}, time + dt)
        return {n: e[n] * (fields[n] + h[n] / 2 * first[n]) + h[n] / 2 * end[n] for n in names}


_TERMS = 18


def phi_functions(
    z: Inexact[Array, "*shape"],
) -> tuple[Inexact[Array, "*shape"], Inexact[Array, "*shape"], Inexact[Array, "*shape"]]:
    """phi_1, phi_2, phi_3 of z in double precision, to a few ulp for Re z <= 0 and moderate Re z >
    0:

    phi_1 = (exp z - 1) / z,  phi_(n+1) = (phi_n - 1/n!) / z,  phi_n(0) = 1/n!.

    For |z| < 1, where the recurrence suffers from cancellation, phi_3 comes from its Taylor series
    and the others from the recurrence upwards: phi_n = 1/n! + z phi_(n+1)."""
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

    Cox & Matthews, J. Comput. Phys. 176, 430 (2002), eqs. 26-29; stable coefficients instead of the
    contour integrals of Kassam & Trefethen, SIAM J. Sci. Comput. 26, 1214 (2005)."""

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
        at_a = tendency(a, time + dt / 2)
        at_b = tendency({n: half[n] * u[n] + p[n] * at_a[n] for n in names}, time + dt / 2)
        at_c = tendency(
            {n: half[n] * a[n] + p[n] * (2 * at_b[n] - at_u[n]) for n in names}, time + dt
        )
        return {
            n: whole[n] * u[n] + q[n] * at_u[n] + r[n] * (at_a[n] + at_b[n]) + s[n] * at_c[n]
            for n in names
        }
