"""The integrators on equations whose solution is known, without any transform, and those of
split steps on an equation that is two rotations."""

from decimal import Decimal, getcontext
from math import factorial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from numpy.testing import assert_allclose

from simulator.physics.stepping import INTEGRATORS
from simulator.physics.stepping.evolved import Evolved, growth
from simulator.physics.stepping.integrator import Multistep, Past
from simulator.physics.stepping.runge_kutta import phi_functions
from simulator.physics.stepping.splitting import Splitting

ONE_STEP = ("rk2", "rk3", "rk4", "etdrk4")
LINEAR = Evolved(u=-jnp.array([0.0, 1.0, 40.0]))
"""Without a linear term, with one like the rest of the equation, and with a stiff one."""


def end(name: str, steps: int) -> np.ndarray:
    """u(1) of du/dt = -L u + cos(t) u^2 i, u(0) = 1 + i, which couples nothing but takes every term
    of a step."""

    def tendency(fields, time):
        return Evolved(u=1j * jnp.cos(time) * fields["u"] ** 2)

    integrator = INTEGRATORS[name]()
    dt = jnp.float64(1 / steps)

    @jax.jit
    def run(u):
        def step(n, fields):
            time = n * dt
            return integrator.step(fields, time, dt, tendency(fields, time), tendency, LINEAR)

        return jax.lax.fori_loop(0, steps, step, Evolved(u=u))["u"]

    return np.asarray(run(jnp.full(3, 1 + 1j)))


def solution() -> np.ndarray:
    """1/u = e^(L t) (1/u0 - i int_0^t cos(s) e^(-L s) ds)."""
    rate = -np.asarray(LINEAR["u"])
    integral = (np.exp(-rate) * (np.sin(1) - rate * np.cos(1)) + rate) / (1 + rate**2)
    return np.exp(-rate) / (1 / (1 + 1j) - 1j * integral)


@pytest.mark.parametrize("name", ONE_STEP)
def test_order(name):
    """Halving dt divides the error by 2^order; within 0.15 where the next order still shows."""
    order = INTEGRATORS[name].order
    errors = np.array([abs(end(name, n) - solution())[:2] for n in (64, 128, 256)])
    measured = np.log2(errors[:-1] / errors[1:])
    assert (abs(measured[-1] - order) < 0.15).all(), measured


@pytest.mark.parametrize("name", ONE_STEP)
def test_a_stiff_linear_term_does_not_limit_the_step(name):
    """L dt = 2.5 here: an explicit method would be far outside of its region. The damped value is
    4e-18."""
    found = end(name, 16)
    assert np.isfinite(found).all() and abs(found[2]) < 1e-15


@pytest.mark.parametrize("linear", [LINEAR["u"], -LINEAR["u"] / 20, 3j - LINEAR["u"] / 20])
@pytest.mark.parametrize("name", ONE_STEP)
def test_linear_terms_are_exact(name, linear):
    """Damped, growing, and dispersive ones."""
    integrator = INTEGRATORS[name]()
    u = Evolved(u=jnp.array([1.0 + 2j, -1j, 3.0]))

    def nothing(fields, time):
        return Evolved(u=jnp.zeros_like(fields["u"]))

    dt = jnp.float64(0.3)
    found = integrator.step(u, jnp.float64(0), dt, nothing(u, 0), nothing, Evolved(u=linear))["u"]
    assert_allclose(found, u["u"] * np.exp(np.asarray(linear) * 0.3), rtol=1e-14)


class AdamsBashforth(Multistep):
    """u + dt [(1 + r/2) N_n - r/2 N_(n-1)], r = dt_n / dt_(n-1), with an integrating factor; a first
    step of Euler."""

    def begin(self, u):
        return {"before": 0 * u}

    def multistep(self, u, t, dt, a, N, L, past):
        r = jnp.where(past.dt > 0, dt / jnp.where(past.dt > 0, past.dt, 1), 0)
        E = growth(L, dt)
        h = u.number(dt)
        new = E * (u + h * (a + r / 2 * (a - past.history["before"])))
        return new, {"before": E * a}


def test_on_gpus_registers_replace_what_they_are_computed_from(monkeypatch):
    """In a loop of one turn instead of a condition, with the same numbers."""
    conditional = end("rk4", 4)
    in_place = []

    def platform(*operands, cpu, default):
        in_place.append(default)
        return default(*operands)

    monkeypatch.setattr(lax, "platform_dependent", platform)
    assert np.array_equal(end("rk4", 4), conditional) and len(in_place) == 2


