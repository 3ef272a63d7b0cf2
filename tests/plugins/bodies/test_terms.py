"""Relaxation within masks, and viscosities that vary."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flow_support import assert_slopes, compiled_step, flow, last, marched, measured, values
from numpy.testing import assert_allclose
from refusals import refusal, rows
from run_support import simulation as opened
from run_support import write_case

from simulator.physics.models.tendency import tendency

RANDOM = {"kind": "random", "peak": 2, "energy": 0.5}
FEW_STAGES = {"stop": 1.0, "integrator": "rk2"}
"""For properties of any integrator: half of the stages to compile."""
DISC = {"kind": "cylinder", "center": [2, 3], "radius": 1.1}
BODY = {
    "name": "body",
    "kind": "relax",
    "target": {"velocity": "body"},
    "relaxation_time": 0.1,
    "mask": {"kind": "sphere", "center": ["3 + 0.1*t", 3, 3], "radius": 1.2, "angle": "0.3*t"},
    "forces": True,
}
CODE = """
import jax.numpy as jnp

def inside(x, y, z, t, radius=1.0):
    return jnp.where((x - 3) ** 2 + (y - 3) ** 2 + 0 * z < radius**2, 1.0, 0.0)

def too_large(x, y, z, t):
    return 1.5 * inside(x, y, z, t)

def squared_sine(x, y, z, t):
    return jnp.sin(x) ** 2 + 0 * y * z

def wind(x, y, z, t, speed):
    return speed * jnp.sin(y + t), 0, 0

def damped(values, points, time, strength):
    x, y, z = points
    return {"velocity": -strength * jnp.sin(x) ** 2 * values["velocity"]}

def thinned(values, points, time):
    return 0.05 / (1 + values["shear_rate"])

def eddies(values, points, time):
    return (0.3 * 0.5) ** 2 * values["shear_rate"]
