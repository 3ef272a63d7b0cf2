"""Spherical truncation: products of two fields without aliasing, on every backend."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simulator.spectral import Grid, Local, make_transform
from simulator.spectral.random import gaussian

EPSILON = np.finfo(float).eps
CASES = [
    ((15, 12, 9), "custom_partitioning", 1),
    ((14, 8, 1), "custom_partitioning", 1),
    ((12, 16, 12), "custom_partitioning", 4),
    ((12, 12, 12), "jaxdecomp", 2),
]


def convolved(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Coefficients of a product, on points enough for both."""
    fine = [2 * n for n in a.shape]
    values = [np.fft.ifftn(padded(f, fine)).real * np.prod(fine) for f in (a, b)]
    return cut(np.fft.fftn(values[0] * values[1]) / np.prod(fine), a.shape)


def indices(n: int, fine: int) -> np.ndarray:
    """Places of the modes of n points, without Nyquist, among those of `fine` points."""
    return np.arange(-((n - 1) // 2), (n - 1) // 2 + 1) % fine


def padded(f: np.ndarray, fine: list[int]) -> np.ndarray:
    found = np.zeros(fine, complex)
    own = np.ix_(*(indices(n, n) for n in f.shape))
    found[np.ix_(*(indices(n, m) for n, m in zip(f.shape, fine, strict=True)))] = f[own]
    return found


def cut(f: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    found = np.zeros(shape, complex)
    own = np.ix_(*(indices(n, n) for n in shape))
    found[own] = f[np.ix_(*(indices(n, m) for n, m in zip(shape, f.shape, strict=True)))]
    return found


def in_sphere(shape: tuple[int, ...]) -> np.ndarray:
    """sum of (k_i / k_Nyquist,i)^2 < 8/9."""
    k = np.meshgrid(*(2 * np.fft.fftfreq(n) for n in shape), indexing="ij")
    return sum(q**2 for q in k) < 8 / 9 - 1e-12


@pytest.mark.spmd
@pytest.mark.parametrize(("shape", "backend", "count"), CASES)
def test_products_are_exact_convolutions(shape, backend, count):
    """To round-off: each of two transforms adds some log2 N^3 eps; once more for the reference."""
    t = make_transform(Grid(shape, dealias="spherical"), jax.devices()[:count], np.float64, backend=backend)
    field = gaussian(t.layout, 3, 2)

    def product(values, points, parameters):
        f = values["f"]
        return Local({"p": parameters["g"] * f[0] * f[1]}, {"largest": f[0]}, {"mean": f[0] * f[1]})

    @jax.jit
    def run(field):
        here = t.evaluate_once({"f": field}, product, {"g": jnp.float64(0.5)})
        both = t.evaluate({"f": field}, product, {"g": jnp.float64(0.5)})
        return here, both, *(t.inverse(f) for f in (field, here.products["p"], both.products["p"]))

    here, both, values, aliased, found = run(field)
    nx, ny, nz = shape
    a, b, aliased, found = (
        np.fft.fftn(np.asarray(v)[:nx, :ny, :nz]) / np.prod(shape) for v in (values[0], values[1], aliased, found)
    )
    exact = convolved(a, b)
    kept = np.where(in_sphere(shape), 0.5 * exact, 0)
    size, tolerance = abs(kept).max(), 8 * np.log2(np.prod(shape)) * EPSILON
    assert abs(found - kept).max() < tolerance * size
    assert abs(aliased - kept).max() > 1e-3 * size
    assert abs(both.means["mean"] - exact[0, 0, 0].real) < tolerance * np.sqrt(np.prod(shape)) * size
    assert both.maxima["largest"] >= here.maxima["largest"]


def test_coordinates_are_those_of_the_moved_points():
    """A product that is given as a function of x, y, z: sin(x + 2 y) cos(z), half of it from each grid."""
    t = make_transform(Grid((12, 10, 8), dealias="spherical"), jax.devices()[:1], np.float64)

    def wave(values, points, parameters):
        return Local({"p": jnp.sin(points.x + 2 * points.y) * jnp.cos(points.z)})

    zero = jnp.zeros(t.layout.shape, complex)
    found = t.inverse(jax.jit(lambda f: t.evaluate({"f": f}, wave).products["p"])(zero))
    x, y, z = np.meshgrid(*(2 * np.pi * np.arange(n) / n for n in t.grid.shape), indexing="ij")
    np.testing.assert_allclose(np.asarray(found), np.sin(x + 2 * y) * np.cos(z), atol=100 * EPSILON)