def test_a_multistep_integrator_knows_the_last_rate_and_step():
    """Of order 2, although its steps have two sizes in turn; the first has order 1 and is as good
    once."""

    def error(steps: int) -> float:
        integrator = AdamsBashforth()
        u = Evolved(u=jnp.full(3, 1 + 1j))
        past = Past(integrator.begin(u), jnp.float64(0))
        t = jnp.float64(0)
        sizes = np.tile([0.8, 1.2], steps // 2) / steps

        def tendency(u, time):
            return Evolved(u=1j * jnp.cos(time) * u["u"] ** 2)

        @jax.jit
        def step(u, t, dt, past):
            u, history = integrator.multistep(u, t, dt, tendency(u, t), tendency, LINEAR, past)
            return u, t + dt, Past(history, dt)

        for dt in sizes:
            u, t, past = step(u, t, dt, past)
        return abs(np.asarray(u["u"]) - solution())[0]

    assert abs(np.log2(error(64) / error(128)) - 2) < 0.15


def test_phi_functions_are_stable_for_any_eigenvalue():
    """Against 60 digits, from where the formulas cancel to where exp underflows; 8 ulp: the
    recurrence divides a difference of order 1/3 by z >= 1 twice, each time rounding 2 to 3 ulp."""
    getcontext().prec = 60
    z = -np.concatenate([[0.0], np.logspace(-18, 4, 89), [0.999999, 1.0, 1.000001]])
    found = [np.asarray(p) for p in phi_functions(jnp.asarray(z))]
    for i, value in enumerate(z):
        x = Decimal(float(value))
        exact = Decimal(0)
        for order in (1, 2, 3):
            if x == 0:
                exact = 1 / Decimal(factorial(order))
            elif abs(x) < Decimal("1e-3"):
                exact = sum(x**j / factorial(j + order) for j in range(25))
            else:
                exact = (x.exp() if order == 1 else exact) - 1 / Decimal(factorial(order - 1))
                exact = exact / x
            assert found[order - 1][i] == pytest.approx(float(exact), rel=8 * 2.3e-16), (
                value,
                order,
            )


SPLITTINGS = {n: c for n, c in INTEGRATORS.items() if issubclass(c, Splitting) and not c.growing}
T = jnp.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.5], [0.0, -0.5, 0.0]])
V = jnp.array([[0.0, 0.0, 0.7], [0.0, 0.0, -0.4], [-0.7, 0.4, 0.0]])


def turned(generator: jax.Array, angle, u: jax.Array) -> jax.Array:
    """exp(angle generator) u of an antisymmetric 3 x 3 matrix, by Rodrigues' formula."""
    size = float(np.linalg.norm(generator)) / 2**0.5
    once = generator @ u / size
    return (
        u + jnp.sin(angle * size) * once + (1 - jnp.cos(angle * size)) * (generator @ once) / size
    )


class Rotations:
    """u' = (T + cos(t) V) u; time runs with the drifts, and kicks freeze it."""

    background = None

    def drift(self, fields, duration):
        return {"u": turned(T, duration, fields["u"])}

    def kick(self, fields, time, duration):
        return {"u": turned(V, duration * jnp.cos(time), fields["u"])}, time


def solve(kind: type, steps: int, duration: float = 1.5, start=None, time: float = 0.0):
    u = {"u": jnp.array([1.0, 0.5, -0.2]) if start is None else start}
    dt = duration / steps

    @jax.jit
    def run(u):
        return jax.lax.fori_loop(
            0,
            steps,
            lambda i, u: kind().alternate(Rotations(), u, time + i * dt, jnp.float64(dt))[0],
            u,
        )

    return np.asarray(run(u)["u"])


@pytest.mark.parametrize("name", SPLITTINGS)
def test_order_of_split_steps(name: str):
    """Halving dt divides the error by 2^order: measured within 0.006, where errors lie above
    round-off."""
    kind = SPLITTINGS[name]
    exact = solve(SPLITTINGS["composition6"], 600)
    coarse = {2: 24, 4: 12, 6: 12}[kind.order]
    errors = [np.abs(solve(kind, n) - exact).max() for n in (coarse, 2 * coarse)]
    assert errors[1] > 1e-13
    assert abs(np.log2(errors[0] / errors[1]) - kind.order) < 0.02


@pytest.mark.parametrize("name", SPLITTINGS)
def test_a_step_back_undoes_a_step(name: str):
    kind = SPLITTINGS[name]
    there = solve(kind, 5)
    back = solve(kind, 5, -1.5, jnp.asarray(there), 1.5)
    assert np.abs(back - [1.0, 0.5, -0.2]).max() < 1e-13


def test_the_rate_is_that_of_the_last_kick():
    u = {"u": jnp.ones(3)}
    _, rate = INTEGRATORS["kick_drift_kick"]().alternate(
        Rotations(), u, jnp.float64(1), jnp.float64(0.5)
    )
    assert float(rate) == 1.5
