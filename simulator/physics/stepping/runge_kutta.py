"""Explicit Runge-Kutta integrators with an integrating factor.

The equation is du/dt = L u + N(u, t) with a diagonal L. The substitution v = exp(-L t) u removes
the linear term, which is thus integrated exactly; the classical formulas are applied to the
remaining equation. In every step a = N(u, t), and h is dt in the precision of each unknown."""

from collections.abc import Mapping
from functools import partial
from math import factorial
from typing import ClassVar

import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Inexact

from simulator.physics.stepping.coupled import Coupled, SmallMatrix, phi_matrices
from simulator.physics.stepping.evolved import Evolved, Registers, growth, now
from simulator.physics.stepping.integrator import Integrator, Nonlinear
from simulator.spectral.arrays import Number, OverModes


class RungeKutta4(Integrator):
    """The classical method of order 4. With E = exp(L dt/2):

    a = N(u, t),  b = N(E (u + dt/2 a), t + dt/2),  c = N(E u + dt/2 b, t + dt/2),
    d = N(E (E u + dt c), t + dt),  u(t + dt) = E^2 u + dt/6 (E^2 a + 2 E (b + c) + d).

    Canuto et al., Spectral Methods: Fundamentals in Single Domains (2006), appendix D."""

    couples = True
    embedded = True
    order = 4
    # The stability region reaches to 2.83 on the imaginary axis: the limit except for `none`.
    max_cfl: ClassVar[Mapping[str, float]] = {
        "two_thirds": 1.35,
        "spherical": 0.95,
        "phase_shift": 0.95,
        "none": 0.4,
    }
    moves = (0, 1 / 6, 2 / 3, 1 / 2)

    def step(
        self, u: Evolved, t: Number, dt: Number, a: Evolved, N: Nonlinear, L: Evolved
    ) -> Evolved:
        E = growth(L, dt / 2)
        h = u.number(dt)
        if isinstance(L, Coupled):
            return self._of_matrices(u, t, dt, a, N, E)
        b = N(E * (u + h / 2 * a), t + dt / 2)
        v, w = now(dt, lambda: (E * (E * (u + h / 6 * a) + h / 3 * b), E * u + h / 2 * b), (a, b))
        c = N(w, t + dt / 2)
        v, w = now(dt, lambda: (v + h / 3 * E * c, E * (E * u + h * c)), (v, c))
        d = N(w, t + dt)
        return v + h / 6 * d

    def _of_matrices(
        self, u: Evolved, t: Number, dt: Number, a: Evolved, N: Nonlinear, E: Evolved
    ) -> Evolved:
        """The same with four instead of seven products with E, which cost more than an array."""
        h = u.number(dt)
        u, a = now(dt, lambda: (E * u, E * a), (u, a))
        b = N(u + h / 2 * a, t + dt / 2)
        v, w = now(dt, lambda: (u + h / 6 * a + h / 3 * b, u + h / 2 * b), (a, b))
        c = N(w, t + dt / 2)
        # Each row of a matrix would compute these sums anew.
        v, w = now(dt, lambda: (v + h / 3 * c, u + h * c), (v, c))
        v, w = now(dt, lambda: (E * v, E * w), (v, w))
        d = N(w, t + dt)
        return v + h / 6 * d


class RungeKutta3(Integrator):
    """Williamson's low-storage method of order 3 with two registers, u and q. With E_i = exp(L
    (c_(i+1) - c_i) dt):

    q <- A_i q + dt N(u, t + c_i dt),  u <- E_i (u + B_i q),  q <- E_i q,

    A = (0, -5/9, -153/128), B = (1/3, 15/16, 8/15), c = (0, 1/3, 3/4, 1).
    Williamson, J. Comput. Phys. 35, 48 (1980), case 7."""

    couples = True
    order = 3
    # The stability region reaches to sqrt(3) on the imaginary axis; the damping there sets the
    # limit.
    max_cfl: ClassVar[Mapping[str, float]] = {"two_thirds": 0.6, "spherical": 0.45, "none": 0.18}

    def step(
        self, u: Evolved, t: Number, dt: Number, a: Evolved, N: Nonlinear, L: Evolved
    ) -> Evolved:
        h = u.computed().number(dt)

        def moved(u: Evolved, q: Evolved, B: Number | float, duration: Number) -> Registers:
            E = growth(L, duration)
            return E * (u + B * q), E * q

        def stage(registers: Registers, row: tuple[Number, ...]) -> tuple[Registers, None]:
            u, q = registers
            A, B, c, end = row
            q = A * q + h * N(u, t + c * dt)
            return moved(u, q, B, (end - c) * dt), None

        # A loop keeps two registers; in a sequence of stages XLA would keep all tendencies.
        first = moved(u.computed(), h * a.computed(), 1 / 3, 1 / 3 * dt)
        rows = ((-5 / 9, 15 / 16, 1 / 3, 3 / 4), (-153 / 128, 8 / 15, 3 / 4, 1))
        columns = tuple(jnp.asarray(column, jnp.float64) for column in zip(*rows, strict=True))
        (u, _), _ = lax.scan(stage, first, columns)
        return u


