"""exp(-i x) by polynomials."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simulator.physics.models.wave_functions import phase_factor


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e-30, 0.5, 10.0, 1e4])
def test_it_is_the_exponential(dtype, size):
    """The reduction errs by eps times the part of pi/2 that is not exact, for each turn: below eps here."""
    angles = (size * np.linspace(-1, 1, 20001)).astype(dtype)
    wide = angles.astype(np.longdouble)
    found = np.asarray(phase_factor(jnp.asarray(angles)))
    assert found.dtype == np.result_type(dtype, np.complex64)
    eps = np.finfo(dtype).eps * max(1, size / 1e3)
    assert abs(found.real - np.cos(wide)).max() < 2 * eps
    assert abs(found.imag + np.sin(wide)).max() < 2 * eps


def test_its_modulus_is_one():
    """Else a kick would not conserve mass: the error is of round-off, and of either sign."""
    modulus = abs(np.asarray(phase_factor(jnp.linspace(-4, 4, 100001, dtype=jnp.float64)))) - 1
    assert abs(modulus).max() < 4e-16 and abs(modulus.mean()) < 2e-17


def test_its_derivative_is_exact():
    x = jnp.float64(2.3)
    value, slope = jax.jvp(phase_factor, (x,), (jnp.float64(1.0),))
    np.testing.assert_allclose(slope, -1j * value, rtol=1e-15)
