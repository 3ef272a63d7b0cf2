"""What is measured, against sums over modes and against flows of which it is known."""

import jax.numpy as jnp
import numpy as np
import pytest
from flow_support import flow, last, marched, measured, values
from measuring import MODELS, WIND, moved, random_flow, row

from simulator.archive.series_recorder import measured_series, recorders
from simulator.physics.models.observables.resolution import (
    dissipation_scale,
    ratio,
)
from simulator.physics.resolution_columns import RESOLVED, judged

OF_THE_FRAME = ("mean_velocity", "energy", "kinetic_energy", "max_speed", "rate")
"""Columns of the whole motion."""


@pytest.fixture(scope="module", params=MODELS)
def simulation(request):
    return random_flow(request.param, {"spectra": {"axis": "z"}})


@pytest.fixture(scope="module")
def state(simulation):
    return last(marched(simulation, 0.02, 2))


@pytest.fixture(scope="module")
def spectra(simulation, state):
    return {k: np.asarray(v) for k, v in simulation.spectra(state).items()}


def test_spectra_sum_to_energies(simulation, state, spectra):
    columns = measured(simulation, state)
    width = simulation.transform.layout.shell_width
    assert {"kinetic_energy"} <= spectra.keys() <= columns.keys()
    for name in spectra:
        assert spectra[name].sum() * width == pytest.approx(columns[name], rel=1e-13), name


def test_directional_spectra(simulation, state, spectra):
    """Every mode is in one bin; modes with kz = 0 are the first bin along z, counted directly."""
    layout = simulation.transform.layout
    kind = measured_series(simulation)["spectra"]
    found = row(simulation, "spectra", state)
    for name, shells in spectra.items():
        energy = shells.sum() * layout.shell_width
        for direction in ("perpendicular", "parallel"):
            width = kind.coordinates[f"k_{direction}"][1]
            assert found[f"{direction}/{name}"].sum() * width == pytest.approx(energy, rel=1e-13)
    u = np.asarray(state.fields["velocity"])
    at = layout.order.index("z")
    flat = np.take(u, 0, axis=1 + at)
    unit = kind.coordinates["k_parallel"][1]
    assert found["parallel/kinetic_energy"][0] * unit == pytest.approx(
        0.5 * (abs(flat) ** 2).sum(), rel=1e-13
    )


@pytest.fixture(scope="module")
def windy(simulation):
    return moved(simulation, simulation.state, "velocity")


def test_statistics_do_not_know_a_mean_flow(simulation, windy):
    """Only the mode k = 0 differs. Values at the points carry the round-off of the wind, 2 eps, in
    every product."""
    rest, windy = (measured(simulation, s) for s in (simulation.state, windy))
    assert rest["u_rms"] > 0.1 and [rest[f"mean_velocity_{a}"] for a in "xyz"] == pytest.approx(
        [0, 0, 0], abs=1e-14
    )
    assert [windy[f"mean_velocity_{a}"] for a in "xyz"] == pytest.approx(WIND, rel=1e-14)
    moving = rest["kinetic_energy"] + 0.5 * np.square(WIND).sum()
    assert windy["kinetic_energy"] == pytest.approx(moving, rel=1e-13)
    compared = [name for name in rest if not name.startswith(OF_THE_FRAME)]
    assert {"u_rms", "taylor_scale", "integral_scale", "reynolds_taylor", "turnover_time"} <= set(
        compared
    )
    for name in compared:
        assert windy[name] == pytest.approx(rest[name], rel=1e-13, abs=3e-14), name


def test_components_and_stresses_against_the_values(simulation, windy):
    columns = measured(simulation, windy)
    u = values(simulation, windy)
    own = u - u.mean((1, 2, 3), keepdims=True)
    covariance = np.einsum("ixyz,jxyz->ij", own, own) / own[0].size
    assert [columns[f"u_rms_{a}"] for a in "xyz"] == pytest.approx(
        np.sqrt(np.diag(covariance)), rel=1e-12
    )
    assert columns["u_rms"] == pytest.approx(np.sqrt(np.trace(covariance) / 3), rel=1e-12)
    found = [columns[f"reynolds_stress_{pair}"] for pair in ("xy", "xz", "yz")]
    assert found == pytest.approx(covariance[[0, 0, 1], [1, 2, 2]], rel=1e-11)


