"""Waves that a uniform shear flow turns, against integrated ordinary differential equations, and the
magneto-rotational instability against its dispersion relation.

A single wave exp(i k . x) is an exact solution at every amplitude: k . u = k . b = 0, so that its
nonlinear terms vanish. RK4 leaves an error of (omega dt)^5 / 120 a step, which is below 2e-9 of the
wave after the time 12 if omega < 1.5 and dt = 0.006. The wave is small, so that it is stable."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flow_support import EPSILON, compiled_step, flow
from scipy.integrate import solve_ivp

from simulator import Simulation
from simulator.physics.models import State

BOX = (1.0, 2.0, 3.0)
UNIT = 2 * np.pi / np.array(BOX)
MODE = (3, 1, 1)
"""k_x passes through zero at the time 6 / S; frames are exchanged every 2 / S."""
FIELD = np.array([0.0, 0.2, 0.3])
SMALL = 1e-4
STOP = 12.0
Mode = tuple[int, int, int]


def state_of(made: Simulation, mode: Mode, vectors: dict[str, Any], mean: Any = FIELD) -> State:
    """The state of a wave, with the mean field."""
    x, y, z = np.meshgrid(*(np.arange(n) / n for n in made.grid.shape), indexing="ij")
    phase = np.exp(2j * np.pi * (mode[0] * x + mode[1] * y + mode[2] * z))
    values = {n: 2 * np.multiply.outer(np.asarray(a), phase).real for n, a in vectors.items()}
    if "magnetic" in values:
        values["magnetic"] += np.asarray(mean)[:, None, None, None]
    return made.state_from(values)


def amplitudes(made: Simulation, state: State, mode: Mode) -> np.ndarray:
    """Those of the wave that began as `mode`, of all fields."""
    sheared = made.system.sheared
    assert sheared is not None
    m = mode[0] - int(sheared.left_behind(float(state.time))) * mode[1]
    layout = made.transform.layout
    numbers = zip("xyz", (m, *mode[1:]), strict=True)
    here = jnp.ones((1, 1, 1), bool)
    for axis, number in numbers:
        here = here & (layout.integers(axis) == number)
    fields = (state.fields[name] for name in made.model.fields)
    parts = [jnp.where(here, field, 0).sum((-3, -2, -1)) for field in fields]
    return np.concatenate([np.atleast_1d(part) for part in parts])


def rates(model: dict[str, Any], k0: np.ndarray, time: float, y: np.ndarray) -> np.ndarray:
    """d/dt of the amplitudes of a wave: of u, and of b or buoyancy."""
    shear = model["shear"]
    k = k0 - shear * time * np.array([k0[1], 0, 0])
    k2 = k @ k
    u, other = y[:3], y[3:]
    force = -2 * np.cross(model.get("rotation", [0, 0, 0]), u)
    change = np.zeros_like(other)
    if len(other) == 3:
        force = force + 1j * (k @ FIELD) * other
        change = 1j * (k @ FIELD) * u - model["resistivity"] * k2 * other
        change[1] += shear * other[0]
    elif len(other) == 1:
        up = np.array([1.0, 0.0, 0.0])
        force = force + other * up
        change = -model["stratification"] * (u @ up) - model["diffusivity"] * k2 * other
    force = force - np.array([0, shear * u[0], 0])
    # (k . u)' = 0 = k . u' + k' . u
    pressure = (k @ force - shear * k[1] * u[0]) / k2
    return np.concatenate([force - k * pressure - model["viscosity"] * k2 * u, change])


FLUID = {"kind": "navier_stokes", "viscosity": 1e-3, "shear": 1.0}
BOUSSINESQ = {"diffusivity": 2e-3, "stratification": 0.5, "gravity": [-1, 0, 0]}
CASES = {
    "fluid": FLUID,
    "rotating the other way": {**FLUID, "shear": -0.8, "rotation": [0, 0.4, 0.3]},
    "conductor": {**FLUID, "kind": "mhd", "resistivity": 2e-3, "rotation": [0, 0, 2 / 3]},
    "stratified": {**FLUID, "kind": "boussinesq", **BOUSSINESQ},
}


@pytest.mark.parametrize("case", CASES)
def test_a_wave_turns_through_k_x_zero(case):
    """Velocity, magnetic field and buoyancy, and the vorticity i k x u, before and after each exchange
    of frames."""
    model = CASES[case]
    made = flow(12, 8, 8, initial={"kind": "random", "energy": 1}, model=model, grid={"box": BOX})
    mode = (int(np.sign(model["shear"])) * MODE[0], *MODE[1:])
    k = UNIT * mode
    vectors = {"velocity": SMALL * np.cross(k, [1, 2, 0.5j]) / abs(k @ k) ** 0.5}
    if model["kind"] == "mhd":
        vectors["magnetic"] = 0.5 * SMALL * np.cross(k, [1j, 0.3, 1]) / abs(k @ k) ** 0.5
    if model["kind"] == "boussinesq":
        vectors["buoyancy"] = SMALL * (0.7 + 0.2j)
    first = np.concatenate([np.atleast_1d(v) for v in vectors.values()]).astype(complex)
    exact = solve_ivp(
        lambda t, y: rates(model, k, t, y),
        (0, STOP),
        first,
        "DOP853",
        rtol=1e-12,
        atol=1e-18,
        dense_output=True,
    )
    steps = 2000 if model["kind"] == "mhd" else 1000
    step = compiled_step(made)
    state = state_of(made, mode, vectors)
    for n in range(1, steps + 1):
        state = step(state, STOP / steps)
        if n % (steps // 10) == 0:
            time = float(state.time)
            found, wanted = amplitudes(made, state, mode), exact.sol(time)
            turned = k - model["shear"] * time * np.array([k[1], 0, 0])
            for a, b in (
                (found, wanted),
                (np.cross(turned, found[:3]), np.cross(turned, wanted[:3])),
            ):
                assert abs(a - b).max() < 1e-8 * abs(b).max(), time


OMEGA, ALFVEN = 1.0, 15**0.5 / 4
"""The fastest mode has k V_A = sqrt(15) / 4 Omega and grows at 3/4 Omega (Balbus & Hawley 1991)."""


@pytest.mark.parametrize("nu, eta", [(0.0, 0.0), (0.02, 0.05)])
def test_the_fastest_channel_mode(nu, eta):
    """The largest eigenvalue of the linear equations of u_x, u_y, b_x, b_y with k = e_z."""
    model = {"kind": "mhd", "viscosity": nu, "resistivity": eta}
    model |= {"rotation": [0, 0, OMEGA], "shear": -1.5 * OMEGA}
    made = flow(4, 4, 8, initial={"kind": "random", "energy": 1}, model=model)
    wave = 1j * ALFVEN
    matrix = np.array(
        [
            [-nu, 2 * OMEGA, wave, 0],
            [-0.5 * OMEGA, -nu, 0, wave],
            [wave, 0, -eta, 0],
            [0, wave, -1.5 * OMEGA, -eta],
        ]
    )
    values, vectors = np.linalg.eig(matrix)
    fastest = int(np.argmax(values.real))
    rate = values[fastest].real
    if not nu:
        assert rate == pytest.approx(0.75, abs=1e-12)
    mode = SMALL * vectors[:, fastest]
    start = {"velocity": [*mode[:2], 0], "magnetic": [*mode[2:], 0]}
    state = state_of(made, (0, 0, 1), start, [0, 0, ALFVEN])
    step = compiled_step(made)
    first = abs(amplitudes(made, state, (0, 0, 1)))
    for _ in range(200):
        state = step(state, 0.02)
    grown = abs(amplitudes(made, state, (0, 0, 1)))
    for i in (0, 1, 3, 4):
        assert np.log(grown[i] / first[i]) / 4 == pytest.approx(rate, abs=1e-6)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("rk2", "rk4")]


@pytest.mark.parametrize("integrator", [*SLOW, "rk3", "etdrk4"])
def test_damping_along_the_path_of_k_is_exact(integrator):
    """A wave of u_z with k_z = 0, whose other terms vanish, in steps of a tenth of the time between
    exchanges: exp(-int nu k(t)^2 + nu_3 k(t)^6 dt), to 40 steps of some 20 roundings of an exponent up to 5."""
    model = {**FLUID, "viscosity": 0.01, "hyperviscosity": {"order": 3, "coefficient": 1e-6}}
    model["scalars"] = [{"name": "dye", "diffusivity": 0.02}]
    initial = {"kind": "random", "energy": 1}
    time = {"stop": 9.0, "dt": 0.2, "integrator": integrator}
    made = flow(14, 6, 4, initial=initial, model=model, grid={"box": BOX}, time=time)
    mode = (2, 1, 0)
    state = state_of(made, mode, {"velocity": [0, 0, SMALL], "dye": SMALL})
    step = compiled_step(made)
    for _ in range(40):
        state = step(state, 0.2)
    k = UNIT * mode
    turning = np.polynomial.Polynomial([k[0], -k[1]])
    k2 = turning**2 + k[1] ** 2
    damped = [(p.integ())(8.0) for p in (0.01 * k2 + 1e-6 * k2**3, 0.02 * k2)]
    wanted = SMALL * np.exp(-np.array(damped))
    found = amplitudes(made, state, mode)
    assert (abs(found[[2, 3]] / wanted - 1) < 40 * 20 * 5 * EPSILON).all()
