"""Tracers and inertial particles against exact solutions, through the integrators that advance the fields."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simulator.physics.particles.species import Inertial, InertialSettings, Tracers, TracerSettings
from simulator.physics.stepping import INTEGRATORS

ROTATION = 0.7


class Still:
    """A fluid at rest."""

    def __call__(self, names, position):
        return {name: jnp.zeros_like(position) for name in names}


class SolidRotation:
    """u = Omega x r about z; Du/Dt = -Omega^2 r."""

    def __call__(self, names, position):
        x, y, z = position
        values = {
            "velocity": ROTATION * jnp.stack([-y, x, 0 * z]),
            "acceleration": -(ROTATION**2) * jnp.stack([x, y, 0 * z]),
        }
        return {name: values[name] for name in names}


def integrated(species, fluid, start, duration, steps, integrator="rk4"):
    """The records (3, 1) after `steps` steps."""
    method = INTEGRATORS[integrator]()
    memory = species.memory(jnp.float64(2.0))
    linear = {name: species.linear(memory).get(name, jnp.zeros(())) for name in species.advanced}
    dt = jnp.float64(duration / steps)

    def step(_, records):
        def rates(records, time, stage):
            return species.rates(records, fluid, memory)

        return method.step(records, jnp.float64(0), dt, rates(records, 0, 0), rates, linear)

    found = jax.jit(lambda r: jax.lax.fori_loop(0, steps, step, r))(start)
    return {name: np.asarray(value)[:, 0] for name, value in found.items()}


def at(x, v=None):
    start = {"position": jnp.array(x, float)[:, None]}
    return start if v is None else {**start, "velocity": jnp.array(v, float)[:, None]}


def inertial(**keys):
    return Inertial(InertialSettings(name="particles", count=1, **keys))


def test_a_particle_relaxes_to_rest():
    """v = v_0 exp(-t / tau), x = v_0 tau (1 - exp(-t / tau)): the drag is solved exactly."""
    tau, t, v = 0.4, 1.0, np.array([1.0, -2.0, 0.5])
    found = integrated(inertial(relaxation_time=tau), Still(), at([0, 0, 0], v), t, 200)
    np.testing.assert_allclose(found["velocity"], v * np.exp(-t / tau), rtol=0, atol=1e-14)
    np.testing.assert_allclose(found["position"], v * tau * (1 - np.exp(-t / tau)), rtol=0, atol=1e-8)


def test_a_particle_settles():
    """v = tau (1 - beta) g (1 - exp(-t / tau)), with beta = 3 / (2 rho + 1)."""
    tau, t, ratio, g = 0.5, 1.0, 4.0, np.array([0.0, 0.3, -2.0])
    species = inertial(relaxation_time=tau, density_ratio=ratio, gravity=tuple(g))
    found = integrated(species, Still(), at([0, 0, 0], [0, 0, 0]), t, 200)
    terminal = tau * (1 - 3 / (2 * ratio + 1)) * g
    relaxed = 1 - np.exp(-t / tau)
    np.testing.assert_allclose(found["velocity"], terminal * relaxed, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found["position"], terminal * (t - tau * relaxed), rtol=0, atol=1e-8)


@pytest.mark.parametrize("ratio", [None, 0.3, 5.0])
def test_a_particle_in_solid_rotation(ratio):
    """With s = x + i y: s'' = (i Omega s - s') / tau - beta Omega^2 s, a linear equation with two exponents."""
    tau, t = 0.6, 2.0
    species = inertial(relaxation_time=tau, density_ratio=ratio)
    found = integrated(species, SolidRotation(), at([1, 0, 0], [0, 0.2, 0.1]), t, 1000)
    roots = np.roots([1, 1 / tau, species.beta * ROTATION**2 - 1j * ROTATION / tau])
    weights = np.linalg.solve([[1, 1], roots], [1.0, 0.2j])
    s = (weights * np.exp(roots * t)).sum()
    v = (weights * roots * np.exp(roots * t)).sum()
    np.testing.assert_allclose(found["position"][:2], [s.real, s.imag], rtol=0, atol=1e-8)
    np.testing.assert_allclose(found["velocity"][:2], [v.real, v.imag], rtol=0, atol=1e-8)


@pytest.mark.parametrize(("integrator", "order"), [("rk2", 2), ("rk3", 3), ("rk4", 4), ("etdrk4", 4)])
def test_every_integrator_moves_tracers_at_its_order(integrator, order):
    tracers, t = Tracers(TracerSettings(name="tracers", count=1)), 3.0
    exact = np.array([np.cos(ROTATION * t), np.sin(ROTATION * t), 0])
    errors = [
        abs(integrated(tracers, SolidRotation(), at([1, 0, 0]), t, n, integrator)["position"] - exact).max()
        for n in (10, 20)
    ]
    assert abs(np.log2(errors[0] / errors[1]) - order) < 0.2


def test_the_stokes_number_is_in_units_of_the_kolmogorov_time():
    """tau = St / rms vorticity, here 2."""
    species = inertial(stokes_number=0.5)
    assert float(species.relaxation_time(species.memory(jnp.float64(2.0)))) == 0.25
