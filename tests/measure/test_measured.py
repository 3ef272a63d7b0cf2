"""What is measured, against sums over modes and against flows of which it is known."""

from collections.abc import Mapping

import numpy as np
import pytest
from flow_support import flow, last, marched, measured
from measuring import row

from simulator.archive.recorder import series_of
from simulator.measure.structure_functions import default_separations
from simulator.spectral import Grid

MODELS: Mapping[str, dict] = {
    "navier_stokes": {
        "viscosity": 0.02,
        "rotation": [0, 0, 1],
        "scalars": [{"name": "dye", "diffusivity": 0.02}],
    },
    "mhd": {"viscosity": 0.02, "resistivity": 0.02},
    "boussinesq": {"viscosity": 0.02, "diffusivity": 0.02, "stratification": 2.0},
}
SEPARATIONS = (0.31, 0.5, 1.5)
"""The last two are multiples of the grid's spacing along y."""
OUTPUT = {
    "spectra": {"axis": "z"},
    "transfer": {},
    "structure_functions": {"separations": SEPARATIONS, "orders": [2, 3]},
    "histograms": {"bins": 60, "range": 6.0},
}
INITIAL: Mapping[str, dict] = {
    "navier_stokes": {"scalars": {"dye": {}}},
    "mhd": {"magnetic": {"mean_field": [0, 0, 1]}},
    "boussinesq": {"scalars": {"buoyancy": {}}},
}


@pytest.fixture(scope="module", params=MODELS)
def simulation(request):
    return flow(
        *(12, 10, 9),
        initial={"kind": "random", "peak": 2, **INITIAL[request.param]},
        model={"kind": request.param, **MODELS[request.param]},
        grid={"box": [2 * np.pi, 5.0, 4.0]},
        output={kind: {"every": 1, **settings} for kind, settings in OUTPUT.items()},
        count=2,
    )


@pytest.fixture(scope="module")
def state(simulation):
    return last(marched(simulation, 0.02, 2))


@pytest.fixture(scope="module")
def spectra(simulation, state):
    return {k: np.asarray(v) for k, v in simulation.spectra(state).items()}


def test_spectra_sum_to_energies(simulation, state, spectra):
    columns, width = measured(simulation, state), simulation.transform.layout.shell_width
    assert {"kinetic_energy"} <= spectra.keys() <= columns.keys()
    for name in spectra:
        assert spectra[name].sum() * width == pytest.approx(columns[name], rel=1e-13), name


def test_transfers_sum_to_zero(simulation, state):
    """Stirring moves energy between modes; what the Lorentz force takes induction gives. To round-off: each sum has
    1e3 terms."""
    layout, found = simulation.transform.layout, row(simulation, "transfer", state)
    assert found.keys() == series_of(simulation)["transfer"].variables.keys()
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
    through = found["flux/kinetic_energy"]
    np.testing.assert_allclose(
        through, -np.cumsum(found["transfer/kinetic_energy"]) * layout.shell_width, atol=1e-15
    )


def test_directional_spectra(simulation, state, spectra):
    """Every mode is in one bin; modes with kz = 0 are the first bin along z, counted directly."""
    layout, kind = simulation.transform.layout, series_of(simulation)["spectra"]
    found = row(simulation, "spectra", state)
    for name, shells in spectra.items():
        energy = shells.sum() * layout.shell_width
        for direction in ("perpendicular", "parallel"):
            width = kind.coordinates[f"k_{direction}"][1]
            assert found[f"{direction}/{name}"].sum() * width == pytest.approx(energy, rel=1e-13)
    u, at = np.asarray(state.fields["velocity"]), layout.order.index("z")
    flat = np.take(u, 0, axis=1 + at)
    unit = kind.coordinates["k_parallel"][1]
    assert found["parallel/kinetic_energy"][0] * unit == pytest.approx(
        0.5 * (abs(flat) ** 2).sum(), rel=1e-13
    )