"""


@pytest.fixture
def code(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(CODE)
    return str(path)


def relax(name="term", tau=0.2, mask=None, **target):
    keys = {"name": name, "kind": "relax", "target": target, "relaxation_time": tau}
    return keys if mask is None else {**keys, "mask": mask}


DAMPED = {"name": "damped", "kind": "python", "function": "damped", "parameters": {"strength": 2}}


def test_an_eddy_viscosity_is_the_viscosity_of_a_term(code):
    """That of Smagorinsky, (C Delta)^2 |S|, as a closure and as a function of the shear rate, beside
    a body, in a step of the same size."""
    eddies = {"name": "eddies", "kind": "viscosity"}
    eddies["coefficients"] = {"velocity": {"path": code, "function": "eddies"}}
    found = []
    for terms, closure in (
        ([BODY], {"subgrid": {"kind": "smagorinsky", "coefficient": 0.3, "filter_width": 0.5}}),
        ([BODY, eddies], {}),
    ):
        model = {"kind": "navier_stokes", "viscosity": 0.02, **closure}
        simulation = flow(8, 8, 8, initial=RANDOM, model=model, terms=terms, time=FEW_STAGES)
        found.append(values(simulation, last(marched(simulation, 0.02, 3))))
    assert_allclose(found[1], found[0], atol=1e-12)


@pytest.mark.long
def test_the_budget_of_gas_closes_to_its_truncation_with_a_sponge_of_mass_and_momentum():
    """Aliasing of the quotients leaves a residual of 1e-5, as it does without terms."""
    gas = {"kind": "self_gravitating_gas", "sound_speed": 2, "viscosity": 0.3}
    gas |= {"gravitational_constant": 0.1, "background_density": 1.0, "max_edge_energy": 1}
    sponge = relax("sponge", mask={**DISC, "smoothing": 1}, density=1.1, velocity=[1, 0])
    start = {"kind": "jeans_wave", "amplitude": 0.05, "density": 1.0}
    simulation = flow(24, 24, initial=start, model=gas, terms=[sponge])
    row = measured(simulation, last(marched(simulation, 0.01, 3)))
    assert row["power_sponge"] > 0
    assert abs(row["budget_residual"]) < 1e-5


def test_relaxation_everywhere_is_the_exponential():
    """u = u_0 + (u(0) - u_0) exp(-t / tau) to RK4's (dt / tau)^5 / 120 a step; the mean flow carries
    the Beltrami flow along, to (k U dt)^5 / 120 with k U + k u < 4: 1e-7 in 10 steps."""
    start = {"kind": "abc"}
    simulation = flow(8, 8, 8, initial=start, terms=[relax(tau=0.5, velocity=[1, "0*x", 0])])
    final = values(simulation, last(marched(simulation, 0.02, 10)))
    first = values(simulation, simulation.state)
    target = np.reshape([1.0, 0, 0], (3, 1, 1, 1))
    decay = np.exp(-0.2 / 0.5)
    mean = target + (first.mean((1, 2, 3), keepdims=True) - target) * decay
    assert_allclose(final.mean((1, 2, 3)), mean.ravel(), atol=1e-9)
    fluctuation = final - final.mean((1, 2, 3), keepdims=True)
    assert_allclose((fluctuation**2).mean(), (first**2).mean() * decay**2, rtol=1e-7)


def test_the_force_on_a_body_is_the_momentum_that_the_fluid_loses():
    simulation = flow(16, 16, initial={"kind": "taylor_green"}, terms=[
        {**relax("disc", mask=DISC, velocity="body"), "coefficients": {"velocity": 2, "length": 2.2}},
        relax("wind", velocity=[0.3, 0.1]),
    ])  # fmt: skip
    state = last(marched(simulation, 0.02, 2))
    row = measured(simulation, state)
    rates, _ = jax.jit(lambda s: tendency(simulation.model, s.fields, s.time))(state)
    gained = simulation.transform.layout.at_zero(rates["velocity"]).real * simulation.grid.volume
    mean = np.array([row["mean_velocity_x"], row["mean_velocity_y"]])
    wind = -(mean - [0.3, 0.1]) / 0.2 * simulation.grid.volume
    force = [row["force_disc_x"], row["force_disc_y"]]
    assert_allclose(gained, wind - force, atol=1e-12)
    assert row["drag_disc"] == pytest.approx(row["force_disc_x"] / (0.5 * 4 * 2.2))
    assert row["lift_disc"] == pytest.approx(row["force_disc_y"] / (0.5 * 4 * 2.2))


def mask_of(simulation, index=0, time=0.0):
    points = simulation.grid.seen(simulation.transform.physical.coordinates())
    term = simulation.model.terms[index]
    chi = jax.jit(lambda: term.mask({}, points, jnp.float64(time)))()
    return np.asarray(jnp.broadcast_to(chi, simulation.transform.physical.shape))


def test_masks_have_the_volume_of_their_shapes_and_move_through_the_box():
    """The smoothed mask is antisymmetric about the surface, so the error of the volume is of second
    order in smoothing / radius; means over the grid are exact to the smoothness of the mask."""
    length = 2 * np.pi
    shapes = {
        "ball": ({"kind": "sphere", "center": ["2*t", 3, 0], "radius": 2}, 4 / 3 * np.pi * 8),
        "rod": ({"kind": "cylinder", "center": [1, 2, 3], "radius": 1.5, "axis": "x"}, np.pi * 2.25 * length),
        "brick": ({"kind": "box", "center": [1, 1, 1], "size": [3, None, 2], "angle": 0.5, "axis": "y"}, 6 * length),
        "wall": ({"kind": "half_space", "axis": "z", "below": 2.5}, 2.5 * length**2),
    }  # fmt: skip
    bodies = [{**shape, "smoothing": 0.6} for shape, _ in shapes.values()]
    union = {"kind": "union", "parts": [{**bodies[3]}, {**bodies[3], "below": None, "above": 4}]}
    terms = [relax(f"a{i}", mask=m, velocity=[0, 0, 0]) for i, m in enumerate([*bodies, union])]
    simulation = flow(36, 36, 36, initial={"kind": "abc"}, terms=terms)
    for i, (_, volume) in enumerate(shapes.values()):
        chi = mask_of(simulation, i)
        assert chi.min() == 0 and chi.max() == 1
        assert chi.mean() * length**3 == pytest.approx(volume, rel=0.012)
    walls = 2.5 + length - 4
    assert mask_of(simulation, 4).mean() * length == pytest.approx(walls, rel=0.02)
    steps = round(2 * np.pi / 2 / (2 * np.pi / 36) / 2)  # half of the box, in grid spacings
    moved = mask_of(simulation, 0, time=np.pi / 2)
    assert_allclose(moved, np.roll(mask_of(simulation, 0), 2 * steps, axis=0), atol=1e-12)


def test_the_mask_is_zero_in_blocks_of_points_that_a_body_does_not_reach():
    simulation = flow(
        *(24, 24, 24),
        initial={"kind": "abc"},
        terms=[
            relax(mask={"kind": "sphere", "center": [1, 1, 1], "radius": 1}, velocity=[0, 0, 0])
        ],
    )
    coordinates = simulation.grid.seen(simulation.transform.physical.coordinates())
    whole = mask_of(simulation)
    mask = jax.jit(partial(simulation.model.terms[0].mask, {}))
    for first in range(0, 24, 6):
        x, y, z = coordinates
        block = mask((x[first : first + 6], y, z), jnp.float64(0))
        assert_allclose(block, whole[first : first + 6], atol=1e-15)
    assert not whole[12:18].any()


def test_a_body_moves_as_its_centre_and_its_angle_say():
    body = {"kind": "box", "center": ["3 + sin(t)", "2"], "size": [2, 3], "angle": "t**2"}
    simulation = flow(
        12, 12, initial={"kind": "taylor_green"}, terms=[relax(mask=body, velocity="body")]
    )
    term = simulation.model.terms[0]
    time = jnp.float64(0.7)
    x, y = jnp.float64(3.4).reshape(1, 1, 1), jnp.float64(2.5).reshape(1, 1, 1)
    v = [float(c.ravel()[0]) for c in term.target("velocity", {}, (x, y), time)]
    turn = 2 * 0.7
    assert_allclose(v, [np.cos(0.7) - turn * 0.5, turn * (3.4 - 3 - np.sin(0.7))], rtol=1e-13)
    assert mask_of(simulation, 0, 0.7).max() == 1


def test_a_function_gives_the_same_term_as_a_formula(code):
    wind = {"path": code, "function": "wind", "parameters": {"speed": 0.7}}
    mask = {"kind": "python", "path": code, "function": "squared_sine"}
    alike = (
        [relax(velocity=wind), relax(velocity=["0.7*sin(y + t)", 0, 0])],
        [{**DAMPED, "path": code}, relax(tau=0.5, mask=mask, velocity=[0, 0, 0])],
    )
    for terms in alike:
        flows = (
            flow(8, 8, 8, initial={"kind": "abc"}, terms=[term], time=FEW_STAGES) for term in terms
        )
        assert_allclose(*(values(s, last(marched(s, 0.05, 2))) for s in flows), atol=1e-14)


@pytest.mark.parametrize("shape, blown", [((8, 8, 8), True), ((8, 8), False)])
def test_a_uniform_viscosity_is_that_of_the_model(shape, blown):
    """In both forms of advection, with a scalar that has a mean gradient. nu k^2 is explicit here:
    (nu k^2 dt)^5 / 120 = 1e-10 a step at k^2 = 12."""
    wind = [relax("wind", tau=10, velocity=[0.3] * len(shape))] if blown else []
    extra = {"velocity": 0.08, "dye": "0.05 + 0*x"}
    more = {"name": "more", "kind": "viscosity", "coefficients": extra}
    found = []
    for terms, nu, diffusivity in ((wind, 0.1, 0.06), ([*wind, more], 0.02, 0.01)):
        dye = {"name": "dye", "diffusivity": diffusivity, "mean_gradient": [1, 0, 0][: len(shape)]}
        model = {"kind": "navier_stokes", "viscosity": nu, "scalars": [dye]}
        simulation = flow(*shape, initial={**RANDOM, "seed": 3}, model=model, terms=terms)
        found.append(last(marched(simulation, 0.02, 4)).fields)
    for name in ("velocity", "dye"):
        assert_allclose(np.asarray(found[1][name]), np.asarray(found[0][name]), atol=1e-8)


def test_a_viscosity_of_the_flow_in_a_plane(code):
    """The function of a shear rate of 0 everywhere is the number 0.05."""
    found = []
    for coefficient in ({"path": code, "function": "thinned"}, 0.05):
        term = {"name": "term", "kind": "viscosity", "coefficients": {"velocity": coefficient}}
        start = {"kind": "taylor_green", "amplitude": 1e-9}
        simulation = flow(8, 8, initial=start, terms=[term], time=FEW_STAGES)
        found.append(values(simulation, last(marched(simulation, 0.1, 2))))
    assert_allclose(found[0], found[1], rtol=1e-6)


def test_a_diffusivity_of_the_place_gives_its_steady_profile():
    """D u' = const: -div(-D grad(theta + G x)) vanishes where D (theta' + G) is uniform. With D = 1 /
    (1 + a cos x) that is theta = a G sin x."""
    scalar = {"name": "dye", "diffusivity": 0, "mean_gradient": [2, 0, 0]}
    model = {"kind": "navier_stokes", "viscosity": 0.1, "scalars": [scalar]}
    start = {"kind": "random", "energy": 1e-30, "peak": 2}
    term = {"name": "layer", "kind": "viscosity", "coefficients": {"dye": "1/(1 + 0.3*cos(x))"}}
    simulation = flow(24, 8, 8, initial=start, model=model, terms=[term])
    simulation.check_start()  # D is positive: at least 0.77
    x = simulation.transform.physical.coordinates()[0]
    values = jnp.broadcast_to(0.6 * jnp.sin(x), simulation.transform.physical.shape)
    state = simulation.state_from({"dye": values, "velocity": jnp.zeros((3, *values.shape))})
    rates, _ = jax.jit(lambda s: tendency(simulation.model, s.fields, s.time))(state)
    assert abs(rates["dye"]).max() < 1e-9  # 0.15^8, the series of D beyond the kept modes


@pytest.mark.plugins
@pytest.mark.long
def test_gradients_by_the_numbers_of_terms_are_those_of_differences(differentiate):
    """Of a drag and of modes at the end. Central differences with h = 1e-4 of numbers of order 1: h^2
    = 1e-8 relative, where rounding adds 1e-12 / h."""
    scales = {"velocity": 1, "length": 2.2}
    mask = {**DISC, "smoothing": 1.2}
    edge = {"kind": "box", "center": [0, 3], "size": [1, None], "smoothing": 1}
    terms = [
        {**relax("disc", mask=mask, velocity="body"), "coefficients": scales},
        relax("inflow", mask=edge, velocity=[1, "0.1*t"]),
    ]
    start = {"kind": "uniform", "velocity": [1, 0]}
    simulation = flow(16, 16, initial=start, terms=terms, viscosity=0.05)
    layout = simulation.transform.layout

    def loss(state, simulation):
        weight = jnp.cos(layout.integers("y"))
        modes = layout.sum(weight * abs(state.fields["velocity"][0]) ** 2)
        return simulation.diagnostics(state)["drag_disc"] + modes

    gradient = differentiate(simulation, loss, steps=3, dt=0.05)
    keys = {
        "terms.0.mask.radius": 1.1,
        "terms.0.mask.center.0": 2.0,
        "terms.0.relaxation_time": 0.2,
        "terms.1.target.velocity.0": 1.0,
    }
    assert_slopes(gradient, keys, 1e-4)


def test_dt_resolves_the_rate_of_a_term():
    """dt = cfl k dx tau without a flow, with k = 3 of 12 points: cfl tau pi / 2."""
    rest = {"kind": "taylor_green", "amplitude": 1e-9}
    simulation = flow(12, 12, initial=rest, terms=[relax(tau=0.01, velocity=[0, 0])])
    row = measured(simulation)
    assert row["rate"] == pytest.approx(1 / (0.01 * np.pi / 2), rel=1e-6)
    step = compiled_step(simulation)
    state = step(simulation.state, 0.5 / row["rate"])
    assert measured(simulation, state)["energy"] < measured(simulation)["energy"]


SPACE = """\
model: {kind: navier_stokes, viscosity: 0.1}
grid: {shape: [8, 8, 8]}
initial: {kind: abc}
time: {stop: 1}
devices: {platform: cpu}
terms: [{name: a, kind: relax, relaxation_time: 1, target: {velocity: [1, 0, 0]}}]
"""
CASES = {
    "space": SPACE,
    "plane": SPACE.replace("[8, 8, 8]", "[8, 8]").replace("abc", "taylor_green"),
    "waves": SPACE.replace("navier_stokes, viscosity: 0.1", "schrodinger_poisson").replace(
        "abc", "uniform"
    ),
    "kinematic": SPACE.replace("navier_stokes,", "mhd, kinematic: true, resistivity: 1,"),
    "dyed": SPACE.replace("0.1}", "0.1, scalars: [{name: dye, diffusivity: 1}]}"),
}
REFUSED = """
space | terms.0.target={}
    terms.0.target
