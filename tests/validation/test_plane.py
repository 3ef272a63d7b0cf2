"""The shipped models in two dimensions: exact solutions, invariants, and the box of one layer that
each plane is."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flow_support import flow, last, marched, measured
from numpy.testing import assert_allclose
from tiers import slow

from simulator import Simulation, load_config
from simulator.physics.initial.random import MagneticSettings, solenoidal
from simulator.physics.models import State
from simulator.physics.models.observables.resolution import dissipation_scale
from simulator.spectral import Grid, Transform, make_transform
from simulator.spectral.bins import Bins
from simulator.spectral.operators import cross, curl, divergence, inverse_curl

EQUATIONS = Path(__file__).parents[2] / "configs" / "equations"

START = """\
import jax.numpy as jnp


def start(x, y, z=None, names=()):
    u = jnp.sin(x) * jnp.cos(2 * y) + 0.3 * jnp.cos(y), 0.2 * jnp.sin(2 * x) - 0.5 * jnp.cos(x) * jnp.sin(2 * y)
    b = jnp.cos(y) + 0.3 * jnp.sin(2 * y + x), jnp.sin(2 * x) - 0.15 * jnp.sin(2 * y + x)
    theta = jnp.sin(x) * jnp.sin(y) + jnp.cos(2 * x + y)
    zero = 0 if z is None else 0 * z
    u, b = (tuple(c + zero for c in (v if z is None else (*v, 0 * x))) for v in (u, b))
    theta = theta + zero
    found = {"velocity": u, "magnetic": b, "buoyancy": theta, "dye": theta, "density": 1 + 0.1 * theta}
    found["psi"] = jnp.sqrt(1 + 0.2 * theta) * jnp.exp(1j * jnp.sin(x + y + zero))
    return {name: found[name] for name in names}