@pytest.mark.parametrize("simulation", ["mhd"], indirect=True)
def test_the_magnetic_field_likewise(simulation):
    state = simulation.state
    rest, other = (measured(simulation, s) for s in (state, moved(simulation, state, "magnetic")))
    assert [other[f"mean_magnetic_{a}"] for a in "xyz"] == pytest.approx(WIND, rel=1e-14)
    assert rest["b_rms"] == pytest.approx(np.sqrt(2 * rest["magnetic_energy"] / 3), rel=1e-13)
    names = "b_rms b_rms_x maxwell_stress_xy magnetic_enstrophy magnetic_helicity resistive_scale"
    for name in names.split():
        assert other[name] == pytest.approx(rest[name], rel=1e-12), name
    assert rest["ohmic_dissipation"] == pytest.approx(
        2 * 0.01 * rest["magnetic_enstrophy"], rel=1e-13
    )
    assert rest["resistive_scale"] == pytest.approx(
        (0.01**3 / rest["ohmic_dissipation"]) ** 0.25, rel=1e-12
    )


def test_scalars_of_a_known_flow():
    """ABC in a box 2 pi: <u^2> = <omega^2> = 3, all of it at k = 1: u' = 1, L = 3 pi / 4, lambda =
    sqrt(5), dissipation 3 nu; gradients are zero along every axis, so that their skewness is
    undefined."""
    nu = 0.01
    simulation = flow(12, 12, 12, initial={"kind": "abc"}, viscosity=nu)
    columns = measured(simulation)
    eta = (nu**3 / (3 * nu)) ** 0.25
    expected = {
        "u_rms": 1.0,
        "integral_scale": 0.75 * np.pi,
        "taylor_scale": 5**0.5,
        "turnover_time": 0.75 * np.pi,
    }
    expected |= {"reynolds_taylor": 5**0.5 / nu, "kolmogorov_scale": eta, "k_max_eta": 3 * eta}
    assert {name: columns[name] for name in expected} == pytest.approx(expected, rel=1e-12)
    assert np.array_equal(
        ratio(jnp.array([3.0, 3.0]), jnp.array([1.0, 0.0])), [3, np.nan], equal_nan=True
    )


def test_gradient_moments():
    """Taylor-Green: gradients cos x cos y cos z, its negative and 0."""
    simulation = flow(12, 12, 12, initial={"kind": "taylor_green"}, viscosity=0.0)
    columns = measured(simulation)
    assert columns["gradient_flatness"] == pytest.approx(27 / 512 * 64 * 1.5, rel=1e-12)
    assert abs(columns["gradient_skewness"]) < 1e-12
    assert "kolmogorov_scale" not in columns


def test_a_parallel_flow_has_no_longitudinal_gradients():
    """Round-off along the flow, some 1e-16 of the velocity, is no gradient."""
    simulation = flow(12, 12, 12, initial={"kind": "taylor_green"}, viscosity=0.0)
    y = np.arange(12) * 2 * np.pi / 12
    noise = 1e-16 * np.random.default_rng(0).standard_normal((3, 12, 12, 12))
    velocity = np.stack([np.sin(y)[:, None] + np.zeros((12, 12, 12)), *np.zeros((2, 12, 12, 12))])
    columns = measured(simulation, simulation.state_from({"velocity": velocity + noise}))
    assert np.isnan([columns["gradient_skewness"], columns["gradient_flatness"]]).all()


@pytest.mark.parametrize(
    "damping, exact",
    [([(1, 0.01)], (0.01**3 / 0.3) ** 0.25), ([(4, 1e-9)], (1e-27 / 0.3) ** (1 / 22))],
)
def test_the_dissipation_scale_of_one_term(damping, exact):
    assert float(dissipation_scale(damping, np.float64(0.3))) == pytest.approx(exact, rel=1e-13)
    assert np.isnan(float(dissipation_scale(damping, np.float64(0))))


@pytest.mark.parametrize("hyper", [(2, 1e-5), (4, 1e-9), (8, 1e-20), (8, 1e-9)])
def test_the_dissipation_scale_of_two_terms(hyper):
    """Damping at 1 / eta is the eddies' rate there, and eta is at least either scale by itself."""
    nu = 0.003
    eps = 0.3
    k = 1 / float(dissipation_scale([(1, nu), hyper], np.float64(eps)))
    n, coefficient = hyper
    assert nu * k**2 + coefficient * k ** (2 * n) == pytest.approx(
        eps ** (1 / 3) * k ** (2 / 3), rel=1e-12
    )
    alone = [float(dissipation_scale([term], np.float64(eps))) for term in ((1, nu), hyper)]
    assert 1 / k >= max(alone) * (1 - 1e-12)