class RungeKutta2(Integrator):
    """Heun's method, of order 2: with E = exp(L dt), a = N(u, t), b = N(E (u + dt a), t + dt),
    u(t + dt) = E (u + dt/2 a) + dt/2 b.

    In pure advection energy grows slowly, by (k v dt)^4 / 8 per step, which viscosity has to
    outweigh."""

    couples = True
    order = 2
    max_cfl: ClassVar[Mapping[str, float]] = {
        "two_thirds": 0.4,
        "spherical": 0.3,
        "phase_shift": 0.3,
        "none": 0.15,
    }
    moves = (0, 1 / 2)

    def step(
        self, u: Evolved, t: Number, dt: Number, a: Evolved, N: Nonlinear, L: Evolved
    ) -> Evolved:
        E = growth(L, dt)
        h = u.number(dt)
        b = N(E * (u + h * a), t + dt)
        return E * (u + h / 2 * a) + h / 2 * b


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
    return (
        jnp.where(small, series1, closed1),
        jnp.where(small, series2, closed2),
        jnp.where(small, series, closed3),
    )


class ExponentialRungeKutta4(Integrator):
    """ETDRK4 of order 4. With z = L dt, E = e^(z/2), N_u = N(u, t), P = dt/2 phi_1(z/2), and
    phi_n at z in Q, R and S:

    a = E u + P N_u,  b = E u + P N_a,  c = E a + P (2 N_b - N_u),
    u(t + dt) = E^2 u + Q N_u + R (N_a + N_b) + S N_c,
    Q = dt (phi_1 - 3 phi_2 + 4 phi_3),  R = dt (2 phi_2 - 4 phi_3),  S = dt (4 phi_3 - phi_2).

    Cox & Matthews, J. Comput. Phys. 176, 430 (2002), eqs. 26-29; stable coefficients instead of the
    contour integrals of Kassam & Trefethen, SIAM J. Sci. Comput. 26, 1214 (2005)."""

    couples = True
    embedded = True
    order = 4
    # Without a linear term this is the classical method.
    max_cfl = RungeKutta4.max_cfl
    moves = RungeKutta4.moves

    def step(
        self, u: Evolved, t: Number, dt: Number, a: Evolved, N: Nonlinear, L: Evolved
    ) -> Evolved:
        E, E2, P, Q, R, S = _coefficients(L, dt, u)
        N_u = a
        a = E * u + P * N_u
        N_a = N(a, t + dt / 2)
        N_b = N(E * u + P * N_a, t + dt / 2)
        N_c = N(E * a + P * (2 * N_b - N_u), t + dt)
        return E2 * u + Q * N_u + R * (N_a + N_b) + S * N_c

    def last_weight(self, L: Evolved, dt: Number, u: Evolved) -> Evolved:
        return 6.0 * _coefficients(L, dt, u)[5]


def _coefficients(L: Evolved, dt: Number, u: Evolved) -> list[Evolved]:
    """E, E2, P, Q, R, S of all unknowns."""
    if isinstance(L, Coupled):
        return list(L.functions(dt, partial(_matrices, dt)))
    rows = {name: _factors(L[name], dt, u[name].real.dtype) for name in u}
    columns = zip(*rows.values(), strict=True)
    return [Evolved(zip(rows, column, strict=True)) for column in columns]


def _factors(L: OverModes, dt: Number, dtype: DTypeLike) -> tuple[OverModes, ...]:
    """E, E2, P, Q, R, S of one unknown, computed in double precision."""
    z = L.astype(jnp.result_type(L.dtype, jnp.float64)) * dt
    phi1, phi2, phi3 = phi_functions(z)
    half = dt / 2 * phi_functions(z / 2)[0]
    Q = dt * (phi1 - 3 * phi2 + 4 * phi3)
    R = dt * (2 * phi2 - 4 * phi3)
    S = dt * (4 * phi3 - phi2)
    kind = jnp.result_type(L.dtype, dtype)
    return tuple(x.astype(kind) for x in (jnp.exp(z / 2), jnp.exp(z), half, Q, R, S))


def _matrices(dt: Number, z: SmallMatrix) -> tuple[SmallMatrix, ...]:
    """E, E2, P, Q, R, S of a matrix z = L dt."""
    if z.size == 1:
        z1 = jnp.asarray(z[0, 0])
        factors = _factors(z1 / dt, dt, z1.real.dtype)
        return tuple(SmallMatrix((f.astype(z1.dtype),)) for f in factors)
    h = dt.astype(z[0, 0].real.dtype)
    E2, phi1, phi2, phi3 = phi_matrices(z)
    E, half, *_ = phi_matrices(0.5 * z)
    Q = h * (phi1 + -3 * phi2 + 4 * phi3)
    R = h * (2 * phi2 + -4 * phi3)
    return E, E2, h / 2 * half, Q, R, h * (4 * phi3 + -1 * phi2)
