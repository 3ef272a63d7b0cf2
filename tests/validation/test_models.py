"""What holds for every flow model: invariants, budgets, any number of devices, either precision,
gradients."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flow_support import flow, last, marched, measured, order
from tiers import slow

from simulator.physics.models.tendency import linear_terms, tendency
from simulator.spectral.operators import hermitian

SHAPE = (12, 9, 10)
MODELS = {
    "navier_stokes": {
        "viscosity": 0.02,
        "rotation": [0.1, 0.0, 0.5],
        "hyperviscosity": {"order": 2, "coefficient": 1e-4},
        "drag": {"coefficient": 0.1, "below": 1.5},
        "scalars": [{"name": "dye", "diffusivity": 0.01, "mean_gradient": [1.0, 0.0, 0.0]}],
    },
    "mhd": {
        "viscosity": 0.02,
        "resistivity": 0.01,
        "hyperresistivity": {"order": 2, "coefficient": 2e-4},
        "rotation": [0.1, 0.0, 0.5],
        "drag": {"coefficient": 0.1, "below": 1.5},
        "scalars": [{"name": "dye", "diffusivity": 0.01, "mean_gradient": [1.0, 0.0, 0.0]}],
    },
    "boussinesq": {
        "viscosity": 0.02,
        "diffusivity": 0.01,
        "stratification": 2.0,
        "rotation": [0.0, 0.3, 0.4],
    },
}
OTHERS = {
    "navier_stokes": {"scalars": {"dye": {"peak": 2}}},
    "mhd": {
        "magnetic": {"energy": 0.3, "helicity": 0.5, "mean_field": [0.3, 0.0, 0.2]},
        "scalars": {"dye": {"peak": 2}},
    },
    "boussinesq": {"scalars": {"buoyancy": {"variance": 0.4}}},
}
NOISE = {
    "kind": "ornstein_uhlenbeck",
    "rate": 0.2,
    "correlation_time": 0.3,
    "band": [1, 2],
    "seed": 5,
}
DT = 0.02


def simulation(kind, **options):
    initial = {"kind": "random", "peak": 2, "seed": 7, **OTHERS[kind]}
    return flow(
        *SHAPE, initial=initial, model={"kind": kind, **MODELS[kind]}, forcing=NOISE, **options
    )


@cache
def shared(kind):
    """The simulation of a kind on one device, which is compiled once for all tests."""
    return simulation(kind)


def difference(a, b) -> float:
    """Largest difference of two states' fields over their modes, relative to each field's largest
    mode."""
    worst = 0.0
    for name, field in a.fields.items():
        one = np.asarray(field)
        other = np.asarray(b.fields[name])
        cut = tuple(
            slice(0, min(sizes)) for sizes in zip(one.shape, other.shape, strict=True)
        )  # padding differs
        worst = max(worst, abs(one[cut] - other[cut]).max() / abs(one).max())
    return float(worst)


@pytest.fixture(scope="module", params=MODELS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def alone(kind):
    return shared(kind)


@pytest.fixture(scope="module")
def states(alone):
    return list(marched(alone, DT, 6))


def test_the_budget_closes_and_fields_stay_solenoidal(alone, states):
    """The trapezoidal rule over a step is of order 2: below 1e-3 of the dissipation for resolved
    steps. The noise is constant within a step, so that it costs nothing."""
    rows = [measured(alone, state) for state in states[1:]]
    assert all(abs(row["budget_residual"]) < 1e-3 for row in rows), [
        row["budget_residual"] for row in rows
    ]
    halves = [measured(alone, s)["budget_residual"] for s in (*marched(alone, DT / 2, 1),)][1:]
    assert abs(halves[0]) < abs(rows[0]["budget_residual"]) / 3
    assert all(row["injection"] != 0 for row in rows)
    row = measured(alone, states[-1])
    # k u / k^2 of round-off in each of the modes: some 100 eps of the largest velocity.
    assert row["max_divergence"] < 1e-13 * row["max_speed"]
    assert row.get("max_magnetic_divergence", 0.0) < 1e-13


@pytest.mark.parametrize(
    "kind",
    ["navier_stokes", *map(slow, ("boussinesq", "mhd"))],
    indirect=True,
)
def test_single_precision_follows_double(kind, states):
    found = last(marched(simulation(kind, precision="single"), DT, 6))
    assert found.fields["velocity"].dtype == np.complex64 and found.time.dtype == np.float64
    # 6 steps of 4 right-hand sides with some 10 roundings of 6e-8 each, relative to the largest
    # mode.
    assert 1e-9 < difference(states[-1], found) < 6 * 4 * 10 * 6e-8


FREE = {"viscosity": 0, "hyperviscosity": None, "drag": None, "scalars": [], "rotation": [0, 0, 1]}
HELICAL = {"kind": "random", "peak": 2, "seed": 7, "helicity": 0.3}
IDEAL = {
    "navier_stokes": (SHAPE, MODELS["navier_stokes"] | FREE, HELICAL, ("energy", "helicity")),
    "mhd": (
        SHAPE,
        MODELS["mhd"] | FREE | {"resistivity": 0, "hyperresistivity": None, "rotation": [0, 0, 0]},
        HELICAL | {"magnetic": {"energy": 0.4, "helicity": 0.5, "seed": 1}},
        ("energy", "cross_helicity", "magnetic_helicity"),
    ),
    "boussinesq": (
        SHAPE,
        MODELS["boussinesq"] | {"viscosity": 0, "diffusivity": 0},
        HELICAL | OTHERS["boussinesq"],
        ("energy",),
    ),
    "navier_stokes in a plane": (
        (16, 16),
        {"viscosity": 0},
        {"kind": "random", "seed": 3, "peak": 2},
        ("energy", "enstrophy"),
    ),
    "mhd in a plane": (
        (16, 16),
        {"viscosity": 0, "resistivity": 0},
        {"kind": "random", "seed": 3, "peak": 2, "magnetic": {"energy": 0.3, "peak": 2}},
        ("energy", "cross_helicity", "square_potential"),
    ),
}


@pytest.mark.parametrize("name", [slow(n) if n == "boussinesq" else n for n in IDEAL])
def test_ideal_invariants_converge_with_the_integrator(name):
    """Energy is conserved by the truncated equations, and the helicities where their means do not
    interfere: rotation changes helicity through <u> only, but cross-helicity everywhere; magnetic
    helicity is conserved without a mean field. In a plane enstrophy and the square of the potential
    take the places of helicities. RK4's own error of a quadratic invariant is of order 5."""
    shape, model, initial, invariants = IDEAL[name]
    ideal = flow(*shape, initial=initial, model={"kind": name.partition(" ")[0], **model})
    first = measured(ideal)
    duration, steps = (0.6, (8, 16)) if len(shape) == 3 else (0.4, (10, 20))
    ends = [measured(ideal, last(marched(ideal, duration / n, n))) for n in steps]
    for column in invariants:
        losses = [abs(end[column] - first[column]) for end in ends]
        assert abs(first[column]) > 1e-3 and order(losses)[0] > 3.9, (column, losses)
        assert losses[-1] < 1e-5