"""
THIRD = {"gravity", "mean_gradient", "external_acceleration", "frequency", "mean_field"}
"""Keys with a number for each axis."""
MODELS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "navier_stokes": (
        {
            "viscosity": 0.02,
            "drag": {"coefficient": 0.1, "below": 1.5},
            "scalars": [{"name": "dye", "diffusivity": 0.01, "mean_gradient": [0.5, -1]}],
        },
        ["velocity", "dye"],
    ),
    "boussinesq": (
        {"viscosity": 0.02, "diffusivity": 0.01, "stratification": -0.5, "gravity": [1, -2]},
        ["velocity", "buoyancy"],
    ),
    "mhd": ({"viscosity": 0.02, "resistivity": 0.01}, ["velocity", "magnetic"]),
    "self_gravitating_gas": (
        {
            "sound_speed": 2.0,
            "polytropic_exponent": 1.4,
            "viscosity": 0.02,
            "bulk_viscosity": 0.01,
            "gravitational_constant": 0.1,
            "external_acceleration": [0.1, 0.2],
            "max_edge_energy": 1,
        },
        ["density", "velocity"],
    ),
    "schrodinger_poisson": (
        {
            "self_interaction": 0.2,
            "external_potential": {"kind": "harmonic", "frequency": [0.5, 0.3]},
        },
        ["psi"],
    ),
}


def with_third(block: Any) -> Any:
    """A block with 0 along z."""
    if isinstance(block, dict):
        return {k: [*v, 0] if k in THIRD else with_third(v) for k, v in block.items()}
    return [with_third(v) for v in block] if isinstance(block, list) else block


def field(simulation: Simulation, state: State, name: str) -> np.ndarray:
    """Values on the grid, without padding."""
    inside = (slice(n) for n in simulation.grid.seen(simulation.grid.shape))
    return np.asarray(simulation.field_program(name)(state))[(..., *inside)]


# The ideal invariants of mhd in a plane are among those of tests/validation/test_models.py.
@pytest.mark.parametrize("kind", [slow(k) if k == "mhd" else k for k in MODELS])
def test_a_plane_is_a_layer_without_its_third_axis(kind: str, tmp_path):
    """On 12 x 10 points and two devices, and on 12 x 10 x 1 and one: the same up to round-off of
    order 1."""
    model, names = MODELS[kind]
    (tmp_path / "start.py").write_text(START)
    start = {"kind": "python", "path": str(tmp_path / "start.py"), "function": "start"}
    start["parameters"] = {"names": names}
    dealias = "none" if kind == "schrodinger_poisson" else "two_thirds"
    method = "kick_drift_kick" if kind == "schrodinger_poisson" else "rk2"
    ends = []
    for shape, count, block in (((12, 10), 2, model), ((12, 10, 1), 1, with_third(model))):
        blocks = {"model": {"kind": kind, **block}, "time": {"stop": 1, "integrator": method}}
        made = flow(*shape, initial=start, count=count, grid={"dealias": dealias}, **blocks)
        ends.append((made, last(marched(made, 0.01, 10))))
    (plane, ours), (layer, theirs) = ends
    for name in plane.model.fields:
        found = field(plane, ours, name)
        wanted = field(layer, theirs, name)[..., 0]
        if plane.model.fields[name].components:
            assert len(found) == 2 and not wanted[2].any()
            wanted = wanted[:2]
        assert_allclose(found, wanted, rtol=0, atol=1e-13)


def test_taylor_green_vortices_decay_exactly():
    """u = u(0) exp(-nu k^2 t), k^2 = (2 pi / Lx)^2 + (2 pi / Ly)^2, whatever the steps; 50 steps of
    round-off. The integral and the Taylor scale of a flow of one wavenumber k are both 2 / k."""
    box = (2 * np.pi, np.pi)
    nu = 0.05
    made = flow(
        16, 12, initial={"kind": "taylor_green"}, viscosity=nu, count=2, grid={"box": list(box)}
    )
    first, *_, end = marched(made, 0.02, 50)
    k2 = 1 + 4
    exact = field(made, first, "velocity") * np.exp(-nu * k2 * 1.0)
    assert_allclose(field(made, end, "velocity"), exact, rtol=0, atol=1e-14)
    row = measured(made, end)
    assert row["integral_scale"] == pytest.approx(2 / k2**0.5, rel=1e-12)
    assert row["taylor_scale"] == pytest.approx(2 / k2**0.5, rel=1e-12)
    assert row["u_rms"] ** 2 == pytest.approx(row["energy"], rel=1e-12)
    assert row["enstrophy"] == pytest.approx(k2 * row["energy"], rel=1e-12)
    assert row["enstrophy_dissipation"] == pytest.approx(2 * nu * k2 * row["enstrophy"], rel=1e-12)
    assert not {"helicity", "mean_velocity_z", "u_rms_z", "kolmogorov_scale"} & row.keys()


def test_it_is_the_vorticity_equation():
    """The same start and steps as configs/equations/turbulence_2d.yaml, whose solution is the
    vorticity. Both are the same system of ordinary differential equations, so that even the errors
    of the steps agree."""
    usual = ("grid.shape=32,32", "devices.platform=cpu", "devices.count=1")
    theirs = Simulation(
        load_config(EQUATIONS / "turbulence_2d.yaml", usual), report=lambda line: None
    )
    viscosity = theirs.config.model.parameters["viscosity"]
    grid = {"box": theirs.config.grid.box}
    ours = flow(32, 32, initial={"kind": "taylor_green"}, viscosity=viscosity, grid=grid)
    layout = ours.transform.layout
    velocity = layout.constrain(inverse_curl(layout, theirs.state.fields["vorticity"]))
    ours.state = ours.placed(ours.begin({"velocity": velocity}))
    wanted, found = (last(marched(made, 0.01, 20)) for made in (theirs, ours))
    vorticity = curl(layout, found.fields["velocity"])
    exact = wanted.fields["vorticity"]
    assert float(abs(exact - theirs.state.fields["vorticity"]).max()) > 0.01
    assert_allclose(vorticity, exact, rtol=0, atol=1e-12)


@pytest.fixture(scope="module")
def transform() -> Transform:
    return make_transform(Grid.of((32, 32), (2 * np.pi, 2 * np.pi)), jax.devices()[:1])


def test_curls_in_a_plane(transform: Transform):
    """curl curl v = k^2 v of a solenoidal v; the inverse; (a x b)^2 + (a . b)^2 = a^2 b^2; a x n b
    lies across a."""
    layout = transform.layout

    @jax.jit
    def fields() -> dict[str, jax.Array]:
        v = solenoidal(layout, MagneticSettings(), lambda k: k**2 * jnp.exp(-k), 1)
        omega = curl(layout, v)
        return {
            "v": v,
            "divergence": divergence(layout, v),
            "omega": omega,
            "twice": curl(layout, omega) * layout.inverse_k_squared(),
            "back": curl(layout, inverse_curl(layout, v)),
        }

    found = fields()
    assert found["omega"].shape == layout.shape and np.abs(found["divergence"]).max() < 1e-14
    for name in ("twice", "back"):
        assert_allclose(found[name], found["v"], rtol=0, atol=1e-14)
    a, b = np.random.default_rng(0).normal(size=(2, 2, 4, 1, 1))
    squares = (a**2).sum(0) * (b**2).sum(0)
    assert_allclose(np.asarray(cross(a, b)) ** 2 + (a * b).sum(0) ** 2, squares, rtol=1e-14)
    assert_allclose(cross(a, b[0]), -np.asarray(cross(b[0], a)), rtol=1e-15)
    assert_allclose((a * np.asarray(cross(a, b[0]))).sum(0), 0, atol=1e-15)


def test_directional_spectra_have_the_axes_of_the_user(transform: Transform):
    """The mode k = (2, 3) has the number 2 along x and across y, 3 along y and across x."""
    layout = transform.layout
    at = layout.order.index("y"), layout.order.index("z")
    for axis, along, across in (("x", 2, 3), ("y", 3, 2)):
        for direction, wanted in (("parallel", along), ("perpendicular", across)):
            numbers = np.broadcast_to(Bins(layout, axis, direction).numbers(), layout.shape)
            place = [0, 0, 0]
            place[at[0]], place[at[1]] = 2, 3
            assert numbers[tuple(place)] == wanted


def test_the_dissipation_scale_of_a_cascade_of_enstrophy():
    """(nu^3 / chi)^(1/6), and with hyperviscosity the root of nu k^2 + nu_2 k^4 = chi^(1/3)."""

    terms = [(1, 1e-3), (2, 1e-6)]
    alone, both = (
        float(dissipation_scale(terms[:n], jnp.float64(0.2), "enstrophy")) for n in (1, 2)
    )
    assert alone == pytest.approx((1e-9 / 0.2) ** (1 / 6), rel=1e-13)
    assert 1e-3 / both**2 + 1e-6 / both**4 == pytest.approx(0.2 ** (1 / 3), rel=1e-12)


def test_a_random_force_has_its_power():
    """<|f|^2> = rate / T on average: over 400 seeds' 20 complex numbers each the mean is within 4 /
    sqrt(8000)."""
    block = {"kind": "ornstein_uhlenbeck", "rate": 0.3, "correlation_time": 0.5, "band": [1, 2.5]}
    made = flow(12, 12, initial={"kind": "taylor_green"}, viscosity=0.1, forcing=block)
    forcing = made.forcing
    layout = made.transform.layout

    @jax.jit
    def square(step: jax.Array) -> tuple[jax.Array, jax.Array]:
        memory = forcing.renewed(
            forcing.memory(), step, jnp.float64(1e9)
        )  # has forgotten all steps before
        f = forcing.acceleration({}, jnp.zeros(()), memory)["velocity"]
        return layout.inner(f, f).sum(), abs(divergence(layout, f)).max()

    found, divergences = jax.lax.map(square, jnp.arange(400))
    assert float(found.mean()) == pytest.approx(0.6, rel=4 / 8000**0.5)
    assert float(divergences.max()) < 1e-14
