"""Waves in self-gravitating matter against their dispersion relations; see `simulator.check.jeans` for more."""

import math

import gravity_cases as cases
import jax
import numpy as np
import pytest
from gravity_cases import GAS, WAVE, coefficient


def amplitudes(run, name: str, mode, dt: float, steps: int) -> np.ndarray:
    """The coefficient of a density wave after each step, relative to the mean."""
    step = jax.jit(run.step)
    state, found = run.state, []
    density = jax.jit(
        lambda s: run.model.real.forward(run.values("density")(s)) if name == "psi" else s.fields[name]
    )
    layout = run.model.real.layout if name == "psi" else run.transform.layout
    here = np.ones(layout.shape, bool)
    for axis, number in zip("xyz", mode, strict=True):
        here &= np.broadcast_to(np.asarray(layout.integers(axis)) == number, layout.shape)
    for _ in range(steps + 1):
        found.append(np.asarray(density(state))[here].item().real)
        state = step(state, dt)
    return np.array(found)


def frequency_squared(values: np.ndarray, dt: float) -> float:
    """omega^2 of a cos(omega t) + b sin(omega t), by least squares of f(t + dt) + f(t - dt) = 2 cos(omega dt) f(t);
    negative where it grows."""
    middle, sides = values[1:-1], values[:-2] + values[2:]
    c = float(middle @ sides / (2 * middle @ middle))
    return -((math.acosh(c) / dt) ** 2) if c > 1 else (math.acos(c) / dt) ** 2


@pytest.mark.smoke
@pytest.mark.parametrize(("mode", "gravity", "gamma"), [((1, 1, 1), 0.3, 5 / 3), ((0, 1, 1), 2.0, 1.4)])
def test_gas_at_16_cubed(mode, gravity: float, gamma: float) -> None:
    """omega^2 = k^2 c^2 - 4 pi G rho: nonlinear terms are A^2 = 1e-12, rk4's error of the rate (omega dt)^4 / 120 =
    2.1e-8 with omega dt = 0.04."""
    run = cases.simulation(
        GAS,
        f"model.gravitational_constant={gravity}",
        f"model.polytropic_exponent={gamma}",
        f"initial={{kind: jeans_wave, mode: {list(mode)}, amplitude: 1e-6}}",
    )
    exact = sum(m * m for m in mode) - 4 * math.pi * gravity
    dt = 0.02 / math.sqrt(abs(exact)) * 2
    found = frequency_squared(amplitudes(run, "density", mode, dt, 60), dt)
    assert np.sign(found) == np.sign(exact)
    assert abs(math.sqrt(found / exact) - 1) < 5e-8


def test_the_growing_mode_grows_from_the_start() -> None:
    """No decaying part: ln(delta) is straight from the first step on; rk4 leaves (gamma dt)^4 / 120 = 1.1e-8."""
    run = cases.simulation(GAS, "initial={kind: jeans_wave}")
    rate = math.sqrt(4 * math.pi - 1)
    values = amplitudes(run, "density", (1, 0, 0), 0.01, 40)
    assert np.abs(np.diff(np.log(values)) / 0.01 / rate - 1).max() < 3e-8


@pytest.mark.parametrize("gravity", [0.01, 1.0])
@pytest.mark.parametrize("interaction", [0.0, 0.5])
def test_waves_of_matter(gravity: float, interaction: float) -> None:
    """omega^2 = (hbar k^2 / 2m)^2 + k^2 g rho - 4 pi G rho: order 4 leaves 6e-9."""
    run = cases.simulation(
        WAVE,
        "time.integrator=composition4",
        f"model.gravitational_constant={gravity}",
        f"model.self_interaction={interaction}",
        "initial={kind: jeans_wave, amplitude: 1e-6}",
    )
    exact = 0.25 + interaction - 4 * math.pi * gravity
    dt = 0.05 / math.sqrt(abs(exact))
    found = frequency_squared(amplitudes(run, "psi", (1, 0, 0), dt, 60), dt)
    assert np.sign(found) == np.sign(exact)
    assert abs(math.sqrt(found / exact) - 1) < 2e-8


def test_a_wave_beyond_the_grid_is_refused() -> None:
    from simulator.errors import UserError

    with pytest.raises(UserError, match=r"initial: mode: \(9, 0, 0\) is beyond"):
        _ = cases.simulation(GAS, "initial={kind: jeans_wave, mode: [9, 0, 0]}").state


def test_the_coefficient_of_the_wave() -> None:
    run = cases.simulation(GAS, "initial={kind: jeans_wave, amplitude: 0.2, mode: [0, 2, 1]}")
    assert abs(coefficient(run, run.state.fields["density"], (0, 2, 1)) - 0.1) < 1e-15