def test_mhd_without_a_magnetic_field_is_navier_stokes():
    """Every key of a flow has its meaning in both; the force is another sum of products, so
    round-off differs."""
    model = {**MODELS["navier_stokes"], "resistivity": 0.01, "kind": "mhd"}
    initial = {"kind": "random", "peak": 2, "seed": 7, **OTHERS["navier_stokes"]}
    magnetic = flow(*SHAPE, initial=initial, model=model, forcing=NOISE)
    plain = shared("navier_stokes")
    state = last(marched(plain, DT, 3))
    other = last(marched(magnetic, DT, 3))
    for name, field in state.fields.items():
        assert (
            abs(np.asarray(other.fields[name] - field)).max() < 1e-14 * abs(np.asarray(field)).max()
        )
    assert not np.asarray(other.fields["magnetic"]).any()
    row = measured(plain, state)
    also = measured(magnetic, other)
    for name in (
        "energy",
        "dissipation",
        "drag_dissipation",
        "dye_production",
        "reynolds_taylor",
        "injection",
    ):
        assert also[name] == pytest.approx(row[name], rel=1e-12), name
    pressure, also = (
        np.asarray(s.field_program("pressure")(f)) for s, f in ((plain, state), (magnetic, other))
    )
    np.testing.assert_allclose(also, pressure, atol=1e-13 * abs(pressure).max())


