"""Ensembles over devices: members side by side against the same runs alone, what they communicate,
gradients."""

import itertools
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from peers.collectives import KINDS, collectives
from run_support import CASE, simulation, write_case
from tiers import slow

from simulator import Simulation
from simulator.errors import UserError
from simulator.physics.models import State
from simulator.simulation.advance import Until

VISCOSITIES = np.array([0.05, 0.02, 0.1, 0.01])
AMPLITUDES = (1.0, 0.5, 2.0, 1.5)
UNTIL = Until(1.0, 1.0, 3)
CUBE = "grid={shape: [16, 16, 16]}"


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """`case(*arguments, members=M)` makes the simulation of a small flow with a short step to
    compile."""
    path = write_case(tmp_path_factory.mktemp("members"), CASE)

    return partial(simulation, path, CUBE, "time.integrator=rk2")


def scaled(state: State, factor: float) -> State:
    return replace(state, fields={name: factor * field for name, field in state.fields.items()})


def steps_of(simulation: Simulation):
    def steps(viscosity, state: State) -> State:
        return simulation.varied({"model.viscosity": viscosity}).advance(state, UNTIL)

    return steps


@pytest.mark.spmd
@pytest.mark.parametrize("each", [2, slow(1)])
def test_members_equal_the_runs_alone_and_do_not_communicate(case, each: int):
    """Four members on two parts of the devices: the same programs on the same numbers as alone, so
    that no more than the order of operations inside a fused loop may differ. Of all collectives
    only one connects the parts: whether any member is unfinished."""
    one, two = (case(f"devices.count={n * each}", members=n) for n in (1, 2))
    assert two.transform.layout.devices == each
    assert (
        two.transform.layout.mesh.shape["members"] == 2
        and "members" not in one.transform.layout.mesh.shape
    )
    states = two.stack([scaled(two.state, a) for a in AMPLITUDES])
    program = two.together(steps_of(two)).lower(VISCOSITIES, states).compile()
    found = program(VISCOSITIES, states)
    assert {s.data.shape[0] for s in found.fields["velocity"].addressable_shards} == {2}
    alone = jax.jit(steps_of(one))
    for viscosity, amplitude, member in zip(
        VISCOSITIES, AMPLITUDES, two.unstack(found), strict=True
    ):
        expected = alone(viscosity, scaled(one.state, amplitude))
        assert (int(member.step), float(member.time)) == (
            3,
            pytest.approx(float(expected.time), rel=1e-14),
        )
        a, b = (np.asarray(state.fields["velocity"]) for state in (expected, member))
        assert abs(a - b).max() <= 1e-12 * abs(a).max()
    # What a device sends depends on how many exchange: two members on a part send twice what one
    # does alone.
    one_alone = collectives(alone.lower(VISCOSITIES[0], one.state).compile())
    both = collectives(program)
    for kind in KINDS:
        assert both[kind].bytes - 2 * one_alone[kind].bytes <= (
            16 if kind == "all-reduce" else 0
        ), kind
    assert both["all-gather"].count == 0


@pytest.mark.slow
@pytest.mark.spmd
def test_a_gradient_by_what_distinguishes_the_members(case):
    """Of a loss of two members on 2 x 2 devices, by each viscosity, by each start and by a number
    that they share, against central differences: with h = 1e-4 their error of order h^2 and
    round-off of order 1e-16 / h are far below 1e-6 of the slope."""
    simulation = case("devices.count=4", members=2)
    start = simulation.state
    layout = simulation.transform.layout

    def energy(viscosity, amplitude, dt):
        step = simulation.varied({"model.viscosity": viscosity}).step
        state = jax.lax.fori_loop(0, 2, lambda _, s: step(s, dt), scaled(start, amplitude))
        velocity = state.fields["velocity"]
        return layout.inner(velocity, velocity).sum()

    energies = simulation.together(energy, in_axes=(0, 0, None))

    @jax.jit
    def loss(values):
        return jnp.sum(jnp.array([1.0, -2.0]) * energies(values[:2], values[2:4], values[4]))

    point = jnp.array([0.05, 0.02, 1.0, 0.7, 0.02])
    slopes = jax.grad(loss)(point)
    for i, slope in enumerate(slopes):
        step = jnp.zeros(5).at[i].set(1e-4)
        assert float(loss(point + step) - loss(point - step)) / 2e-4 == pytest.approx(
            float(slope), rel=1e-6
        )


def test_numbers_that_do_not_divide_are_refused(case):
    with pytest.raises(
        UserError, match=r"command line: devices.count: 4 cannot .* members=3; 3 can"
    ):
        case("devices.count=4", members=3)
    with pytest.raises(
        UserError, match=r"command line: fft.backend: jaxdecomp cannot lay members over devices"
    ):
        case("devices.count=4", "fft.backend=jaxdecomp", members=2)
    with pytest.raises(UserError, match="members: must be at least 1, not 0"):
        case(members=0)
    simulation = case("devices.count=2", members=2)
    with pytest.raises(
        UserError, match="3 members cannot be divided among 2 parts of the devices; 2 can"
    ):
        simulation.stack(list(itertools.repeat(simulation.template, 3)))
    with pytest.raises(
        UserError, match="run: runs one simulation on all devices, and members=2 divides them"
    ):
        simulation.run()
