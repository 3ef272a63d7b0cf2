"""What is read from a traced program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from simulator.planning.fusion import COMPILERS
from simulator.planning.graph import Graph, Kind, Operation, whole
from simulator.planning.work import work_of

pytestmark = pytest.mark.smoke  # what JAX calls things changes with its versions

N = 1000
CPU = COMPILERS["cpu"]


def program(function, *arguments) -> Operation:
    graph = Graph.of(jax.make_jaxpr(function)(*arguments), whole)
    return Operation("call", Kind.LOOP, [], [], {}, graph)


@pytest.fixture
def x() -> np.ndarray:
    return np.ones((4, N), np.complex128)


def test_elementwise_work_has_one_result_only(x) -> None:
    """16 bytes a number: of the chain only its end is an array."""
    found = program(lambda a: ((a + 1) * 2 - a) * 3, x)
    assert work_of(found, CPU).modes == 2 * 16 * 4 * N  # a is read once, the result is written


def test_a_transform_stands_between_arrays(x) -> None:
    """It reads the product as an array, and writes another."""
    found = program(lambda a: jnp.fft.fft(2 * a) + 1, x)
    work = work_of(found, CPU)
    assert work.transforms == 2 * 16 * 4 * N
    assert work.flops == pytest.approx(5 * 4 * N * np.log2(N))


def test_a_loop_counts_its_turns(x) -> None:
    def function(a):
        def body(carry, i):
            return lax.dynamic_update_slice(carry, lax.dynamic_slice(a, (i, 0), (1, N)) * 2, (i, 0)), None

        return lax.scan(body, jnp.zeros_like(a), jnp.arange(4))[0]

    found = program(function, x)
    loop = next(o for o in found.body.operations if o.name == "scan")
    assert loop.trips == 4
    # Each turn reads a row and writes a row.
    assert work_of(found, CPU).modes == pytest.approx(2 * 16 * 4 * N, rel=0.01)


def test_what_is_not_used_costs_nothing(x) -> None:
    def function(a):
        def body(carry, _):
            return (carry[0] + 1, jnp.fft.fft(carry[1])), carry[0]

        (kept, _), _collected = lax.scan(body, (a, a), length=3)
        return kept

    assert work_of(program(function, x), CPU).flops == 0