@pytest.mark.parametrize("kind", ["navier_stokes", slow("boussinesq")])
def test_the_variance_of_a_scalar_with_a_mean_flow_along_its_gradient(kind):
    """d<theta'^2>/dt is production - dissipation, to round-off; the mean flow moves the scalar's
    mean alone."""
    dye = {"name": "dye", "diffusivity": 0.01, "mean_gradient": [1.0, 0.0, 0.5]}
    others = {**OTHERS[kind], "scalars": {**OTHERS[kind]["scalars"], "dye": {"peak": 2}}}
    own = flow(
        *(24, 24, 24),
        initial={"kind": "random", "peak": 2, "seed": 7, **others},
        model={"kind": kind, **MODELS[kind], "scalars": [dye]},
    )
    model = own.model
    layout = own.transform.layout
    means = {"velocity": jnp.array([1.5, 0.0, -0.4]).reshape(3, 1, 1, 1), "dye": 0.8}
    zero = layout.zero
    fields = {
        n: jnp.where(zero, means[n], f) if n in means else f for n, f in own.state.fields.items()
    }
    row = measured(own, replace(own.state, fields=fields))
    rates = jax.jit(lambda f: tendency(model, f, own.state.time)[0])(fields)
    rate = rates["dye"] + linear_terms(model)["dye"] * fields["dye"]
    change = 2 * float(layout.inner(jnp.where(zero, 0, fields["dye"]), rate))
    assert row["mean_velocity_x"] == pytest.approx(1.5) and row["dye_mean"] == pytest.approx(0.8)
    assert change == pytest.approx(row["dye_production"] - row["dye_dissipation"], rel=1e-12)


def test_numbers_of_rotation_stratification_and_magnetic_diffusion():
    """As their definitions relate them to one another and to other columns."""
    stratified = shared("boussinesq")
    row = measured(stratified)
    n = 2**0.5
    assert row["rossby"] == pytest.approx(
        row["u_rms"] / (2 * 0.5 * row["integral_scale"]), rel=1e-12
    )
    assert row["froude"] / row["rossby"] == pytest.approx(2 * 0.5 / n, rel=1e-12)
    scales = row["ozmidov_scale"] / row["kolmogorov_scale"]
    assert scales == pytest.approx(row["buoyancy_reynolds"] ** 0.75, rel=1e-12)
    diffused = row["dissipation"] - row["viscous_dissipation"]
    assert row["mixing_efficiency"] == pytest.approx(diffused / row["dissipation"], rel=1e-12)
    magnetic = shared("mhd")
    row = measured(magnetic)
    reynolds = row["u_rms"] * row["integral_scale"] / 0.02
    assert row["magnetic_reynolds"] == pytest.approx(reynolds * row["magnetic_prandtl"], rel=1e-12)
    assert row["magnetic_prandtl"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    "model, forcing",
    [
        ({"kind": "navier_stokes"}, {"kind": "linear", "coefficient": 2.0}),
        ({"kind": "navier_stokes"}, {"kind": "constant_power", "rate": 2.0, "band": [1, 3]}),
        ({"kind": "boussinesq", "diffusivity": 0.0, "stratification": -4.0}, None),
    ],
)
def test_what_the_grid_does_not_show_does_not_grow(model, forcing):
    """The anti-Hermitian part of the plane kz = 0 has no values on the grid, so nothing nonlinear
    would stop it."""
    model = {"viscosity": 0.0, **model}
    heun = {"stop": 1.0, "integrator": "rk2"}
    simulation = flow(
        8, 8, 8, initial={"kind": "random", "peak": 2}, model=model, forcing=forcing, time=heun
    )
    layout = simulation.transform.layout
    state = simulation.state

    def invisible(fields):
        return {n: f - hermitian(layout, f) for n, f in fields.items()}

    noise = {n: 1e-3 * layout.weight() * 1j * abs(f) for n, f in state.fields.items()}
    start = {n: f + invisible(noise)[n] for n, f in state.fields.items()}
    step = jax.jit(simulation.step)
    state = replace(state, fields=start)
    before = max(float(abs(f).max()) for f in invisible(state.fields).values())
    assert before > 1e-6
    for _ in range(20):
        state = step(state, 0.02)
    assert max(float(abs(f).max()) for f in invisible(state.fields).values()) < 1.0001 * before
