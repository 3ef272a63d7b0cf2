"""The compile cache goes by the program's text: what a custom partitioning's body closes over has to be in it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from simulator.spectral.program import Program, fingerprint


def program(value) -> Program:
    mesh = jax.make_mesh((2,), ("slab",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])

    def local(x):
        def body(carry, row):
            return carry + value * row, None

        return (jax.lax.scan(body, jnp.zeros(x.shape[1:]), x)[0][None],)

    return Program(local, mesh, [PartitionSpec("slab")], [PartitionSpec("slab")], name="scaled")


def text(value) -> str:
    x = jax.ShapeDtypeStruct((4, 3), jnp.float64)
    lowered = jax.jit(lambda x: program(value)(x)[0]).lower(x).as_text()
    # The one thing that JAX takes out of the key is the address of the callback.
    return "\n".join(line.split("backend_config")[0] for line in lowered.splitlines())


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("a", "b"),
    [(2.0, 2.0 + 2**-51), (np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0 + 2**-51]))],
    ids=["scalar", "array"],
)
def test_bodies_that_differ_in_what_they_close_over_have_other_texts(a, b) -> None:
    assert text(a) == text(a)
    assert text(a) != text(b)


def test_a_fingerprint_is_the_same_in_every_trace() -> None:
    def traced(factor):
        return jax.make_jaxpr(lambda x: jax.nn.relu(x) * factor)(jnp.ones(3))

    assert fingerprint(traced(2.0)) == fingerprint(traced(2.0))
    assert fingerprint(traced(2.0)) != fingerprint(traced(3.0))
