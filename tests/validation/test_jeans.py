"""Waves in self-gravitating matter against their dispersion relations, beside those that `simulator validate` has."""

import math

import gravity_cases as cases
import numpy as np
import pytest
from gravity_cases import GAS, coefficient

from simulator.check.case import Result
from simulator.check.waves import density_wave


def check(found: Result) -> None:
    """5e-8 of the rate; a growing mode has no decaying part: ln(delta) is straight from the first step on."""
    (rate,), (curve,) = found.checks, found.curves
    assert rate.error < 5e-8, rate
    if rate.quantity == "growth rate":
        assert np.abs(np.diff(np.log(curve.y)) / curve.x[1] / rate.expected - 1).max() < 1e-6


@pytest.mark.smoke
@pytest.mark.parametrize(("mode", "gravity", "gamma"), [((1, 1, 1), 0.1, 5 / 3), ((0, 1, 1), 2.0, 1.4)])
def test_gas_at_16_cubed(mode, gravity: float, gamma: float) -> None:
    """omega^2 = k^2 c^2 - 4 pi G rho: nonlinear terms are A^2 = 1e-12, rk4's error of the rate (omega dt)^4 / 120 =
    2.1e-8 with omega dt = 0.04."""
    gas = {"kind": "self_gravitating_gas", "sound_speed": 1.0, "polytropic_exponent": gamma}
    squared = sum(m * m for m in mode) - 4 * math.pi * gravity
    check(density_wave({**gas, "gravitational_constant": gravity}, squared, "wave", "", mode))


@pytest.mark.parametrize(("gravity", "interaction"), [(0.01, 0.5), (1.0, 0.0), (1.0, 0.5)])
def test_waves_of_matter(gravity: float, interaction: float) -> None:
    """omega^2 = (hbar k^2 / 2m)^2 + k^2 g rho - 4 pi G rho: order 4 leaves 6e-9."""
    wave = {"kind": "schrodinger_poisson", "gravitational_constant": gravity, "self_interaction": interaction}
    squared = 0.25 + interaction - 4 * math.pi * gravity
    check(density_wave(wave, squared, "wave", "", integrator="composition4"))


def test_the_coefficient_of_the_wave() -> None:
    run = cases.simulation(GAS, "initial={kind: jeans_wave, amplitude: 0.2, mode: [0, 2, 1]}")
    assert abs(coefficient(run, run.state.fields["density"], (0, 2, 1)) - 0.1) < 1e-15
