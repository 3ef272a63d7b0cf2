"""Steps by error: what they reach, that rejected steps leave no trace, and that nothing but the state
decides dt."""

from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flow_support import flow
from numpy.testing import assert_allclose, assert_array_equal

from simulator import Simulation
from simulator.errors import UserError
from simulator.physics.models import State
from simulator.simulation.advance import Until
from simulator.simulation.error_control import NEXT, REJECTED, rung

STOP = 3.0
STILL = {"kind": "taylor_green"}
NOISE = {
    "kind": "ornstein_uhlenbeck",
    "rate": 0.5,
    "band": [1, 2],
    "correlation_time": 0.5,
    "seed": 3,
}


def by_error(asked: float, count: int = 1, stop: float = STOP, **blocks) -> Simulation:
    time = {"stop": stop, "error": asked, **blocks.pop("time", {})}
    return flow(16, 16, 16, initial=STILL, viscosity=0.02, count=count, time=time, **blocks)


def advanced(simulation: Simulation, state: State, pieces: Sequence[int] = (1 << 30,)) -> State:
    """The state at the end, reached in loops of so many steps."""
    for steps in pieces:
        state = simulation.advance(
            state, Until(np.float64(simulation.config.time.stop), np.inf, np.int64(steps))
        )
    return state


def velocity(state: State) -> np.ndarray:
    return np.asarray(state.fields["velocity"])


def distance(one: State, other: State) -> float:
    difference = velocity(one) - velocity(other)
    return float(np.linalg.norm(difference) / np.linalg.norm(velocity(other)))


@pytest.mark.parametrize("integrator", ["rk4", "etdrk4"])
def test_the_error_of_a_run_is_what_was_asked_within_a_factor_of_five(integrator):
    exact = by_error(1e-10, time={"integrator": integrator})
    wanted = advanced(exact, exact.state)
    for asked in (1e-6, 1e-8):
        run = by_error(asked, time={"integrator": integrator})
        reached = distance(advanced(run, run.state), wanted) / STOP
        assert asked / 5 < reached < 5 * asked


def test_the_error_of_a_force_in_time_alone_is_seen(tmp_path):
    """N(u, t) = f(t): all stages see the same u, so that only the quadrature errs."""
    code = "{'velocity': (0 * x, 0.1 * jnp.sin(5 * t) + 0 * x, 0 * x)}"
    (tmp_path / "force.py").write_text(
        f"import jax.numpy as jnp\n\ndef force(x, y, z, t):\n    return {code}\n"
    )
    force = {"kind": "python", "path": str(tmp_path / "force.py"), "function": "force"}
    run = by_error(1e-4, forcing=force)
    still = run.state_from({})
    end = advanced(run, still)
    mean = float(velocity(end)[1, 0, 0, 0].real)
    wanted = 0.1 * (1 - np.cos(5 * STOP)) / 5
    assert 1e-9 < abs(mean / wanted - 1) < 5e-4


def test_rejected_steps_leave_no_trace():
    """The same steps with dt given end in the same state, random forces included."""
    run = by_error(1e-6, forcing=NOISE)
    state = run.state
    control = {**state.memory.control, NEXT: rung(jnp.float64(STOP))}  # far too long
    state = replace(state, memory=replace(state.memory, control=control))
    given = flow(16, 16, 16, initial=STILL, viscosity=0.02, forcing=NOISE, time={"stop": STOP})
    plain = given.state
    step = jax.jit(given.step)
    while float(state.time) < STOP:
        state = advanced(run, state, [1])
        plain = step(plain, float(state.dt))
    assert int(state.memory.control[REJECTED]) > 0
    assert distance(state, plain) < 1e-12


@pytest.mark.parametrize("blocks", [{}, {"forcing": NOISE}], ids=("smooth", "noise"))
def test_a_loop_in_pieces_ends_in_the_same_bits(blocks):
    run = by_error(1e-6, **blocks)
    whole = advanced(run, run.state)
    run.rewind()
    pieces = advanced(run, run.state, [1, 2, 3, 1 << 30])
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(pieces), strict=True):
        assert_array_equal(one, other)


@pytest.mark.parametrize("precision", ["double", "single"])
def test_dt_is_the_same_on_every_layout(precision):
    ends = {}
    values = {}
    for count in (1, 2, 4):
        run = by_error(1e-5, count, precision=precision)
        ends[count] = run.state = advanced(run, run.state)
        values[count] = np.asarray(run.fields["velocity"])
    for count in (2, 4):
        assert float(ends[count].dt) == float(ends[1].dt)
        assert int(ends[count].step) == int(ends[1].step)
        least = 1e-12 if precision == "double" else 1e-5
        assert_allclose(values[count], values[1], rtol=0, atol=least)


def test_stability_limits_dt_where_accuracy_does_not():
    run = by_error(0.1)
    end = advanced(run, run.state, [20])
    limit = run.integrator.max_cfl["two_thirds"]
    rate = float(run.diagnostics(end)["rate"])
    assert float(end.dt) * rate < 1.2 * limit
    assert np.isfinite(velocity(end)).all()


@pytest.mark.parametrize("integrator", ["rk2", "rk3"])
def test_an_integrator_without_an_estimate_is_refused(integrator):
    with pytest.raises(
        (UserError, ValueError), match=r"does not estimate the error.*rk4 or etdrk4"
    ):
        by_error(1e-4, time={"integrator": integrator})


def test_a_moving_grid_is_refused():
    with pytest.raises((UserError, ValueError), match="phase_shift moves the grid"):
        by_error(1e-4, grid={"dealias": "phase_shift"})


def test_rounded_exchanges_are_refused():
    with pytest.raises((UserError, ValueError), match="single rounds the stages"):
        by_error(1e-4, fft={"exchange": "single"})


def test_a_start_at_rest_takes_the_same_steps_on_every_layout():
    """The first steps have errors of round-off alone."""
    force = {"kind": "kolmogorov", "amplitude": 1.0, "wavenumber": 1}
    ends = []
    for count in (1, 2):
        run = flow(
            16,
            16,
            16,
            initial={"kind": "uniform"},
            viscosity=0.02,
            count=count,
            forcing=force,
            time={"stop": STOP, "error": 1e-6},
        )
        ends.append(advanced(run, run.state))
    assert float(ends[0].dt) == float(ends[1].dt) and int(ends[0].step) == int(ends[1].step)


def test_one_choice_of_dt():
    with pytest.raises((UserError, ValueError), match="excludes time"):
        by_error(1e-4, time={"cfl": 0.5})
