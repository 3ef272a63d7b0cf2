"""Shapes and types of numbers in annotations are checked while tests run with SIMULATOR_TESTS_ARRAYS=1."""

import os

import jax
import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

from simulator.measure.histograms import invariants
from simulator.physics.models.boussinesq import Boussinesq, BoussinesqSettings
from simulator.spectral import Grid, make_transform
from simulator.spectral.operators import gradient


@pytest.mark.skipif(not os.environ.get("SIMULATOR_TESTS_ARRAYS"), reason="set it to check arrays")
def test_an_array_of_another_shape_or_type_is_refused() -> None:
    transform = make_transform(Grid((8, 8, 8)), jax.devices()[:1])
    layout = transform.layout
    field = jnp.zeros(layout.shape, complex)
    with pytest.raises(TypeCheckError, match=r"gradient.*\n.*'field'"):
        gradient(layout, jnp.stack([field] * 3))
    with pytest.raises(TypeCheckError, match=r"gradient.*\n.*'field'"):  # while JAX traces a program
        jax.jit(lambda f: gradient(layout, f))(field.real)
    with pytest.raises(TypeCheckError, match=r"inner.*\n.*'b'"):  # a name is one length in all arrays of a call
        layout.inner(field, field[1:])
    with pytest.raises(TypeCheckError, match=r"invariants.*\n.*'velocity'"):  # annotated by names imported late
        invariants(transform, field)
    with pytest.raises(TypeCheckError, match=r"rate.*\n.*'maxima'"):
        Boussinesq(BoussinesqSettings(viscosity=1, diffusivity=1, stratification=1), transform).rate({"rate": field})
    assert jax.vmap(lambda f: gradient(layout, f))(jnp.stack([field] * 2)).shape == (2, 3, *layout.shape)