def test_structure_functions_of_order_two_follow_from_the_modes(simulation, state):
    """<(u_i(x + r) - u_i(x))^2> = 2 sum w |u_i(k)|^2 (1 - cos k . r), at separations that are no multiples of the
    grid's spacing too; and those of order 3 from shifted values."""
    transform, layout = simulation.transform, simulation.transform.layout
    found = row(simulation, "structure_functions", state)
    u, weight = np.asarray(state.fields["velocity"]), np.asarray(layout.weight())
    k = layout.wavenumbers()
    for e in range(3):
        for n, r in enumerate(SEPARATIONS):
            exact = [
                2 * (weight * abs(u[i]) ** 2 * (1 - np.cos(np.asarray(k[e]) * r))).sum() for i in range(3)
            ]
            assert found["longitudinal_2"][e, n] == pytest.approx(exact[e], rel=1e-12)
            across = (sum(exact) - exact[e]) / 2
            assert found["transverse_2"][e, n] == pytest.approx(across, rel=1e-12)
    nx, ny, nz = simulation.grid.shape
    v = np.asarray(transform.inverse(state.fields["velocity"]))[1, :nx, :ny, :nz]
    third = ((np.roll(v, -3, axis=1) - v) ** 3).mean()
    assert found["longitudinal_3"][1, 2] == pytest.approx(third, rel=1e-10)


def test_histograms_count_every_point(simulation, state):
    transform, found = simulation.transform, row(simulation, "histograms", state)
    assert found.keys() == series_of(simulation)["histograms"].variables.keys()
    width = 12.0 / 60
    for name in found:
        if not name.endswith("_deviation"):
            # 6 deviations hold all here
            assert found[name].sum() * width == pytest.approx(1, abs=1e-12), name
    nx, ny, nz = simulation.grid.shape
    v = np.asarray(transform.inverse(state.fields["velocity"]))[:, :nx, :ny, :nz]
    own = v - v.mean((1, 2, 3), keepdims=True)
    deviation = np.sqrt((own**2).mean())
    counts, _ = np.histogram(own / deviation, 60, (-6, 6))
    assert found["velocity_deviation"] == pytest.approx(deviation, rel=1e-12)
    # A value on a bin's edge may fall to either side.
    assert abs(found["velocity"] * width * v.size - counts).sum() <= 2


def test_scalars_of_a_known_flow():
    """ABC in a box 2 pi: <u^2> = <omega^2> = 3, all of it at k = 1: u' = 1, L = 3 pi / 4, lambda = sqrt(5),
    dissipation 3 nu; gradients are zero along every axis, so that their skewness is undefined."""
    nu = 0.01
    simulation = flow(12, 12, 12, initial={"kind": "abc"}, viscosity=nu)
    columns = measured(simulation, simulation.state)
    eta = (nu**3 / (3 * nu)) ** 0.25
    expected = {
        "u_rms": 1.0,
        "integral_scale": 0.75 * np.pi,
        "taylor_scale": 5**0.5,
        "turnover_time": 0.75 * np.pi,
        "reynolds_taylor": 5**0.5 / nu,
        "kolmogorov_scale": eta,
        "k_max_eta": 3 * eta,
        "enstrophy": 1.5,
        "helicity": 3.0,
        "dissipation": 3 * nu,
    }
    assert {name: columns[name] for name in expected} == pytest.approx(expected, rel=1e-12)


def test_gradient_moments():
    """Taylor-Green: gradients cos x cos y cos z, its negative and 0."""
    simulation = flow(12, 12, 12, initial={"kind": "taylor_green"}, viscosity=0.0)
    columns = measured(simulation, simulation.state)
    assert columns["gradient_flatness"] == pytest.approx(27 / 512 * 64 * 1.5, rel=1e-12)
    assert abs(columns["gradient_skewness"]) < 1e-12
    assert "kolmogorov_scale" not in columns


def test_default_separations():
    found = default_separations(Grid((64, 64, 64)))
    h = 2 * np.pi / 64
    assert found[0] == pytest.approx(h) and found[-1] == pytest.approx(np.pi)
    assert np.allclose(np.rint(np.array(found) / h), np.array(found) / h)
    assert (np.diff(found) > 0).all()
