"""The integrator's order on a flow in which every mode interacts, and the budgets that it closes."""

import numpy as np
import pytest
from flow_support import flow, last, marched, measured, order, values

END = 0.5
# Peak at 3 on 16^3 points: modes up to 5, all of them excited, an eddy turnover time of about 1.
STEPS = (8, 16, 32)


def turbulence(viscosity: float, helicity: float = 0.0, **options):
    return flow(
        16,
        16,
        16,
        initial={"kind": "random", "peak": 3, "energy": 0.5, "seed": 3, "helicity": helicity},
        viscosity=viscosity,
        **options,
    )


@pytest.fixture(scope="module")
def viscous():
    return turbulence(0.02)


@pytest.fixture(scope="module")
def runs(viscous):
    """All states of the runs with 8, 16 and 32 steps."""
    return [list(marched(viscous, END / n, n)) for n in STEPS]


def test_rk4_is_of_order_4(viscous, runs):
    """The reference has a quarter of the smallest dt: its error is 1/256 of that one's, 0.006 of an order."""
    reference = values(viscous, last(marched(viscous, END / 128, 128)))
    errors = [abs(values(viscous, states[-1]) - reference).max() for states in runs]
    assert all(3.9 < found < 4.1 for found in order(errors)), errors


def test_spherical_dealiasing_keeps_the_order():
    """Both shifts are taken in every stage, so that no aliasing error is left to cancel between stages. The modes
    reach sqrt(2) times as far as those of two_thirds: (k u dt)^5 of the fastest is 2^2.5 times as large."""
    found = {}
    for dealias in ("two_thirds", "spherical"):
        simulation = turbulence(0.02, grid={"dealias": dealias})
        reference = values(simulation, last(marched(simulation, END / 128, 128)))
        found[dealias] = [
            abs(values(simulation, last(marched(simulation, END / n, n))) - reference).max() for n in STEPS
        ]
    assert all(3.9 < o < 4.1 for o in order(found["spherical"])), found
    assert found["spherical"][-1] < 2**2.5 * found["two_thirds"][-1]


def test_energy_changes_by_dissipation(viscous, runs):
    """E(T) - E(0) = -integral of the dissipation (by Simpson's rule, of order 4 too), to the integrator's order."""
    residuals = []
    for n, states in zip(STEPS, runs, strict=True):
        rows = [measured(viscous, state) for state in states]
        weights = np.array([1, *([4, 2] * (n // 2 - 1)), 4, 1]) * END / n / 3
        dissipated = weights @ [row["dissipation"] for row in rows]
        residuals.append(abs(rows[-1]["energy"] - rows[0]["energy"] + dissipated))
    assert all(found > 3.9 for found in order(residuals)), residuals
    assert residuals[-1] < 1e-8 < dissipated / 10


def test_an_inviscid_flow_keeps_energy_and_helicity():
    """Both are invariants of the truncated Euler equations; what is lost is the integrator's. The start has
    helicity of one sign: where it has some by chance alone, the loss may pass through zero between two step sizes."""
    simulation = turbulence(0.0, helicity=0.5)
    first = measured(simulation, simulation.state)
    assert first["helicity"] > 1
    lost = {"energy": [], "helicity": []}
    for n in STEPS:
        found = measured(simulation, last(marched(simulation, END / n, n)))
        for name, losses in lost.items():
            losses.append(abs(found[name] - first[name]))
    assert all(o > 3.9 for losses in lost.values() for o in order(losses)), lost


def test_single_precision_follows_double(viscous, runs):
    single = turbulence(0.02, precision="single")
    state = last(marched(single, END / 32, 32))
    assert state.fields["velocity"].dtype == np.complex64 and state.time.dtype == np.float64
    found, expected = values(single, state), values(viscous, runs[-1][-1])
    # 32 steps of 4 right-hand sides, each with some 10 roundings of 6e-8; a flow doubles errors in a turnover time.
    assert abs(found - expected).max() < 32 * 4 * 10 * 6e-8 * 2 * abs(expected).max()
    assert abs(found - expected).max() > 1e-9  # it was computed in single precision
    assert measured(single, state)["energy"] == pytest.approx(
        measured(viscous, runs[-1][-1])["energy"], rel=1e-5
    )


def test_divergence_stays_at_round_off(viscous, runs):
    found = measured(viscous, runs[-1][-1])
    # Each projection leaves k u / k^2 of round-off: max |div u| <= sum over modes, some 100 eps of max k |u|.
    assert found["max_divergence"] < 100 * np.finfo(float).eps * 5 * found["max_speed"]
