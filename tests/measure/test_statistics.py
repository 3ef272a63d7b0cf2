"""Statistics of turbulence: the same in every steadily moving frame, and in the factors that their names say."""

from math import pi

import numpy as np
import pytest
from flow_support import flow, measured
from measuring import row

from simulator.physics.models import State
from simulator.physics.models.flow import RESOLVED, dissipation_scale, unresolved
from simulator.physics.models.fluid import drag_rate

WIND = (2.0, -0.5, 0.25)
SHAPE = (12, 10, 9)
MODELS = {
    "navier_stokes": {"viscosity": 0.02, "hyperviscosity": {"order": 2, "coefficient": 1e-4}},
    "boussinesq": {"viscosity": 0.02, "diffusivity": 0.02, "stratification": -1.0},
    "mhd": {"viscosity": 0.02, "resistivity": 0.02},
}
INITIAL = {
    "navier_stokes": {},
    "boussinesq": {"scalars": {"buoyancy": {}}},
    "mhd": {"magnetic": {"energy": 0.3}},
}
OF_THE_FRAME = ("mean_velocity", "energy", "kinetic_energy", "max_speed", "rate")
"""Columns of the whole motion."""


def moved(simulation, state: State, name: str, wind: tuple[float, ...] = WIND) -> State:
    """The state with a constant vector added to a field."""
    layout, field = simulation.transform.layout, state.fields[name]
    zero = (layout.integers("x") == 0) & (layout.integers("y") == 0) & (layout.integers("z") == 0)
    shifted = field + np.where(np.asarray(zero), np.reshape(wind, (3, 1, 1, 1)), 0)
    return State(**{**vars(state), "fields": {**state.fields, name: layout.constrain(shifted)}})


@pytest.fixture(scope="module", params=MODELS)
def simulation(request):
    return flow(
        *SHAPE,
        initial={"kind": "random", "peak": 2, **INITIAL[request.param]},
        model={"kind": request.param, **MODELS[request.param]},
        grid={"box": [2 * pi, 5.0, 4.0]},
        output={"histograms": {"every": 1, "bins": 60, "range": 6.0}},
    )


def test_statistics_do_not_know_a_mean_flow(simulation):
    """Only the mode k = 0 differs. Values at the points carry the round-off of the wind, 2 eps, in every product."""
    rest, windy = (
        measured(simulation, s) for s in (simulation.state, moved(simulation, simulation.state, "velocity"))
    )
    assert rest["u_rms"] > 0.1 and [rest[f"mean_velocity_{a}"] for a in "xyz"] == pytest.approx(
        [0, 0, 0], abs=1e-14
    )
    assert [windy[f"mean_velocity_{a}"] for a in "xyz"] == pytest.approx(WIND, rel=1e-14)
    assert windy["kinetic_energy"] == pytest.approx(
        rest["kinetic_energy"] + 0.5 * np.square(WIND).sum(), rel=1e-13
    )
    compared = [name for name in rest if not name.startswith(OF_THE_FRAME)]
    assert {"u_rms", "taylor_scale", "integral_scale", "reynolds_taylor", "turnover_time"} <= set(compared)
    for name in compared:
        assert windy[name] == pytest.approx(rest[name], rel=1e-13, abs=1e-14), name


def test_components_and_stresses_against_the_values(simulation):
    state = moved(simulation, simulation.state, "velocity")
    columns = measured(simulation, state)
    nx, ny, nz = SHAPE
    u = np.asarray(simulation.values("velocity")(state))[:, :nx, :ny, :nz]
    own = u - u.mean((1, 2, 3), keepdims=True)
    covariance = np.einsum("ixyz,jxyz->ij", own, own) / own[0].size
    assert [columns[f"u_rms_{a}"] for a in "xyz"] == pytest.approx(np.sqrt(np.diag(covariance)), rel=1e-12)
    assert columns["u_rms"] == pytest.approx(np.sqrt(np.trace(covariance) / 3), rel=1e-12)
    found = [columns[f"reynolds_stress_{pair}"] for pair in ("xy", "xz", "yz")]
    assert found == pytest.approx(covariance[[0, 0, 1], [1, 2, 2]], rel=1e-11)


