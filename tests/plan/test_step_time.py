"""The work that is counted in a step."""

import jax
import numpy as np
import pytest
from flow_support import flow
from peers.collectives import collectives

from simulator.plan.step_time import traced_work


@pytest.fixture(scope="module")
def decaying():
    return flow(12, 12, 12, initial={"kind": "abc"}, viscosity=0.1, count=2)


def work_of(s):
    return traced_work(s.step, s.placed_template, np.float64(1e-3))


@pytest.mark.spmd
def test_the_counted_exchanges_are_those_of_the_compiled_step(decaying):
    work = work_of(decaying)
    assert work.transformed == 4 * (3 + 5) * 12**3 * 8
    assert work.exchanges == 8  # there and back, four times
    compiled = jax.jit(decaying.step).lower(decaying.placed_template, np.float64(1e-3)).compile()
    assert collectives(compiled)["all-to-all"].bytes == work.sent


def test_loops_within_a_step_are_counted():
    """composition4: five kicks, each with psi there and back, and the density's Poisson
    equation."""
    time = {"stop": 1, "integrator": "composition4"}
    initial = {"kind": "jeans_wave"}
    work = work_of(
        flow(12, 12, 12, initial=initial, model={"kind": "schrodinger_poisson"}, time=time)
    )
    assert work.transformed == 5 * 2 * (1 + 2) * 12**3 * 8 and not work.messages
