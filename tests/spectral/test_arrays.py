"""Shapes in annotations are checked at every call while tests run with SIMULATOR_TESTS_ARRAYS=1."""

import os

import jax
import jax.numpy as jnp
import pytest
from array_types import WrongArray

from simulator.measure.histograms import invariants
from simulator.physics.models.boussinesq import Boussinesq, BoussinesqSettings
from simulator.spectral import Grid, make_transform
from simulator.spectral.operators import gradient

checking = pytest.mark.skipif(not os.environ.get("SIMULATOR_TESTS_ARRAYS"), reason="set it to check arrays")


@checking
def test_an_array_of_another_shape_or_type_is_refused() -> None:
    transform = make_transform(Grid((8, 8, 8)), jax.devices()[:1])
    layout = transform.layout
    field = jnp.zeros(layout.shape, complex)
    with pytest.raises(WrongArray, match=r"gradient: field is complex128\[3, .*not .*ka kb kc"):
        gradient(layout, jnp.stack([field] * 3))
    with pytest.raises(WrongArray, match="gradient: field is float64"):
        gradient(layout, field.real)
    with pytest.raises(WrongArray, match="inner: b"):  # a name is one length in all arrays of a call
        layout.inner(field, field[1:])
    with pytest.raises(WrongArray, match="invariants: velocity"):  # annotated by names that are imported late
        invariants(transform, field)
    with pytest.raises(WrongArray, match="rate: maxima"):
        Boussinesq(BoussinesqSettings(viscosity=1, diffusivity=1, stratification=1), transform).rate({"rate": field})
    assert jax.vmap(lambda f: gradient(layout, f))(jnp.stack([field] * 2)).shape == (2, 3, *layout.shape)
