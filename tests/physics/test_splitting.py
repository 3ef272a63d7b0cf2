"""Split-step integrators on an equation that is two rotations: orders, time reversal, their coefficients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simulator.physics.stepping import INTEGRATORS
from simulator.physics.stepping.splitting import Splitting

SPLITTINGS = {n: c for n, c in INTEGRATORS.items() if issubclass(c, Splitting)}
T = jnp.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.5], [0.0, -0.5, 0.0]])
V = jnp.array([[0.0, 0.0, 0.7], [0.0, 0.0, -0.4], [-0.7, 0.4, 0.0]])


def turned(generator: jax.Array, angle, u: jax.Array) -> jax.Array:
    """exp(angle generator) u of an antisymmetric 3 x 3 matrix, by Rodrigues' formula."""
    size = float(np.linalg.norm(generator)) / 2**0.5
    once = generator @ u / size
    return u + jnp.sin(angle * size) * once + (1 - jnp.cos(angle * size)) * (generator @ once) / size


class Rotations:
    """u' = (T + cos(t) V) u; time runs with the drifts, and kicks freeze it."""

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
            0, steps, lambda i, u: kind().alternate(Rotations(), u, time + i * dt, jnp.float64(dt))[0], u
        )

    return np.asarray(run(u)["u"])


@pytest.mark.parametrize("name", SPLITTINGS)
def test_order(name: str) -> None:
    """Halving dt divides the error by 2^order: measured within 0.006, where errors lie above round-off."""
    kind = SPLITTINGS[name]
    exact = solve(SPLITTINGS["composition6"], 600)
    coarse = {2: 24, 4: 12, 6: 12}[kind.order]
    errors = [np.abs(solve(kind, n) - exact).max() for n in (coarse, 2 * coarse)]
    assert errors[1] > 1e-13
    assert abs(np.log2(errors[0] / errors[1]) - kind.order) < 0.02


@pytest.mark.parametrize("name", SPLITTINGS)
def test_a_step_back_undoes_a_step(name: str) -> None:
    kind = SPLITTINGS[name]
    there = solve(kind, 5)
    back = solve(kind, 5, -1.5, jnp.asarray(there), 1.5)
    assert np.abs(back - [1.0, 0.5, -0.2]).max() < 1e-13


@pytest.mark.parametrize("name", SPLITTINGS)
def test_coefficients_are_consistent_and_symmetric(name: str) -> None:
    kind = SPLITTINGS[name]
    assert len(kind.drifts) == len(kind.kicks) + 1
    assert abs(sum(kind.drifts) - 1) < 1e-15 and abs(sum(kind.kicks) - 1) < 1e-15
    assert np.allclose(kind.drifts, kind.drifts[::-1], atol=1e-16)
    assert np.allclose(kind.kicks, kind.kicks[::-1], atol=1e-16)


def test_the_rate_is_that_of_the_last_kick() -> None:
    u = {"u": jnp.ones(3)}
    _, rate = INTEGRATORS["kick_drift_kick"]().alternate(Rotations(), u, jnp.float64(1), jnp.float64(0.5))
    assert float(rate) == 1.5
