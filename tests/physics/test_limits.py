"""The largest CFL numbers that are accepted, what is refused beyond them, and Rogallo's pairing of phase shifts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simulator.config import run_config_class
from simulator.physics.models.navier_stokes import NavierStokes, NavierStokesSettings
from simulator.physics.stepping import INTEGRATORS
from simulator.simulation.advance import TimeStep, Until, advance_of, beginning, step_of
from simulator.spectral import Grid, make_transform
from simulator.spectral.operators import project
from simulator.spectral.random import gaussian
from simulator.spectral.transform import phase_shift

PAIRS = [
    (name, dealias, limit)
    for name, integrator in INTEGRATORS.items()
    if not getattr(integrator, "split", False)
    for dealias, limit in integrator.max_cfl.items()
]
REACH = {"rk4": 2.828, "etdrk4": 2.828, "rk3": 3**0.5}
"""On the imaginary axis; Heun's method has none."""
LARGEST = {"two_thirds": 2 / 3, "spherical": 8**0.5 / 3, "rogallo": 8**0.5 / 3, "none": 1.0}
"""Wavenumber along an axis that is kept, over that of Nyquist."""


def model(dealias: str, points: int = 12) -> NavierStokes:
    transform = make_transform(Grid((points,) * 3, dealias=dealias), jax.devices()[:1], np.float64)
    return NavierStokes(NavierStokesSettings(viscosity=0.0), transform)


def taylor_green(model: NavierStokes) -> jax.Array:
    x, y, z = np.meshgrid(*[2 * np.pi / 16 * np.arange(16)] * 3, indexing="ij")
    u = np.stack([np.sin(x) * np.cos(y) * np.cos(z), -np.cos(x) * np.sin(y) * np.cos(z), 0 * x])
    return model.transform.forward(jnp.asarray(u))


def equal(model: NavierStokes) -> jax.Array:
    """Modes of equal energy: the equilibrium that inviscid flows end in."""
    layout = model.transform.layout
    return layout.constrain(project(layout, gaussian(layout, 3, 3)))


DEFAULT = (("rk2", "rogallo"), ("rk3", "none"), ("rk4", "two_thirds"), ("etdrk4", "spherical"))
"""Every integrator and every kind of dealiasing; the other pairs are slow."""


@pytest.mark.parametrize(
    ("name", "dealias", "limit"),
    [pytest.param(*pair, marks=[] if pair[:2] in DEFAULT else pytest.mark.slow) for pair in PAIRS],
)
def test_an_inviscid_flow_keeps_its_energy_at_the_limit(name, dealias, limit):
    """Within 1 % for 400 steps, in which the vortex fills all modes; Rogallo's errors feed on full spectra."""
    flow = model(dealias, points=16)
    start = (equal if dealias == "rogallo" else taylor_green)(flow)
    layout = flow.transform.layout

    def energy(fields) -> float:
        return float(layout.inner(fields["velocity"], fields["velocity"]).sum() / 2)

    before = energy({"velocity": start})
    advance = advance_of(flow, INTEGRATORS[name](), TimeStep(None, limit, None))
    state = advance(beginning({"velocity": start}), Until(np.inf, np.inf, 400))
    assert int(state.step) == 400
    assert abs(energy(state.fields) / before - 1) < 0.01


@pytest.mark.parametrize(("name", "dealias", "limit"), PAIRS)
def test_advection_by_a_uniform_flow_is_stable_at_the_limit(name, dealias, limit):
    """A wave along an axis turns by cfl k dx in a step, at most by what the method reaches."""
    if name in REACH:
        assert limit * LARGEST[dealias] * np.pi <= REACH[name]
    else:
        # Heun: |G|^2 = 1 + (k v dt)^4 / 4; the fastest wave grows by less than 10 % in a step.
        assert (limit * LARGEST[dealias] * np.pi) ** 4 / 8 < 0.1


@pytest.mark.parametrize(("name", "dealias", "limit"), PAIRS)
def test_more_is_refused(name, dealias, limit):
    def given(cfl, **time):
        chosen = {"stop": 1.0, "integrator": name, **({} if cfl is None else {"cfl": cfl}), **time}
        flow = {"model": {"kind": "navier_stokes", "viscosity": 0.02}, "initial": {"kind": "taylor_green"}}
        return run_config_class().model_validate({**flow, "grid": {"dealias": dealias}, "time": chosen})

    assert given(limit).time.cfl == limit
    assert given(None).time.cfl == min(0.5, limit) and given(None, dt=0.1).time.cfl is None
    message = f"must be at most {limit:g} with {name} and grid.dealias: {dealias}, not "
    with pytest.raises(ValueError, match=message):
        given(1.01 * limit)


GRID = Grid((12, 12, 12), dealias="rogallo")


@pytest.fixture(scope="module")
def models() -> dict[str, NavierStokes]:
    """The same modes, with Rogallo's shifts and without aliasing."""
    return {name: model(name) for name in ("rogallo", "spherical")}


@pytest.fixture(scope="module")
def field(models) -> jax.Array:
    """All modes are excited, so that aliasing errors are as large as the tendency; u_rms = 1."""
    u, layout = equal(models["rogallo"]), models["rogallo"].transform.layout
    return u / jnp.sqrt(layout.inner(u, u).sum())


def test_stages_have_opposite_aliasing_errors_and_spherical_transfers_add_up_to_nothing(models, field):
    def rates(name: str, stage: int | None = None) -> jax.Array:
        shift = None if stage is None else phase_shift(GRID, jnp.int64(0), stage)
        return models[name].tendency({"velocity": field}, jnp.float64(0), shift=shift)[0]["velocity"]

    exact = rates("spherical")
    first, second = (rates("rogallo", stage) - exact for stage in range(2))
    size = float(abs(exact).max())
    assert abs(first).max() > 1e-2 * size
    assert abs(first + second).max() < 1e-13 * size
    # The stress conserves energy only where products are exact: here to the round-off of some 1000 modes.
    layout = models["spherical"].transform.layout
    transfer = models["spherical"].transfers({"velocity": field})["kinetic_energy"]
    assert abs(layout.sum(transfer)) < 1000 * np.finfo(float).eps * layout.sum(abs(transfer))


@pytest.mark.parametrize(("name", "order"), [("rk2", 2), ("rk4", 2), ("etdrk4", 2), ("rk3", 1)])
def test_order_of_the_aliasing_error_of_a_step(models, field, name, order):
    """Halved twice: 2 where the stages' weights cancel. So rk3 is refused, and order 4, which would be lost."""
    steps = {kind: jax.jit(step_of(m, INTEGRATORS[name]())) for kind, m in models.items()}
    start = beginning({"velocity": field})
    errors = []
    for dt in (4e-3, 2e-3, 1e-3):
        one, other = (steps[kind](start, dt).fields["velocity"] for kind in steps)
        errors.append(float(abs(one - other).max()))
    measured = np.log2(np.array(errors[:-1]) / errors[1:])
    assert (abs(measured - order) < 0.1).all(), measured


def test_shifts_depend_on_the_step_alone():
    stages = range(4)
    one, same, other = (np.array([phase_shift(GRID, jnp.int64(n), s) for s in stages], float) for n in (7, 7, 8))
    np.testing.assert_array_equal(one, same)
    assert abs(one[0] - other[0]).min() > 1e-3
    np.testing.assert_allclose(one[1] - one[0], np.array(GRID.spacing) / 2)
    assert phase_shift(Grid((8, 8, 8)), jnp.int64(0), 0) is None
    assert phase_shift(Grid((8, 8, 8), dealias="spherical"), jnp.int64(0), 0) is None
