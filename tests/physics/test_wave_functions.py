"""What wave functions are made of: vortex lines through the faces of the grid, and exp(-i x) by polynomials."""

import gravity_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gravity_cases import WAVE

from simulator.physics.models.wave_functions import phase_factor, pierced_faces

# Waves of six directions: vortex lines that wind through the whole box.
TANGLE = " + ".join(
    f"jnp.exp(1j * ({a} * x + {b} * y + {c} * z + {phase}))"
    for a, b, c, phase in ((1, 0, 0, 0), (0, 1, 1, 2), (1, 1, 0, 1), (-1, 2, 1, 4), (2, -1, 0, 3), (0, 1, -2, 5))
)


def test_lines_that_cross_the_borders_of_shards_count_once() -> None:
    """A tangle on 1 and on 4 devices, 14 planes on 4, pencils and jaxDecomp: every face is seen by one device, none
    twice."""
    faces = []
    for devices, fft in ((1, {}), (4, {}), (4, {"decomposition": "pencil"}), (2, {"backend": "jaxdecomp"})):
        given = ("grid.shape=16,14,10", "grid.box=2*pi,2*pi,2*pi", *(f"fft.{k}={v}" for k, v in fft.items()))
        run = cases.simulation(WAVE, *given, devices=devices, python=f'{{"psi": {TANGLE}}}')
        faces.append(int(jax.jit(lambda f, r=run: pierced_faces(r.transform, f["psi"]))(run.state.fields)))
    assert set(faces) == {_faces(run.fields["psi"])} and faces[0] > 0


def _faces(psi) -> int:
    """The same count from whole arrays."""
    angle, total = np.angle(np.asarray(psi)), 0
    for a, b in ((0, 1), (1, 2), (2, 0)):
        corners = [angle, np.roll(angle, -1, a), np.roll(angle, (-1, -1), (a, b)), np.roll(angle, -1, b)]
        turns = [(q - p + np.pi) % (2 * np.pi) - np.pi for p, q in zip(corners, [*corners[1:], angle], strict=True)]
        total += int(abs(np.rint(sum(turns) / (2 * np.pi))).sum())
    return total


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e-30, 0.5, 10.0, 1e4])
def test_the_phase_factor_is_the_exponential(dtype, size):
    """The reduction errs by eps times the part of pi/2 that is not exact, for each turn: below eps here."""
    angles = (size * np.linspace(-1, 1, 20001)).astype(dtype)
    wide = angles.astype(np.longdouble)
    found = np.asarray(phase_factor(jnp.asarray(angles)))
    assert found.dtype == np.result_type(dtype, np.complex64)
    eps = np.finfo(dtype).eps * max(1, size / 1e3)
    assert abs(found.real - np.cos(wide)).max() < 2 * eps
    assert abs(found.imag + np.sin(wide)).max() < 2 * eps


def test_the_modulus_of_a_phase_factor_is_one():
    """Else a kick would not conserve mass: the error is of round-off, and of either sign."""
    modulus = abs(np.asarray(phase_factor(jnp.linspace(-4, 4, 100001, dtype=jnp.float64)))) - 1
    assert abs(modulus).max() < 4e-16 and abs(modulus.mean()) < 2e-17


def test_the_derivative_of_a_phase_factor_is_exact():
    x = jnp.float64(2.3)
    value, slope = jax.jvp(phase_factor, (x,), (jnp.float64(1.0),))
    np.testing.assert_allclose(slope, -1j * value, rtol=1e-15)
