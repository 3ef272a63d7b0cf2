"""Spherical truncation with phase shifts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simulator.config import run_config_class
from simulator.models.model import tendency
from simulator.models.navier_stokes import NavierStokes, NavierStokesSettings
from simulator.run.simulation import Simulation
from simulator.spectral import Grid, make_transform
from simulator.spectral.operators import project
from simulator.spectral.random import gaussian
from simulator.stepping.shifts import phase_shift

GRID = Grid((12, 12, 12), dealias="spherical")
FINE = Grid((24, 24, 24), dealias="two_thirds")


@pytest.fixture(scope="module", autouse=True)
def started():
    jax.devices()


def model(grid):
    transform = make_transform(grid, jax.devices()[:1], np.float64)
    return NavierStokes(NavierStokesSettings(viscosity=0.0), transform)


def modes(layout, field):
    """Coefficients by wavenumber, of modes of the state."""
    field, mask = np.asarray(field), np.broadcast_to(np.asarray(layout.mask), layout.shape)
    labels = [layout.labels[a] for a in layout.order]
    found = {}
    for at in np.argwhere(mask):
        k = dict(zip(layout.order, (int(line[i]) for line, i in zip(labels, at, strict=True)), strict=True))
        found[k["x"], k["y"], k["z"]] = field[(slice(None), *at)]
    return found


def test_two_shifts_half_a_spacing_apart_cancel_all_aliasing():
    """The mean of a pair is the exact convolution, as a grid of twice the points has it; each alone is not."""
    coarse, fine = model(GRID), model(FINE)
    field = project(coarse.transform.layout, gaussian(coarse.transform.layout, 3, 3))
    known = modes(coarse.transform.layout, field)
    layout = fine.transform.layout
    there = np.zeros((3, *layout.shape), complex)
    places = {a: {int(k): i for i, k in enumerate(layout.labels[a])} for a in "xyz"}
    for k, value in known.items():
        label = dict(zip("xyz", k, strict=True))
        there[(slice(None), *(places[a][label[a]] for a in layout.order))] = value
    exact = modes(layout, tendency(fine, {"velocity": jnp.asarray(there)}, jnp.float64(0))[0]["velocity"])
    pair = [
        modes(
            coarse.transform.layout,
            tendency(coarse, {"velocity": field}, jnp.float64(0), shift=shift)[0]["velocity"],
        )
        for shift in (phase_shift(GRID, jnp.int64(5), stage) for stage in range(2))
    ]
    largest = max(abs(v).max() for v in exact.values())
    alone = max(abs(pair[0][k] - exact[k]).max() for k in known)
    mean = max(abs((pair[0][k] + pair[1][k]) / 2 - exact[k]).max() for k in known)
    assert alone > 1e-3 * largest
    assert mean < 1e-13 * largest


def test_shifts_depend_on_the_step_alone():
    one, same, other = (
        np.array([phase_shift(GRID, jnp.int64(n), stage) for stage in range(4)], float) for n in (7, 7, 8)
    )
    np.testing.assert_array_equal(one, same)
    assert abs(one[0] - other[0]).min() > 1e-3
    np.testing.assert_allclose(one[1] - one[0], np.array(GRID.spacing) / 2)
    assert phase_shift(Grid((8, 8, 8)), jnp.int64(0), 0) is None


def configured(dealias, points=12, **time):
    return run_config_class().model_validate(
        {
            "model": {"kind": "navier_stokes", "viscosity": 0.02},
            "initial": {"kind": "taylor_green"},
            "grid": {"shape": [points] * 3, "dealias": dealias},
            "time": {"stop": 1.0, **time},
            "devices": {"platform": "cpu", "count": 1},
        }
    )


@pytest.mark.slow
def test_a_flow_that_fills_the_grid_is_nearer_to_the_truth():
    """Than with two_thirds, which keeps a third of the modes: against a grid that resolves it."""
    found = {}
    for dealias, points in (("spherical", 12), ("two_thirds", 12), ("two_thirds", 32)):
        simulation = Simulation(configured(dealias, points))
        state, step = simulation.state, jax.jit(simulation.step)
        for _ in range(50):
            state = step(state, 0.05)
        found[dealias, points] = float(simulation.diagnostics(state)["enstrophy"])
    truth = found["two_thirds", 32]
    errors = {name: abs(found[name, 12] / truth - 1) for name in ("spherical", "two_thirds")}
    assert errors["spherical"] < errors["two_thirds"] / 3, errors


@pytest.mark.parametrize(
    ("dealias", "limit"), [("two_thirds", "1.35"), ("spherical", "0.95"), ("none", "0.9")]
)
def test_more_modes_lower_the_cfl_limit(dealias, limit):
    configured(dealias, cfl=float(limit))
    with pytest.raises(ValueError, match=f"must be at most {limit}"):
        configured(dealias, cfl=float(limit) + 0.1)
