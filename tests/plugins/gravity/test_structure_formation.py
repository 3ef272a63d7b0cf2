"""Collapse of particles, and growth of linear structure, against analytic solutions."""

import math

import gravity_cases as cases
import jax.numpy as jnp
import numpy as np
import pytest
from gravity_cases import MATTER, by_id, stepped
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import solve_ivp
from scipy.special import hyp2f1
from tiers import slow

from simulator.plugins.gravity.cosmology import Background, CosmologySettings, expansion
from simulator.plugins.gravity.matter_observables import continued

COSMOLOGY = "{start: 0.02, matter: 1.0, hubble: 1.0}"
EXPANDING = f"model.cosmology={COSMOLOGY}"


def test_the_background():
    """Einstein-de Sitter: tau = 2 / H0 (a_0^-1/2 - a^-1/2), D = a. With dark energy of constant w,
    D is a hypergeometric function; with radiation D = a + 2/3 a_eq (Meszaros 1974)."""
    flat = Background(CosmologySettings(start=0.02, matter=1.0, hubble=2.0))
    for a in (0.02, 0.1, 0.5, 1.0, 3.0):
        tau = 2 / 2.0 * (0.02**-0.5 - a**-0.5)
        assert abs(flat.time_of(a) - tau) < 1e-11
        assert abs(float(flat.scale_factor(tau)) / a - 1) < 1e-10
        assert abs(flat.growth(a) / a - 1) < 1e-12
    for a in (0.05, 1.0, 3.0):
        dark = Background(CosmologySettings(start=0.02, matter=0.3, dark_energy={"w0": -0.8}))
        exact = a * hyp2f1(1 / 2.4, 1.8 / 1.6, 1 + 5 / 4.8, -0.7 / 0.3 * a**2.4)
        assert dark.growth(a) == pytest.approx(exact, rel=1e-8)
    # Dark energy of w(a) = w0 + wa (1 - a) dilutes as d ln rho / d ln a = -3 (1 + w).
    varying = CosmologySettings(start=0.02, matter=0.3, dark_energy={"w0": -0.9, "wa": 0.2})
    for a in (0.1, 1.0, 3.0):
        dense, thin = (expansion(varying, x) - 0.3 / x**3 for x in (a * 0.9999, a * 1.0001))
        slope = np.log(thin / dense) / np.log(1.0001 / 0.9999)
        assert abs(slope + 3 * (1 - 0.9 + 0.2 * (1 - a))) < 1e-7
    early = Background(CosmologySettings(start=0.02, matter=0.999, radiation=0.001))
    assert abs(early.growth(0.1) / (0.1 + 2 / 3 * 0.001 / 0.999) - 1) < 1e-8
    assert abs(early.grown(3.0).second / (-3 / 7 * early.growth(3.0) ** 2) - 1) < 1e-3
    assert abs(flat.grown(0.4).second / (-3 / 7 * 0.4**2) - 1) < 1e-8
    ours = Background(CosmologySettings(start=0.02, matter=0.3))
    for a in (0.05, 0.7, 2.0):
        assert abs(float(ours.scale_factor(ours.time_of(a))) / a - 1) < 1e-10
        u, step = np.linspace(math.log(0.02), math.log(a), 100_000, endpoint=False, retstep=True)
        tau = step * (np.exp(-2 * u - step) / ours.hubble(np.exp(u + step / 2))).sum()
        assert abs(tau / ours.time_of(a) - 1) < 1e-8


def test_both_growth_factors_against_an_independent_integration():
    """D'' = 3/2 Omega_m D - (2 - 3/2 Omega_m) D' in ln a, and D_2 with the source D_2 - D^2, from a
    = 1e-4, where dark energy is 2e-12 of the density."""

    def slopes(u: float, y: np.ndarray) -> tuple[float, ...]:
        matter = 0.3 / (0.3 + 0.7 * math.exp(3 * u))
        first, speed, second, second_speed = y
        drag = 2 - 1.5 * matter
        pull = 1.5 * matter
        return (
            speed,
            pull * first - drag * speed,
            second_speed,
            pull * (second - first**2) - drag * second_speed,
        )

    a = 1e-4
    span = np.log([1e-4, 3.0])
    start = a, a, -3 / 7 * a**2, -6 / 7 * a**2
    found = solve_ivp(
        slopes, span, start, method="DOP853", rtol=1e-12, atol=1e-16, dense_output=True
    ).sol
    ours = Background(CosmologySettings(start=0.02, matter=0.3))
    for a in (0.05, 0.5, 1.0, 3.0):
        first, _, second, _ = found(math.log(a))
        assert abs(ours.grown(a).first / first - 1) < 1e-10
        assert abs(ours.grown(a).second / second - 1) < 1e-10


