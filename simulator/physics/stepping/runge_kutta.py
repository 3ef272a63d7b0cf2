"""Explicit Runge-Kutta integrators with an integrating factor.

The equation is du/dt = L u + N(u, t) with a diagonal L. The substitution v = exp(-L t) u removes the linear term,
which is thus integrated exactly; the classical formulas are applied to the remaining equation.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax

from simulator.physics.stepping.integrator import Advanced, Integrator, growth
from simulator.spectral.arrays import Number

Formulas = Callable[..., tuple[Advanced, Advanced]]


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def finished(
    formulas: Formulas, dt: Number, linear: Advanced, h: Advanced, *fields: Advanced
) -> tuple[Advanced, Advanced]:
    """Two registers, `formulas(linear, h, *fields)`, computed before all later operations.

    Otherwise XLA would postpone sums whose result only the end of a step uses, and keep every tendency in these sums
    until then. XLA drops optimization barriers before it decides; it has to obey a condition whose value it cannot
    know.
    """

    def unchanged(
        linear: Advanced, h: Advanced, first: Advanced, second: Advanced, *_: Advanced
    ) -> tuple[Advanced, Advanced]:
        return first, second

    return lax.cond(dt < jnp.inf, formulas, unchanged, linear, h, *fields)


@finished.defjvp
def _(formulas: Formulas, primals: Any, tangents: Any) -> Any:
    # The tangents are those of the formulas without the condition: of a condition the reverse would keep every
    # factor.
    return finished(formulas, *primals), jax.jvp(formulas, primals[1:], tangents[1:])[1]


class RungeKutta4(Integrator):
    """The classical method of order 4. With E = exp(L dt/2):

    a = N(u, t),  b = N(E (u + dt/2 a), t + dt/2),  c = N(E u + dt/2 b, t + dt/2),  d = N(E^2 u + dt E c, t + dt),
    u(t + dt) = E^2 u + dt/6 (E^2 a + 2 E (b + c) + d).

    Canuto et al., Spectral Methods: Fundamentals in Single Domains (2006), appendix D.
    """

    order = 4
    # The stability region reaches to 2.83 on the imaginary axis, which is the limit except for none.
    max_cfl: ClassVar[Mapping[str, float]] = {"two_thirds": 1.35, "spherical": 0.95, "none": 0.4}

    def step(self, fields, time, dt, first, tendency, linear) -> Advanced:
        half = growth(linear, dt / 2)
        names = list(fields)
        h = {n: dt.astype(fields[n].real.dtype) for n in names}

        def each(half: Advanced, h: Advanced, formula: Callable[..., jax.Array]) -> Advanced:
            return {n: formula(n, half[n], h[n]) for n in names}

        u, a = fields, first
        b = tendency(each(half, h, lambda n, e, h: e * (u[n] + h / 2 * a[n])), time + dt / 2, 1)
        total, at = finished(
            lambda half, h, u, a, b: (
                each(half, h, lambda n, e, h: e * (e * (u[n] + h / 6 * a[n]) + h / 3 * b[n])),
                each(half, h, lambda n, e, h: e * u[n] + h / 2 * b[n]),
            ),
            dt, half, h, u, a, b,
        )  # fmt: skip
        c = tendency(at, time + dt / 2, 2)
        total, at = finished(
            lambda half, h, total, u, c: (
                each(half, h, lambda n, e, h: total[n] + h / 3 * e * c[n]),
                each(half, h, lambda n, e, h: e * (e * u[n] + h * c[n])),
            ),
            dt, half, h, total, u, c,
        )  # fmt: skip
        d = tendency(at, time + dt, 3)
        return each(half, h, lambda n, e, h: total[n] + h / 6 * d[n])


class RungeKutta3(Integrator):
    """Williamson's low-storage method of order 3 with two registers, u and q. With E_i = exp(L (c_(i+1) - c_i) dt):

    q <- A_i q + dt N(u, t + c_i dt),  u <- E_i (u + B_i q),  q <- E_i q,

    A = (0, -5/9, -153/128), B = (1/3, 15/16, 8/15), c = (0, 1/3, 3/4, 1).
    Williamson, J. Comput. Phys. 35, 48 (1980), case 7.
    """

    order = 3
    # The stability region reaches to sqrt(3) on the imaginary axis; the method's damping there sets the limit.
    max_cfl: ClassVar[Mapping[str, float]] = {"two_thirds": 0.6, "spherical": 0.45, "none": 0.18}

    def step(self, fields, time, dt, first, tendency, linear) -> Advanced:
        names = list(fields)
        h = {n: dt.astype(fields[n].real.dtype) for n in names}

        def advanced(u: Advanced, q: Advanced, b, duration) -> tuple[Advanced, Advanced]:
            e = growth(linear, duration * dt)
            b = {n: jnp.asarray(b, h[n].dtype) for n in names}
            return {n: e[n] * (u[n] + b[n] * q[n]) for n in names}, {n: e[n] * q[n] for n in names}

        def stage(registers, coefficients):
            u, q = registers
            number, a, b, c, after = coefficients
            rate = tendency(u, time + c * dt, number)
            q = {n: a.astype(h[n].dtype) * q[n] + h[n] * rate[n] for n in names}
            return advanced(u, q, b, after - c), None

        # A loop keeps two registers; in a sequence of stages XLA would keep all tendencies to the end.
        first_stage = advanced(fields, {n: h[n] * first[n] for n in names}, 1 / 3, 1 / 3)
        stages = ((1, -5 / 9, 15 / 16, 1 / 3, 3 / 4), (2, -153 / 128, 8 / 15, 3 / 4, 1))
        table = [jnp.asarray(column, jnp.float64) for column in zip(*stages, strict=True)]
        (u, _), _ = lax.scan(stage, first_stage, table)
        return u


class RungeKutta2(Integrator):
    """Heun's method, of order 2: with E = exp(L dt), a = N(u, t), b = N(E (u + dt a), t + dt),
    u(t + dt) = E (u + dt/2 a) + dt/2 b.

    In pure advection energy grows slowly, by (k v dt)^4 / 8 per step, which viscosity has to outweigh. Both stages
    have equal weights, so that errors of opposite sign in a and b cancel to order dt^2: see
    `simulator.spectral.moved`.
    """

    order = 2
    # With rogallo the aliasing error A adds dt^2 <|A|^2> / 2 to the energy in every step.
    max_cfl: ClassVar[Mapping[str, float]] = {"two_thirds": 0.4, "spherical": 0.3, "rogallo": 0.03, "none": 0.15}

    def step(self, fields, time, dt, first, tendency, linear) -> Advanced:
        names = list(fields)
        e = growth(linear, dt)
        h = {n: dt.astype(fields[n].real.dtype) for n in names}
        end = tendency({n: e[n] * (fields[n] + h[n] * first[n]) for n in names}, time + dt, 1)
        return {n: e[n] * (fields[n] + h[n] / 2 * first[n]) + h[n] / 2 * end[n] for n in names}
