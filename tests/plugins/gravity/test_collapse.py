"""Collapse of cold gas, and of gas, waves and particles together, against analytic solutions."""

import math

import gravity_cases as cases
import jax
import numpy as np
import pytest
from gravity_cases import GAS, source, stepped
from numpy.testing import assert_allclose

from simulator.physics.models import State, outputs


def test_a_zeldovich_wave_before_crossing():
    """A grows from 0.02 to 0.2 in ln 10 / gamma. The fields' series in k fall off as 0.1^n, so that
    21 modes of 64 points hold 1e-15 of them; what is left, 4e-9, is rk4's error (gamma dt)^4 / 120
    of the rate."""
    wave = "initial={kind: zeldovich_wave, amplitude: 0.02}"
    run = cases.simulation(GAS, "model.sound_speed=0", "grid.shape=64,2,2", wave)
    growth = math.sqrt(4 * math.pi)
    end = stepped(run, run.state, math.log(10) / growth, 100)
    q = np.linspace(0, 2 * np.pi, 200001)
    x = q + 0.2 * np.sin(q)
    grid = np.arange(64) * 2 * np.pi / 64
    at = np.interp(grid, x, q)
    for _ in range(4):
        at -= (at + 0.2 * np.sin(at) - grid) / (1 + 0.2 * np.cos(at))
    density = np.asarray(run.field_program("density")(end))[:, 0, 0]
    speed = np.asarray(run.field_program("velocity")(end))[0, :, 0, 0]
    assert np.abs(density - 1 / (1 + 0.2 * np.cos(at))).max() < 1e-8
    assert np.abs(speed - growth * 0.2 * np.sin(at)).max() < 1e-8


LATTICE = """
def build(id):
    q = (jnp.stack([id // 16, id // 4 % 4, id % 4]) + 0.5) * jnp.pi / 8
    way = jnp.zeros_like(q).at[0].set(-SIZE * jnp.sin(q[0]))
    return {"position": q + way, "velocity": GAMMA * way, "mass": RHO * (jnp.pi / 8) ** 3 + 0 * q[0]}
"""


@pytest.mark.smoke
def test_gas_waves_and_particles_collapse_together():
    """The growing mode of delta'' = -(A - 4 pi G rho_j) delta, A = diag(k^2 c^2, (hbar k^2 / 2m)^2,
    0), keeps its rate and the ratio of its parts to 1e-3."""
    g = 0.05
    sound = 1.0
    hbar = 1.7
    rho = (0.6, 0.5, 0.7)
    size = 1e-5
    matrix = np.diag([sound**2, (hbar / 2) ** 2, 0.0]) - 4 * math.pi * g * np.array([rho] * 3)
    values, vectors = (part.real for part in np.linalg.eig(matrix))
    i = int(values.argmin())
    gamma = math.sqrt(-values[i])
    mode = vectors[:, i] / vectors[:, i].max()
    d = size * mode
    gas = (
        f'def build(x, y, z):\n    return {{"density": {rho[0]} * (1 + {d[0]} * jnp.cos(x)) + 0 * y + 0 * z, '
        f'"velocity": [-{gamma * d[0]} * jnp.sin(x) + 0 * y + 0 * z, 0 * x, 0 * x]}}\n'
    )
    waves = (
        f'def build(x, y, z):\n    return {{"psi": jnp.sqrt({rho[1]} * (1 + {d[1]} * jnp.cos(x))) '
        f"* jnp.exp(1j * {gamma * d[1] / hbar} * jnp.cos(x)) + 0 * y + 0 * z}}\n"
    )
    dark = (
        LATTICE.replace("SIZE", str(d[2])).replace("GAMMA", str(gamma)).replace("RHO", str(rho[2]))
    )
    run = cases.simulation(
        f"""\
model:
  kind: composite
  gravitational_constant: {g}
  components:
    - {{kind: self_gravitating_gas, sound_speed: {sound}}}
    - {{kind: schrodinger_poisson, hbar_over_m: {hbar}}}
    - {{kind: particles, name: dark, count: 256, assignment: pcs, softening: 0}}
grid: {{shape: [16, 4, 4], box: [2*pi, pi/2, pi/2]}}
initial:
  kind: composite
  components:
    gas: {{kind: python, path: {source(gas)}, function: build}}
    waves: {{kind: python, path: {source(waves)}, function: build}}
    dark: {{kind: python, path: {source(dark)}, function: build}}
time: {{stop: 1.0, dt: 0.01}}
"""
    )
    state = run.state
    found = []
    layout = run.model.transform.layout
    first = (layout.integers("x") == 1) & (layout.integers("y") == 0) & (layout.integers("z") == 0)

    @jax.jit
    def waves_of(state: State):
        modes = run.model.density_modes(run.model.densities(outputs.contents(run.model, state))[0])
        return {name: jax.numpy.where(first, f, 0).sum().real for name, f in modes.items()}

    for _ in range(2):
        sizes = waves_of(state)
        found.append(np.array([float(sizes[name]) for name in run.model.parts]) / rho)
        state = stepped(run, state, 2 / gamma, round(2 / gamma / 0.01))
    assert_allclose(np.log(found[1] / found[0]) / 2, 1, rtol=0, atol=1e-3)
    assert_allclose(found[1] / found[1][0], mode / mode[0], rtol=1e-3)