space | terms.0.target={velocity: [1, 0]}
    terms.0.target.velocity: 3 numbers or formulas
space | terms.0.target={velocity: 1}
    terms.0.target.velocity: 3 numbers or formulas
space | terms.0.target={velocitty: [1, 0, 0]}
    terms.0.target: unknown field 'velocitty', did you mean velocity?
space | terms.0.target={velocity: [1, 0, s]}
    's' is no formula of numbers, x, y, z, t
plane | terms.0.target={velocity: [1, z]}
    terms.0.target.velocity: z: only numbers
space | terms.0.target={velocity: body}
    terms.0.target.velocity: body is the velocity of a mask
space | terms.0.mask={kind: sphere, center: [1, 1, 1], radius: 4}
    terms.0.mask.radius: the body is 8 long along x, but the box 6.28319
space | terms.0.mask={kind: sphere, center: [1, 1], radius: 1}
    terms.0.mask.center: three numbers are needed
space | terms.0.mask={kind: sphere, center: [x, 1, 1], radius: 1}
    a body moves as a function of t
space | terms.0.mask={kind: half_space, axis: z, above: 9}
    terms.0.mask.above: has to lie within the box
space | terms.0.mask={kind: half_space, axis: z}
    give one of above and below
space | terms=[{name: a, kind: viscosity, coefficients: {velocity: 0.1 - x}}]
    terms.0.coefficients.velocity: is -
