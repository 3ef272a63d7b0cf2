"""`grid.dealias: phase_shift`: steps on one shifted grid a stage follow the exact Galerkin
truncation, that of `spherical`, in viscous flows with k_max eta >= 1."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simulator.physics.models import outputs
from simulator.physics.models.navier_stokes import NavierStokes, NavierStokesSettings
from simulator.physics.particles.swarm import Swarm
from simulator.physics.stepping import INTEGRATORS
from simulator.simulation.advance import TimeStep, Until, advance_of, beginning
from simulator.simulation.system import System
from simulator.spectral import Grid, make_transform
from simulator.spectral.operators import project
from simulator.spectral.random import gaussian

POINTS = 24
VISCOSITY = 0.035
"""k_max eta = 1.0 at the end."""


def turbulent(model: NavierStokes) -> jax.Array:
    """Random modes with an energy spectrum that falls from k = 2 on, of rms velocity 1."""
    layout = model.transform.layout
    k2 = layout.k_squared()
    field = project(layout, gaussian(layout, 5, 3) * k2 * jnp.exp(-k2 / 4))
    field = layout.constrain(jnp.where(layout.zero, 0, field))
    return field / jnp.sqrt(layout.inner(field, field).sum() / 3)


def run(name: str, dealias: str, time_step: TimeStep, stop: float = 1.0):
    """The model and the state at the time `stop`."""
    grid = Grid((POINTS,) * 3, dealias=dealias)
    transform = make_transform(grid, jax.devices()[:1], np.float64)
    flow = NavierStokes(NavierStokesSettings(viscosity=VISCOSITY), transform)
    system = System(flow, None, Swarm((), flow))
    advance = advance_of(system, INTEGRATORS[name](), time_step)
    return flow, advance(beginning({"velocity": turbulent(flow)}), Until(stop, np.inf, 10**6))


def difference(name: str, dt: float) -> float:
    """Of the fields with `phase_shift` and the exact truncation, relative to the fields."""
    fixed = TimeStep(dt, None, None)
    shifted, exact = (
        np.asarray(run(name, dealias, fixed)[1].fields["velocity"])
        for dealias in ("phase_shift", "spherical")
    )
    return float(np.linalg.norm(shifted - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("name, order", [("rk4", 2), ("etdrk4", 2), ("rk2", 1)])
def test_what_aliasing_leaves_vanishes_with_the_order_of_the_moves(name, order):
    """Of the methods of order 4 both conditions on `moves` hold, of rk2 the first alone."""
    coarse, fine = (difference(name, dt) for dt in (0.02, 0.01))
    assert coarse / fine == pytest.approx(2**order, rel=0.15)


@pytest.mark.parametrize("name", ["rk4", "etdrk4", "rk2"])
def test_a_resolved_flow_follows_the_exact_truncation_at_the_limit(name):
    """At the largest `time.cfl`: dissipation within 1e-4, the spectrum within 1e-3 up to the
    cut-off, and every large mode within 1e-3 of the largest."""
    results = []
    for dealias in ("phase_shift", "spherical"):
        limit = INTEGRATORS[name].max_cfl[dealias]
        flow, state = run(name, dealias, TimeStep(None, limit, None))
        row = outputs.diagnostics(flow, state.fields, state.time)
        spectrum = np.asarray(outputs.spectra(flow, state.fields)["kinetic_energy"])
        results.append((row, spectrum, np.asarray(state.fields["velocity"])))
    (row, spectrum, field), (exact, of_exact, exact_field) = results
    assert float(exact["k_max_eta"]) > 1
    assert float(row["dissipation"]) == pytest.approx(float(exact["dissipation"]), rel=1e-4)
    k_max = int(flow.transform.grid.largest_wavenumber)
    np.testing.assert_allclose(spectrum[1:k_max], of_exact[1:k_max], rtol=1e-3)
    large = np.asarray(flow.transform.layout.k_squared()) <= 9
    assert abs(field - exact_field)[:, large].max() < 1e-3 * abs(exact_field).max()


def test_steps_have_other_shifts_which_follow_from_their_number():
    """So that a restart finds the same, and what a step leaves averages out."""
    integrator = INTEGRATORS["rk4"]()
    shifts = [np.asarray(integrator.shifts(jnp.int64(n))) for n in range(64)]
    np.testing.assert_array_equal(shifts[3], np.asarray(integrator.shifts(jnp.int64(3))))
    for one, other in itertools.pairwise(shifts):
        assert abs(one[0] - other[0]).min() > 0.1
    mean = np.exp(2j * np.pi * np.array([s[0] for s in shifts])).mean(0)
    assert abs(mean).max() < 2 / 64
    np.testing.assert_allclose(shifts[5][3] - shifts[5][0], 0.5)


@pytest.mark.parametrize("name", ["rk4", "etdrk4", "rk2"])
def test_moves_cancel_the_errors_of_a_step(name):
    """With the weights b and the coefficients a of the methods: see `Integrator.moves`."""
    weights, inner = {
        "rk2": ([1 / 2, 1 / 2], [[0, 0], [1, 0]]),
        "rk4": (
            [1 / 6, 1 / 3, 1 / 3, 1 / 6],
            [[0, 0, 0, 0], [1 / 2, 0, 0, 0], [0, 1 / 2, 0, 0], [0, 0, 1, 0]],
        ),
    }[name.removeprefix("etd")]
    moves = np.array(INTEGRATORS[name].moves)
    b, a = np.array(weights), np.array(inner)
    assert abs((b * np.exp(2j * np.pi * moves)).sum()) < 1e-15
    again = (b[:, None] * a * np.cos(2 * np.pi * (moves[:, None] - moves))).sum()
    assert again == pytest.approx(-0.5 if name == "rk2" else 0, abs=1e-15)
