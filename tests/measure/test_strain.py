"""The eigenframe of the strain: numpy's, on any number of devices, and what theory says of Gaussian fields."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flow_support import flow
from measuring import on_grid, row, wavenumbers, with_values

from simulator.measure.strain import EIGENVALUES, eigensystem

SHAPE, BOX = (12, 9, 10), (2 * np.pi, 5.0, 4.0)
DYE = {"kind": "navier_stokes", "viscosity": 0.02, "scalars": [{"name": "dye", "diffusivity": 0.01}]}


def configured(initial, count=1, shape=SHAPE, box=BOX, **output):
    output = {"strain": {"every": 1, **output}}
    return flow(*shape, initial=initial, model=DYE, grid={"box": box}, count=count, output=output)


def test_the_eigensystem_is_lapacks():
    """Equal eigenvalues, diagonal matrices and zero among them."""
    numbers = np.random.default_rng(3).normal(size=(6, 200))
    numbers[3:, :40] *= 1e-9
    numbers[:, 40] = [1, 1, -2, 0, 0, 0]
    numbers[:, 41] = 0
    numbers[:, 42] = [0, 0, 0, 1, 1, 1]
    found, frame = jax.jit(eigensystem)(jnp.asarray(numbers))
    s = np.moveaxis(numbers[[0, 3, 4, 3, 1, 5, 4, 5, 2]].reshape(3, 3, -1), -1, 0)
    values, v = np.stack(found), np.stack([np.stack(e) for e in frame])
    expected = np.linalg.eigvalsh(s)[:, ::-1].T
    np.testing.assert_allclose(values, expected, atol=2e-14)
    assert abs(values.sum(0) - numbers[:3].sum(0)).max() < 1e-14
    np.testing.assert_allclose(np.einsum("nij,ejn->ein", s, v), values[:, None] * v, atol=2e-14)
    products = np.einsum("ejn,fjn->efn", v, v)
    np.testing.assert_allclose(products, np.eye(3)[..., None] * np.ones(200), atol=2e-15)


@pytest.mark.spmd
def test_densities_are_numpys():
    simulation = configured({"kind": "random", "peak": 2, "scalars": {"dye": {"peak": 2}}}, 4, bins=11)
    found, k = row(simulation, "strain"), wavenumbers(simulation)
    velocity, vorticity, dye = on_grid(simulation, "velocity", "vorticity", "dye")

    def slope(f, j):
        return np.fft.ifftn(1j * k[j] * np.fft.fftn(f)).real

    a = np.array([[slope(velocity[i], j) for j in range(3)] for i in range(3)])
    s = np.moveaxis((a + a.swapaxes(0, 1)) / 2, (0, 1), (-2, -1))
    rates, frame = np.linalg.eigh(s)
    rates, frame = rates[..., ::-1], frame[..., ::-1]
    rms = np.sqrt((s**2).sum((-2, -1)).mean())
    assert found["strain_rms"] == pytest.approx(rms, rel=1e-13)
    vectors = {"vorticity": vorticity, "dye_gradient": [slope(dye, j) for j in range(3)]}
    points = rates[..., 0].size
    for i, name in enumerate(EIGENVALUES):
        counts = np.histogram(rates[..., i] / rms, np.linspace(-5, 5, 12))[0]
        np.testing.assert_allclose(found[name] * points * 10 / 11, counts, atol=1e-9)
        assert found[f"{name}_mean"] == pytest.approx(rates[..., i].mean(), abs=1e-13 * rms)
        for vector, components in vectors.items():
            along = np.einsum("i...,...i->...", np.stack(components), frame[..., i])
            cosine = abs(along) / np.linalg.norm(np.stack(components), axis=0)
            counts = np.histogram(cosine, np.linspace(0, 1, 12))[0]
            np.testing.assert_allclose(found[f"{vector}_{name}"] * points / 11, counts, atol=1e-9)
    shape = -3 * np.sqrt(6) * rates.prod(-1) / (rates**2).sum(-1) ** 1.5
    counts = np.histogram(shape, np.linspace(-1, 1, 12))[0]
    np.testing.assert_allclose(found["s_star"] * points * 2 / 11, counts)
    assert abs(sum(found[f"{e}_mean"] for e in EIGENVALUES)) < 1e-14 * rms
    stretching = sum(found[f"stretching_{e}"] for e in EIGENVALUES)
    assert stretching == pytest.approx(-4 * found["strain_product"], rel=1e-11)  # Betchov


def test_a_gaussian_field_prefers_no_direction_and_no_shape():
    """In an isotropic Gaussian field vorticity and strain are independent, and s* is uniform (Lund and Rogers 1994).
    Regions of half a wavelength of the peak are independent, 14^3 of them, so that a share of 1/4 has the standard
    error sqrt(3 / 14^3) = 3.3 % of itself; the tolerances are three of them."""
    box = (2 * np.pi,) * 3
    simulation = configured({"kind": "random", "peak": 7, "seed": 5}, shape=(24, 24, 24), box=box, bins=4)
    found = row(simulation, "strain")
    np.testing.assert_allclose(found["s_star"], 0.5, atol=0.05)
    for name in EIGENVALUES:
        np.testing.assert_allclose(found[f"vorticity_{name}"], 1, atol=0.1)
    assert abs(found["beta_mean"]) < 0.02 * found["strain_rms"]
    assert abs(found["strain_product"]) < 0.02 * found["strain_rms"] ** 3


def test_plane_shear_has_no_third_direction():
    """u = (0, sin x, 0): strain +-cos(x)/2, beta = 0, vorticity along e_beta; s* = 0. Points without shear do not
    count."""
    simulation = configured({"kind": "abc"}, bins=5)
    sine = np.zeros((3, *SHAPE))
    sine[1] = np.sin(2 * np.pi * np.arange(SHAPE[0]) / SHAPE[0])[:, None, None]
    found = row(simulation, "strain", with_values(simulation, velocity=sine))
    np.testing.assert_allclose(found["s_star"], [0, 0, 2.5, 0, 0], atol=1e-12)
    for name, expected in (("alpha", [5, 0, 0, 0, 0]), ("beta", [0, 0, 0, 0, 5]), ("gamma", [5, 0, 0, 0, 0])):
        np.testing.assert_allclose(found[f"vorticity_{name}"], expected, atol=1e-12)
    mean = np.abs(np.cos(np.arange(12) * np.pi / 6)).mean() / 2
    assert found["alpha_mean"] == pytest.approx(mean, rel=1e-13)
    assert abs(found["beta_mean"]) < 1e-15
