"""Waves and decays that are exact solutions of the nonlinear equations."""

import jax.numpy as jnp
import numpy as np

from simulator.spectral.operators import curl
from simulator.validation.case import Case, Check, Result, march, simulation, with_fields

INTEGERS = (1, -2, 1)
BOX = (2 * np.pi, 3.0, 4.0)


def _wave(sim, amplitude):
    """Coefficients of Re(a exp(i k . x)) for components a."""
    layout = sim.transform.layout
    x, y, z = (layout.integers(axis) for axis in "xyz")
    at = (x == INTEGERS[0]) & (y == INTEGERS[1]) & (z == INTEGERS[2])
    a = jnp.asarray(amplitude, complex) / 2
    return jnp.where(at, a[..., None, None, None], 0) + jnp.zeros(layout.shape)


def _growth(sim, name: str, state, dt: float, steps: int) -> complex:
    """sigma of a(t) = a(0) exp(sigma t) for the wave's largest component."""
    sim.state = state
    first = jnp.asarray(state.fields[name])
    last, _ = march(sim, dt, steps)
    layout = sim.transform.layout
    weights = jnp.where(layout.integers("z") > 0, jnp.conj(first), 0)
    ratio = (weights * last.fields[name]).sum() / (weights * first).sum()
    return complex(jnp.log(ratio)) / (dt * steps)


def inertial() -> Result:
    k = 2 * np.pi * np.array(INTEGERS) / np.array(BOX)
    size, rotation, nu = np.linalg.norm(k), np.array([0.4, -1.0, 2.0]), 0.003
    model = {"kind": "navier_stokes", "viscosity": nu, "rotation": rotation.tolist()}
    sim = simulation(model, {"kind": "abc"}, (10, 10, 12), grid={"box": BOX})
    a = np.cross(k, [1.0, 0.3, -0.2])
    state = with_fields(sim, velocity=_wave(sim, a - 1j * np.cross(a, k) / size))
    omega = 2 * rotation @ k / size
    sigma = _growth(sim, "velocity", state, float(0.05 / abs(omega)), 40)
    source = "Greenspan, The Theory of Rotating Fluids (1968), section 4.2"
    return Result([Check("frequency", float(omega), sigma.imag, 1e-6, source)])


def alfven() -> Result:
    mean = np.array([0.5, -0.8, 1.1])
    model = {"kind": "mhd", "viscosity": 0.0, "resistivity": 0.0}
    sim = simulation(model, {"kind": "random", "peak": 2, "seed": 4}, (12, 12, 12))
    u, layout = sim.state.fields["velocity"], sim.transform.layout
    b = u + jnp.where(layout.k_squared() == 0, mean.reshape(3, 1, 1, 1), 0)
    sim.state = with_fields(sim, magnetic=b)
    last, _ = march(sim, 0.01, 40)
    kx, ky, kz = layout.wavenumbers()
    turn = kx * mean[0] + ky * mean[1] + kz * mean[2]
    # d arg u(k) / dt = k . B: the speed is the least-squares slope over all modes.
    phase = jnp.angle(last.fields["velocity"] * jnp.conj(u) * jnp.exp(-1j * turn * 0.4))
    weight = layout.weight() * abs(u) ** 2 * turn
    speed = 1 + float((weight * phase).sum() / (weight * turn * 0.4).sum())
    source = "Biskamp, Magnetohydrodynamic Turbulence (2003), section 2.3"
    return Result([Check("speed / Alfven speed", 1.0, speed, 1e-6, source)])


def _stratified(square: float):
    k = 2 * np.pi * np.array(INTEGERS) / np.array(BOX)
    model = {"kind": "boussinesq", "viscosity": 0.0, "diffusivity": 0.0, "stratification": square}
    sim = simulation(model, {"kind": "abc"}, (10, 10, 12), grid={"box": BOX})
    size2, e = k @ k, np.array([0.0, 0.0, 1.0])
    upward = e - k * (k @ e) / size2
    rate = np.emath.sqrt(-square * (upward @ upward))
    # u = upward, b = -N^2 (u . e) / sigma
    state = with_fields(sim, velocity=_wave(sim, upward), buoyancy=_wave(sim, -square * (upward @ e) / rate))
    return complex(rate), _growth(sim, "buoyancy", state, float(0.05 / abs(rate)), 40)


def internal() -> Result:
    rate, sigma = _stratified(4.0)
    source = "omega = N k_h / k; Davidson, Turbulence in Rotating ... Fluids (2013), section 4.1"
    return Result([Check("frequency", rate.imag, sigma.imag, 1e-6, source)])


def convection() -> Result:
    rate, sigma = _stratified(-2.0)
    return Result([Check("growth rate", rate.real, sigma.real, 1e-6, "sigma = sqrt(-N^2) k_h / k")])


def abc_decay() -> Result:
    nu, stop = 0.02, 1.0
    sim = simulation({"kind": "navier_stokes", "viscosity": nu}, {"kind": "abc"}, (16, 16, 16))
    _, rows = march(sim, 0.05, round(stop / 0.05))
    expected = 1.5 * np.exp(-2 * nu * stop)
    omega = curl(sim.transform.layout, sim.state.fields["velocity"])
    beltrami = float(abs(omega - sim.state.fields["velocity"]).max())
    source = "exp(-2 nu t): a Beltrami flow, Dombre et al., J. Fluid Mech. 167, 353 (1986)"
    return Result(
        [
            Check("energy, t = 1", expected, rows["energy"][-1], 1e-13, source),
            Check("curl u - u", 0.0, beltrami, 1e-14, source, absolute=True),
        ]
    )


CASES = (
    Case("abc_decay", "ABC flow: exact viscous decay", abc_decay),
    Case("inertial_wave", "inertial wave under rotation about a tilted axis", inertial),
    Case("alfven_wave", "turbulent Alfven wave along a tilted mean field", alfven),
    Case("internal_wave", "internal gravity wave", internal),
    Case("convection", "growth of a mode in unstable stratification", convection),
)
