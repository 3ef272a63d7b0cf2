"""The largest CFL numbers that are accepted, and what is refused beyond them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simulator.config import run_config_class
from simulator.physics.models.navier_stokes import NavierStokes, NavierStokesSettings
from simulator.physics.stepping import INTEGRATORS
from simulator.simulation.advance import Integrator, TimeStep, Until, advance_of, beginning
from simulator.simulation.simulation import Simulation
from simulator.spectral import Grid, make_transform
from simulator.spectral.operators import project
from simulator.spectral.random import gaussian

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


def inviscid(name: str, dealias: str) -> tuple[NavierStokes, Integrator]:
    transform = make_transform(Grid((16, 16, 16), dealias=dealias), jax.devices()[:1], np.float64)
    return NavierStokes(NavierStokesSettings(viscosity=0.0), transform), INTEGRATORS[name]()


def taylor_green(model: NavierStokes) -> jax.Array:
    x, y, z = np.meshgrid(*[2 * np.pi / 16 * np.arange(16)] * 3, indexing="ij")
    u = np.stack([np.sin(x) * np.cos(y) * np.cos(z), -np.cos(x) * np.sin(y) * np.cos(z), 0 * x])
    return model.transform.forward(jnp.asarray(u))


def equal(model: NavierStokes) -> jax.Array:
    """Modes of equal energy: the equilibrium that inviscid flows end in."""
    layout = model.transform.layout
    return layout.constrain(project(layout, gaussian(layout, 3, 3)))


@pytest.mark.parametrize(("name", "dealias", "limit"), PAIRS)
def test_an_inviscid_flow_keeps_its_energy_at_the_limit(name, dealias, limit):
    """Within 1 % for 400 steps, in which a Taylor-Green vortex fills all modes. Rogallo's aliasing errors feed most
    on modes that are all there from the beginning."""
    model, integrator = inviscid(name, dealias)
    start = (equal if dealias == "rogallo" else taylor_green)(model)
    layout = model.transform.layout

    def energy(fields) -> float:
        return float(layout.inner(fields["velocity"], fields["velocity"]).sum() / 2)

    before = energy({"velocity": start})
    advance = advance_of(model, integrator, TimeStep(None, limit, None))
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


def configured(**blocks):
    return run_config_class().model_validate(
        {
            "model": {"kind": "navier_stokes", "viscosity": 0.02},
            "initial": {"kind": "taylor_green"},
            "devices": {"platform": "cpu", "count": 1},
            **blocks,
            "time": {"stop": 1.0, **blocks.get("time", {})},
        }
    )


@pytest.mark.parametrize(("name", "dealias", "limit"), PAIRS)
def test_more_is_refused(name, dealias, limit):
    def given(cfl, **time):
        chosen = {"integrator": name, **({} if cfl is None else {"cfl": cfl}), **time}
        return configured(grid={"dealias": dealias}, time=chosen)

    assert given(limit).time.cfl == limit
    assert given(None).time.cfl == min(0.5, limit) and given(None, dt=0.1).time.cfl is None
    message = f"must be at most {limit:g} with {name} and grid.dealias: {dealias}, not "
    with pytest.raises(ValueError, match=message):
        given(1.01 * limit)


@pytest.mark.parametrize("name", ["rk3", "rk4", "etdrk4"])
def test_rogallo_is_refused_where_it_would_take_the_order(name):
    message = f"rogallo works with time.integrator: rk2 only; {name} takes two_thirds or spherical or none"
    with pytest.raises(ValueError, match=message):
        configured(grid={"dealias": "rogallo"}, time={"integrator": name})


@pytest.mark.slow
def test_a_flow_that_fills_the_grid_is_nearer_to_the_truth():
    """Than with two_thirds, which keeps two thirds as many modes: against a grid that resolves it."""
    found = {}
    for dealias, points in (("spherical", 12), ("two_thirds", 12), ("two_thirds", 32)):
        simulation = Simulation(configured(grid={"dealias": dealias, "shape": [points] * 3}))
        state, step = simulation.state, jax.jit(simulation.step)
        for _ in range(50):
            state = step(state, 0.05)
        found[dealias, points] = float(simulation.diagnostics(state)["enstrophy"])
    truth = found["two_thirds", 32]
    errors = {name: abs(found[name, 12] / truth - 1) for name in ("spherical", "two_thirds")}
    assert errors["spherical"] < errors["two_thirds"] / 3, errors