def test_the_magnetic_field_likewise():
    simulation = flow(
        *SHAPE,
        initial={"kind": "random", "peak": 2, "magnetic": {"energy": 0.3}},
        model={"kind": "mhd", **MODELS["mhd"]},
    )
    rest, other = (
        measured(simulation, s) for s in (simulation.state, moved(simulation, simulation.state, "magnetic"))
    )
    assert [other[f"mean_magnetic_{a}"] for a in "xyz"] == pytest.approx(WIND, rel=1e-14)
    assert rest["b_rms"] == pytest.approx(np.sqrt(2 * rest["magnetic_energy"] / 3), rel=1e-13)
    for name in (
        "b_rms",
        "b_rms_x",
        "maxwell_stress_xy",
        "magnetic_enstrophy",
        "magnetic_helicity",
        "resistive_scale",
    ):
        assert other[name] == pytest.approx(rest[name], rel=1e-12), name
    assert rest["ohmic_dissipation"] == pytest.approx(2 * 0.02 * rest["magnetic_enstrophy"], rel=1e-13)
    assert rest["resistive_scale"] == pytest.approx((0.02**3 / rest["ohmic_dissipation"]) ** 0.25, rel=1e-12)


def test_histograms_take_every_component_about_its_own_mean(simulation):
    """The counts of a windy flow are those of the flow at rest."""
    state = simulation.state
    rest, windy = (row(simulation, "histograms", s) for s in (state, moved(simulation, state, "velocity")))
    for name in ("velocity", "velocity_deviation"):
        np.testing.assert_allclose(windy[name], rest[name], rtol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    ("damping", "exact"), [([(1, 0.01)], (0.01**3 / 0.3) ** 0.25), ([(4, 1e-9)], (1e-27 / 0.3) ** (1 / 22))]
)
def test_the_dissipation_scale_of_one_term(damping, exact):
    assert float(dissipation_scale(damping, np.float64(0.3))) == pytest.approx(exact, rel=1e-13)
    assert np.isnan(float(dissipation_scale(damping, np.float64(0))))


@pytest.mark.parametrize("hyper", [(2, 1e-5), (4, 1e-9), (8, 1e-20), (8, 1e-9)])
def test_the_dissipation_scale_of_two_terms(hyper):
    """Damping at 1 / eta is the eddies' rate there, and eta is at least either scale by itself."""
    nu, eps = 0.003, 0.3
    k = 1 / float(dissipation_scale([(1, nu), hyper], np.float64(eps)))
    n, coefficient = hyper
    assert nu * k**2 + coefficient * k ** (2 * n) == pytest.approx(eps ** (1 / 3) * k ** (2 / 3), rel=1e-12)
    alone = [float(dissipation_scale([term], np.float64(eps))) for term in ((1, nu), hyper)]
    assert 1 / k >= max(alone) * (1 - 1e-12)


def test_a_flow_with_hyperviscosity_alone_has_a_dissipation_scale():
    """ABC: all at k = 1, <u^2> = 3, so that the dissipation is 3 nu_2 and eta = (nu_2^3 / dissipation)^(1 / 10)."""
    model = {"kind": "navier_stokes", "viscosity": 0.0, "hyperviscosity": {"order": 2, "coefficient": 1e-3}}
    simulation = flow(12, 12, 12, initial={"kind": "abc"}, model=model)
    columns = measured(simulation, simulation.state)
    eta = (1e-9 / 3e-3) ** 0.1
    assert columns["kolmogorov_scale"] == pytest.approx(eta, rel=1e-12)
    assert columns["k_max_eta"] == pytest.approx(3 * eta, rel=1e-12) and "reynolds_taylor" not in columns


def test_drag_leaves_the_mean_flow_alone():
    model = {"kind": "navier_stokes", "viscosity": 0.0, "drag": {"coefficient": 0.5, "below": 1.0}}
    simulation = flow(8, 8, 8, initial={"kind": "abc"}, model=model)
    layout = simulation.transform.layout
    rate = np.asarray(drag_rate(layout, simulation.model.settings, np.float64))
    k2 = np.asarray(layout.k_squared())
    assert rate[k2 == 0] == 0 and (rate[k2 == 1] == 0.5).all() and (rate[k2 > 1] == 0).all()
    state = simulation.step(moved(simulation, simulation.state, "velocity"), 0.1)
    assert [measured(simulation, state)[f"mean_velocity_{a}"] for a in "xyz"] == pytest.approx(
        WIND, rel=1e-13
    )


def test_a_flow_that_the_grid_cuts_off_warns_and_a_start_at_large_scales_does_not():
    """Both have k_max eta < 1; only of the random flow with a flat spectrum has the edge any enstrophy."""
    rough = {"kind": "random", "spectrum": "power_law", "slope": 0, "peak": 2, "energy": 1.0}
    for initial, lines in ((rough, 1), ({"kind": "taylor_green"}, 0)):
        simulation = flow(16, 16, 16, initial=initial, viscosity=1e-3)
        columns = measured(simulation, simulation.state)
        assert columns["k_max_eta"] < RESOLVED and len(unresolved(columns)) == lines
        assert simulation.model.warnings(columns) == unresolved(columns)
    assert unresolved(columns | {"k_max_eta": 1.01, "edge_enstrophy": 0.5}) == []
