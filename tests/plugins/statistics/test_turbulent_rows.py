"""Transfers, structure functions and histograms of random flows, against sums over modes and values."""

import numpy as np
import pytest
from flow_support import last, marched, measured, values
from measuring import MODELS, moved, random_flow, row

from simulator.archive.series_recorder import measured_series
from simulator.plugins.statistics.structure_functions import default_separations
from simulator.spectral import Grid

SEPARATIONS = (0.31, 0.5, 1.5)
OUTPUT = {
    "transfer": {},
    "histograms": {"bins": 60, "range": 6.0},
    "structure_functions": {"separations": SEPARATIONS, "orders": [2]},
}


@pytest.fixture(scope="module", params=MODELS)
def simulation(request):
    return random_flow(request.param, OUTPUT)


@pytest.fixture(scope="module")
def state(simulation):
    return last(marched(simulation, 0.02, 2))


def test_transfers_sum_to_zero(simulation, state):
    """Stirring moves energy between modes; what the Lorentz force takes induction gives: sums of
    1e3 terms."""
    layout = simulation.transform.layout
    found = row(simulation, "transfer", state)
    assert found.keys() == measured_series(simulation)["transfer"].variables.keys()
    names = [name.partition("/")[2] for name in found if name.startswith("transfer/")]

    def total(*names):
        rates = [found[f"transfer/{n}"] for n in names]
        return abs(sum(rate.sum() for rate in rates)) / sum(abs(rate).sum() for rate in rates)

    alone = set(names) - {"lorentz", "induction", "buoyancy_flux"}
    assert "kinetic_energy" in alone
    assert all(total(name) < 1e-13 for name in alone)
    if "lorentz" in names:
        assert total("lorentz") > 1e-3 and total("lorentz", "induction") < 1e-13
        lorentz = found["transfer/lorentz"].sum() * layout.shell_width
        assert lorentz == pytest.approx(measured(simulation, state)["lorentz_work"], rel=1e-10)
    if "buoyancy_flux" in names:
        exchanged = found["transfer/buoyancy_flux"].sum() * layout.shell_width
        assert exchanged == pytest.approx(measured(simulation, state)["buoyancy_flux"], rel=1e-12)
    through = -np.cumsum(found["transfer/kinetic_energy"]) * layout.shell_width
    np.testing.assert_allclose(found["flux/kinetic_energy"], through, atol=1e-15)


def test_structure_functions_of_order_two_follow_from_the_modes(simulation, state):
    """<(u_i(x + r) - u_i(x))^2> = 2 sum w |u_i(k)|^2 (1 - cos k . r), also between multiples of the
    spacing."""
    layout = simulation.transform.layout
    found = row(simulation, "structure_functions", state)
    u = np.asarray(state.fields["velocity"])
    weight = np.asarray(layout.weight())
    k = layout.wavenumbers()
    for e in range(3):
        for n, r in enumerate(SEPARATIONS):
            away = 1 - np.cos(np.asarray(k[e]) * r)
            exact = [2 * (weight * abs(u[i]) ** 2 * away).sum() for i in range(3)]
            assert found["longitudinal_2"][e, n] == pytest.approx(exact[e], rel=1e-12)
            across = (sum(exact) - exact[e]) / 2
            assert found["transverse_2"][e, n] == pytest.approx(across, rel=1e-12)


def test_histograms_count_every_point_about_the_mean_of_its_component(simulation):
    windy = moved(simulation, simulation.state, "velocity")
    found = row(simulation, "histograms", windy)
    assert found.keys() == measured_series(simulation)["histograms"].variables.keys()
    width = 12.0 / 60
    for name in found:
        if not name.endswith("_deviation"):
            # 6 deviations hold all here
            assert found[name].sum() * width == pytest.approx(1, abs=1e-12), name
    v = values(simulation, windy)
    own = v - v.mean((1, 2, 3), keepdims=True)
    deviation = np.sqrt((own**2).mean())
    counts, _ = np.histogram(own / deviation, 60, (-6, 6))
    assert found["velocity_deviation"] == pytest.approx(deviation, rel=1e-12)
    # A value on a bin's edge may fall to either side.
    assert abs(found["velocity"] * width * v.size - counts).sum() <= 2


def test_default_separations():
    found = default_separations(Grid((64, 64, 64)))
    h = 2 * np.pi / 64
    assert found[0] == pytest.approx(h) and found[-1] == pytest.approx(np.pi)
    assert np.allclose(np.rint(np.array(found) / h), np.array(found) / h)
    assert (np.diff(found) > 0).all()
