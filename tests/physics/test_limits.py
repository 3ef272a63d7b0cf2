"""The largest CFL numbers that are accepted, and what is refused beyond them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import slow

from simulator.config import run_config_class
from simulator.physics.models import outputs
from simulator.physics.models.navier_stokes import NavierStokes, NavierStokesSettings
from simulator.physics.particles.swarm import Swarm
from simulator.physics.stepping import INTEGRATORS
from simulator.simulation.advance import TimeStep, Until, advance_of, beginning
from simulator.simulation.system import System
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
LARGEST = {"two_thirds": 2 / 3, "spherical": 8**0.5 / 3, "phase_shift": 8**0.5 / 3, "none": 1.0}
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


DEFAULT = (("rk2", "two_thirds"), ("rk3", "none"), ("rk4", "two_thirds"), ("etdrk4", "spherical"))
"""Every integrator and every kind of dealiasing; the other pairs are slow."""


@pytest.mark.parametrize(
    "name, dealias, limit",
    [pair if pair[:2] in DEFAULT else slow(*pair) for pair in PAIRS if "phase" not in pair[1]],
)
def test_an_inviscid_flow_keeps_its_energy_at_the_limit(name, dealias, limit):
    """Within 1 % for 400 steps, in which the vortex fills all modes."""
    flow = model(dealias, points=16)
    start = taylor_green(flow)
    layout = flow.transform.layout

    def energy(fields) -> float:
        return float(layout.inner(fields["velocity"], fields["velocity"]).sum() / 2)

    before = energy({"velocity": start})
    advance = advance_of(
        System(flow, None, Swarm((), flow)), INTEGRATORS[name](), TimeStep(None, limit, None)
    )
    state = advance(beginning({"velocity": start}), Until(np.inf, np.inf, 400))
    assert int(state.step) == 400
    assert abs(energy(state.fields) / before - 1) < 0.01


@pytest.mark.parametrize("name, dealias, limit", PAIRS)
def test_advection_by_a_uniform_flow_is_stable_at_the_limit(name, dealias, limit):
    """A wave along an axis turns by cfl k dx in a step, at most by what the method reaches."""
    if name in REACH:
        assert limit * LARGEST[dealias] * np.pi <= REACH[name]
    else:
        # Heun: |G|^2 = 1 + (k v dt)^4 / 4; the fastest wave grows by less than 10 % in a step.
        assert (limit * LARGEST[dealias] * np.pi) ** 4 / 8 < 0.1


@pytest.mark.parametrize("name, dealias, limit", PAIRS)
def test_more_is_refused(name, dealias, limit):
    def given(cfl, **time):
        chosen = {"stop": 1.0, "integrator": name, **({} if cfl is None else {"cfl": cfl}), **time}
        flow = {
            "model": {"kind": "navier_stokes", "viscosity": 0.02},
            "initial": {"kind": "taylor_green"},
        }
        return run_config_class().model_validate(
            {**flow, "grid": {"dealias": dealias}, "time": chosen}
        )

    assert given(limit).time.cfl == limit
    assert given(None).time.cfl == min(0.5, limit) and given(None, dt=0.1).time.cfl is None
    message = f"must be at most {limit:g} with {name} and grid.dealias: {dealias}, not "
    with pytest.raises(ValueError, match=message):
        given(1.01 * limit)


def test_transfers_add_up_to_nothing_where_products_are_exact():
    """The stress conserves energy only there: here to the round-off of some 1000 modes, all of them
    excited."""
    flow = model("spherical")
    layout = flow.transform.layout
    transfer = outputs.transfers(flow, {"velocity": equal(flow)})["kinetic_energy"]
    assert abs(layout.sum(transfer)) < 1000 * np.finfo(float).eps * layout.sum(abs(transfer))