def test_a_flow_with_hyperviscosity_alone_has_a_dissipation_scale():
    """ABC: all at k = 1, <u^2> = 3, so that the dissipation is 3 nu_2 and eta = (nu_2^3 /
    dissipation)^(1 / 10)."""
    model = {
        "kind": "navier_stokes",
        "viscosity": 0.0,
        "hyperviscosity": {"order": 2, "coefficient": 1e-3},
    }
    simulation = flow(12, 12, 12, initial={"kind": "abc"}, model=model)
    columns = measured(simulation)
    eta = (1e-9 / 3e-3) ** 0.1
    assert columns["kolmogorov_scale"] == pytest.approx(eta, rel=1e-12)
    assert (
        columns["k_max_eta"] == pytest.approx(3 * eta, rel=1e-12)
        and "reynolds_taylor" not in columns
    )


def test_drag_leaves_the_mean_flow_alone():
    model = {"kind": "navier_stokes", "viscosity": 0.0, "drag": {"coefficient": 0.5, "below": 1.0}}
    simulation = flow(8, 8, 8, initial={"kind": "abc"}, model=model)
    layout = simulation.transform.layout
    (drag,) = simulation.model.damps
    rate = np.asarray(drag.rate(simulation.transform))
    k2 = np.asarray(layout.k_squared())
    assert rate[k2 == 0] == 0 and (rate[k2 == 1] == 0.5).all() and (rate[k2 > 1] == 0).all()
    state = simulation.step(moved(simulation, simulation.state, "velocity"), 0.1)
    columns = measured(simulation, state)
    assert [columns[f"mean_velocity_{a}"] for a in "xyz"] == pytest.approx(WIND, rel=1e-13)


def warnings_of(row):
    rows = {"time": np.zeros(1), **{name: np.array([x], float) for name, x in row.items()}}
    return [field.warning for field in judged(rows) if field.warning]


def test_a_flow_that_the_grid_cuts_off_warns_and_a_start_at_large_scales_does_not():
    """Both have k_max eta < 1; only of the random flow with a flat spectrum has the edge any
    enstrophy."""
    rough = {"kind": "random", "spectrum": "power_law", "slope": 0, "peak": 2, "energy": 1.0}
    for initial, lines in ((rough, 1), ({"kind": "taylor_green"}, 0)):
        simulation = flow(16, 16, 16, initial=initial, viscosity=1e-3)
        columns = measured(simulation)
        assert columns["k_max_eta"] < RESOLVED and len(warnings_of(columns)) == lines
    assert warnings_of(columns | {"k_max_eta": 1.01, "edge_enstrophy": 0.5}) == []


@pytest.mark.parametrize("name, model", [("dye", "navier_stokes"), ("buoyancy", "boussinesq")])
@pytest.mark.parametrize("schmidt, slope, lines", [(5000, 0, 1), (1, 0, 0), (5000, -9, 0)])
def test_a_scalar_that_the_grid_cuts_off_warns(name, model, schmidt, slope, lines):
    """The flow, of large scales, is resolved. The scalar's variance falls as k^slope."""
    nu = 0.5
    diffusivity = nu / schmidt
    settings = {"kind": model, "viscosity": nu}
    if name == "dye":
        settings["scalars"] = [{"name": name, "diffusivity": diffusivity}]
    else:
        settings |= {"diffusivity": diffusivity, "stratification": 1.0}
    scalar = {"variance": 1, "peak": 2, "spectrum": "power_law", "slope": slope}
    start = {"kind": "taylor_green", "scalars": {name: scalar}}
    simulation = flow(16, 16, 16, initial=start, model=settings)
    row = measured(simulation)
    # sqrt(D / omega_rms) = sqrt(nu / omega_rms) / sqrt(Sc): Batchelor's scale.
    scale = row["k_max_eta"] / schmidt**0.5
    assert row[f"{name}_k_max_batchelor"] == pytest.approx(scale, rel=1e-12)
    found = warnings_of(row)
    assert len(found) == lines
    assert all(line.startswith(f"{name} is under-resolved") for line in found)


@pytest.mark.parametrize("simulation", ["navier_stokes"], indirect=True)
def test_rows_that_wait_hold_no_buffer_of_a_device(simulation):
    """A view of a device's buffer, as `numpy.asarray` gives, keeps several times its bytes."""
    series = recorders(simulation)["spectra"]
    series.take(simulation.state, True, series.program)
    ((_, _, row),) = series.waiting()
    assert row and all(values.flags.owndata for values in row.values())