space | terms=[{name: a, kind: viscosity, coefficients: {dye: 1}}]
    terms.0.coefficients.dye: no field with a viscosity or diffusivity; those are velocity
space | terms.0.mask={kind: python, path: OWN, function: too_large}
    terms.0.mask: its values lie between 0 and 1.5 at the start; they have to lie in [0, 1]
waves | terms.0.target={psi: 1}
    terms: schrodinger_poisson takes no terms
kinematic | terms.0.name=a
    terms.0.target: velocity has no effect: model.kinematic
dyed | terms.0.target={dye: 1} & terms.0.forces=true
    terms.0.forces: needs a target for velocity
"""


@pytest.mark.parametrize("case, changes, words", rows(REFUSED))
def test_a_term_that_cannot_act_is_refused_in_a_line(case, changes, words, tmp_path, code):
    path = write_case(tmp_path, CASES[case])
    given = [change.replace("OWN", code) for change in changes]
    assert words in refusal(lambda: opened(path, *given).check_start())


@pytest.mark.long
def test_tracers_and_particles_stop_at_a_body_and_stay_with_it(tmp_path):
    """A ball that moves to the right through a fluid that moves upwards: particles outside follow
    the fluid, those inside the ball."""
    ball = {"kind": "sphere", "center": ["3 + 0.5*t", 3, 3], "radius": 1}
    term = relax("ball", tau=1e6, mask=ball, velocity="body")
    path = tmp_path / "places.py"
    path.write_text(
        "import jax.numpy as jnp\n\n\ndef places(id):\n"
        "    return {'position': jnp.stack([3.0 + 2.5 * (id % 2), 3.1 + 0 * id, 2.9 + 0 * id])}\n"
    )
    start = {"kind": "python", "path": str(path), "function": "places"}
    particles = [
        {"name": "tracers", "kind": "tracer", "count": 2, "start": start, "stops_at": "ball"},
        {"name": "free", "kind": "tracer", "count": 2, "start": start},
        {"name": "drops", "kind": "inertial", "count": 2, "start": start, "relaxation_time": 1},
    ]
    particles[2]["stops_at"] = "ball"
    simulation = flow(
        *(8, 8, 8),
        initial={"kind": "uniform", "velocity": [0, 0.3, 0]},
        terms=[term],
        particles=particles,
    )
    final = last(marched(simulation, 0.1, 5)).particles
    for name in ("tracers", "free", "drops"):
        id, moved = (np.asarray(a) for a in (final[name].id, final[name].records["displacement"]))
        stuck, loose = moved[:, id == 0].ravel(), moved[:, id == 1].ravel()
        assert_allclose(loose, [0, 0.15, 0], atol=1e-6)
        assert_allclose(stuck, [0, 0.15, 0] if name == "free" else [0.25, 0, 0], atol=1e-6)