def test_the_work_of_the_expansion_is_integrated_as_a_parabola():
    """The integral of s = 3 a^2 - 2 a + 1 is a^3 - a^2 + a; the first step, which has two values of
    s, follows the trapezoid rule; kicks at one time change nothing."""

    def slope(a: float) -> float:
        return 3 * a**2 - 2 * a + 1

    def whole(a: float) -> float:
        return a**3 - a**2 + a

    a0, a1, a2 = 0.2, 0.25, 0.4
    carried = jnp.array([whole(a1), a1, slope(a1), a0, slope(a0)])
    moved = continued(carried, jnp.float64(a2), jnp.float64(slope(a2)))
    assert_allclose(moved, [whole(a2), a2, slope(a2), a1, slope(a1)], rtol=1e-14)
    first = jnp.array([0.0, a1, slope(a1), a1, slope(a1)])
    begun = continued(first, jnp.float64(a2), jnp.float64(slope(a2)))
    assert begun[0] == pytest.approx((a2 - a1) * (slope(a1) + slope(a2)) / 2, rel=1e-14)
    again = continued(moved, jnp.float64(a2 * (1 + 1e-12)), jnp.float64(7))
    assert_array_equal(again, moved)


PANCAKE = """\
model:
  kind: composite
  gravitational_constant: GRAVITY
  cosmology: {start: 0.1, matter: 1.0, hubble: 1.0}
  components: [{kind: particles, name: dark, count: COUNT, assignment: pcs, softening: 0}]
grid: {shape: [32, SIDE, SIDE], box: [1, WIDTH, WIDTH]}
initial: {kind: composite, components: {dark: {kind: zeldovich_wave, amplitude: 0.1}}}
time: {stop: 3.0, dt: 0.1}
""".replace("GRAVITY", str(3 / (8 * math.pi)))


@pytest.mark.parametrize("side", [4, slow(32)])
def test_a_pancake_before_it_is_folded(side: int):
    """In an expanding box without a cosmological constant the displacements grow like a: from 0.1
    to 0.8 of those at which sheets cross. Positions to 1e-3 of the box at 32 particles a side;
    steps of equal length are of order 2."""
    text = PANCAKE.replace("COUNT", str(32 * side**2)).replace("SIDE", str(side))
    run = cases.simulation(text.replace("WIDTH", str(side / 32)))
    background = Background(CosmologySettings(start=0.1, matter=1.0, hubble=1.0))
    duration = background.time_of(0.8)
    places = []
    for steps in (16, 32, 128):
        position = by_id(stepped(run, run.state, duration, steps).particles["dark"])["position"]
        x = position[0].reshape(32, side, side)
        assert np.ptp(x, axis=(1, 2)).max() < 1e-10
        places.append(x[:, 0, 0])
    q = (np.arange(32) + 0.5) / 32
    away = np.abs(places[-1] - q - 0.8 * np.sin(2 * np.pi * q) / (2 * np.pi))
    assert np.minimum(away, 1 - away).max() < 1e-3
    coarse, fine = (np.abs(p - places[-1]).max() for p in places[:2])
    assert coarse / fine == pytest.approx(4, rel=0.15)


def test_times_by_redshift_and_by_scale_factor():
    asked = "time.stop={redshift: 0}", "output.spectra.every={scale_factor: [1, 0.1]}"
    run = cases.simulation(MATTER, EXPANDING.replace("cosmology", "background"), *asked)
    early, today = map(run.model.background.time_of, (0.1, 1.0))
    assert (run.config.time.stop, run.config.output.spectra.every) == (today, (early, today))
    later = cases.simulation(MATTER, EXPANDING, "model.cosmology.start={redshift: 19}", *asked)
    assert later.config.model.cosmology.start == pytest.approx(1 / 20, rel=1e-15)
