"""The Taylor-Green vortex against published numbers."""

from itertools import islice

import numpy as np
import pytest
from flow_support import flow, last, marched, measured

VORTEX = {"kind": "taylor_green"}
RE_1600 = 6.25e-4  # viscosity

# t, kinetic energy, enstrophy at Re = 1600 by a spectral method on 512^3 points: van Rees, Leonard, Pullin &
# Koumoutsakos, J. Comput. Phys. 230, 2794 (2011), the data of the high-order CFD workshops' case C3.5.
SPECTRAL_512 = (
    (0.5, 0.124763794961, 0.384195461625),
    (1.0, 0.124515267367, 0.415054960369),
    (1.5, 0.124239364141, 0.472944905691),
    (2.0, 0.12391676584, 0.566047789484),
    (2.5, 0.123522320851, 0.704712262622),
    (3.0, 0.123023878593, 0.901208116699),
    (4.0, 0.121508194351, 1.65296400285),
    (5.0, 0.118435751357, 3.30169878562),
)


@pytest.mark.smoke
def test_the_first_tenth_of_a_time_unit():
    """32^3, dt = 0.01, t = 0.1. The numbers are given to 12 decimals; the 512^3 run has them too."""
    simulation = flow(32, 32, 32, initial=VORTEX, viscosity=RE_1600)
    found = measured(simulation, last(marched(simulation, 0.01, 10)))
    # Half a unit in the last digit given. RK4's error is far smaller: 2e-13 for dt = 0.008 below.
    assert found["kinetic_energy"] == pytest.approx(0.124953117517, rel=0, abs=5.01e-13)
    assert found["enstrophy"] == pytest.approx(0.375249931114, rel=0, abs=5.01e-13)


# Enstrophy of the inviscid vortex over its first value, in powers of t^2.
SERIES = (1, 5 / 48, 25 / 3168, -52439 / 141250560, 8.13976e-5, -1.28482e-5, 1.65019e-6)


@pytest.fixture(scope="module")
def inviscid():
    return flow(32, 32, 32, initial=VORTEX)


@pytest.mark.parametrize("time", [0.25, 0.5, 0.75])
def test_the_inviscid_series(inviscid, time):
    fine, coarse = (
        measured(inviscid, last(marched(inviscid, time / n, n)))["enstrophy"] / 0.375 for n in (32, 16)
    )
    series = sum(c * time ** (2 * n) for n, c in enumerate(SERIES))
    # The coefficients alternate and shrink by 6 to 8 from one to the next: the first left out is below 3e-7.
    # The last three are given to 6 digits. Of an error of order 4, dt and 2 dt differ by 15 times that of dt.
    # Modes up to 10 hold all of it: those of order t^n fall as 1 / n!.
    left_out = 3e-7 * time**14
    rounded = 5e-11 * time**8
    integrator = 1.5 * abs(fine - coarse) / 15
    assert abs(fine - series) < left_out + rounded + integrator + 1e-14
    assert integrator < 1e-9  # so that the bound says something


def test_an_inviscid_flow_keeps_its_energy(inviscid):
    found = measured(inviscid, last(marched(inviscid, 1 / 32, 16)))
    # Truncation conserves energy; RK4 loses some at order dt^5 per unit of time: with omega about 3 for the
    # modes that matter, (omega dt)^5 omega / 144 = 3e-7 of that in the small scales, which hold 1e-4 of it.
    assert found["energy"] == pytest.approx(0.125, rel=1e-10)
    assert found["dissipation"] == 0


def test_reynolds_1600_to_t_1():
    """64^3 resolves the flow to t = 1: modes beyond 21 are below round-off of the numbers given."""
    simulation = flow(64, 64, 64, initial=VORTEX, viscosity=RE_1600, count=2)
    states = marched(simulation, 0.025, 40)
    for time, energy, enstrophy in SPECTRAL_512[:2]:
        found = measured(simulation, list(islice(states, 20 if time > 0.5 else 21))[-1])
        # RK4 at dt = 0.025: 16 times the error at dt = 1/32 of the inviscid series above at most, and the
        # reference's own dt is not known.
        assert found["kinetic_energy"] == pytest.approx(energy, rel=1e-9)
        assert found["enstrophy"] == pytest.approx(enstrophy, rel=1e-7)
        assert found["dissipation"] == pytest.approx(2 * RE_1600 * found["enstrophy"], rel=1e-13)


@pytest.mark.slow
def test_reynolds_1600_to_t_5():
    """128^3: the cascade reaches the truncation at t = 4 to 5, so 0.014 % in energy and 0.81 % in enstrophy."""
    simulation = flow(128, 128, 128, initial=VORTEX, viscosity=RE_1600, count=2, precision="single")
    states = marched(simulation, 0.02, 250)
    before = 0.0
    for time, energy, enstrophy in SPECTRAL_512:
        steps = round((time - before) / 0.02) + (before == 0)
        state, before = list(islice(states, steps))[-1], time
        found = measured(simulation, state)
        assert float(state.time) == pytest.approx(time, rel=1e-12)
        assert found["kinetic_energy"] == pytest.approx(energy, rel=2e-4)
        assert found["enstrophy"] == pytest.approx(enstrophy, rel=2e-4 if time < 3.5 else 1e-2)


def test_symmetry_is_kept():
    """The vortex stays what it is under x -> -x and under x <-> y with z -> z + pi: no direction is preferred."""
    simulation = flow(32, 32, 32, initial=VORTEX, viscosity=RE_1600, count=2)
    simulation.state = last(marched(simulation, 0.05, 20))
    u, v, w = np.asarray(simulation.fields["velocity"])
    mirrored = np.roll(u[::-1], 1, 0)
    # Sums in another order: round-off of each of 20 x 4 right-hand sides, gathered like a random walk or worse.
    assert abs(u + mirrored).max() < 1e-12
    assert abs(u - np.roll(v.transpose(1, 0, 2), 16, 2)).max() < 1e-12
    assert abs(w).max() > 0.05  # the third component has grown by the pressure alone
