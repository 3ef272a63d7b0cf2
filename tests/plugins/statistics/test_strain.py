"""The strain's eigenframe and joint probability densities: numpy's, and theory's for plane shear, Q
and R."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flow_support import flow, measured
from measuring import on_grid, row, slopes, with_values
from numpy.testing import assert_allclose

from simulator.plugins.statistics.strain import EIGENVALUES, eigensystem

SHAPE = (12, 9, 10)
BOX = (2 * np.pi, 5.0, 4.0)
DYE = {
    "kind": "navier_stokes",
    "viscosity": 0.02,
    "scalars": [{"name": "dye", "diffusivity": 0.01}],
}
RANDOM = {"kind": "random", "peak": 2, "scalars": {"dye": {"peak": 2}}}


def configured(kind, initial=RANDOM, count=1, **output):
    output = {kind: {"every": 1, **output}}
    return flow(*SHAPE, initial=initial, model=DYE, grid={"box": BOX}, count=count, output=output)


def test_the_eigensystem_is_lapacks():
    """Equal eigenvalues, diagonal matrices and zero among them."""
    numbers = np.random.default_rng(3).normal(size=(6, 200))
    numbers[3:, :40] *= 1e-9
    numbers[:, 40] = [1, 1, -2, 0, 0, 0]
    numbers[:, 41] = 0
    numbers[:, 42] = [0, 0, 0, 1, 1, 1]
    found, frame = jax.jit(eigensystem)(jnp.asarray(numbers))
    s = np.moveaxis(numbers[[0, 3, 4, 3, 1, 5, 4, 5, 2]].reshape(3, 3, -1), -1, 0)
    values = np.stack(found)
    v = np.stack([np.stack(e) for e in frame])
    expected = np.linalg.eigvalsh(s)[:, ::-1].T
    assert_allclose(values, expected, atol=2e-14)
    assert abs(values.sum(0) - numbers[:3].sum(0)).max() < 1e-14
    assert_allclose(np.einsum("nij,ejn->ein", s, v), values[:, None] * v, atol=2e-14)
    products = np.einsum("ejn,fjn->efn", v, v)
    assert_allclose(products, np.eye(3)[..., None] * np.ones(200), atol=2e-15)


@pytest.mark.spmd
def test_densities_are_numpys():
    simulation = configured("strain", count=4, bins=11)
    found = row(simulation, "strain")
    velocity, vorticity, dye = on_grid(simulation, "velocity", "vorticity", "dye")
    a = slopes(simulation, velocity)
    s = np.moveaxis((a + a.swapaxes(0, 1)) / 2, (0, 1), (-2, -1))
    rates, frame = np.linalg.eigh(s)
    rates = rates[..., ::-1]
    frame = frame[..., ::-1]
    rms = np.sqrt((s**2).sum((-2, -1)).mean())
    assert found["strain_rms"] == pytest.approx(rms, rel=1e-13)
    vectors = {"vorticity": vorticity, "dye_gradient": slopes(simulation, dye)}
    points = rates[..., 0].size
    for i, name in enumerate(EIGENVALUES):
        counts = np.histogram(rates[..., i] / rms, np.linspace(-5, 5, 12))[0]
        assert_allclose(found[name] * points * 10 / 11, counts, atol=1e-9)
        assert found[f"{name}_mean"] == pytest.approx(rates[..., i].mean(), abs=1e-13 * rms)
        for vector, components in vectors.items():
            along = np.einsum("i...,...i->...", components, frame[..., i])
            cosine = abs(along) / np.linalg.norm(components, axis=0)
            counts = np.histogram(cosine, np.linspace(0, 1, 12))[0]
            assert_allclose(found[f"{vector}_{name}"] * points / 11, counts, atol=1e-9)
    shape = -3 * np.sqrt(6) * rates.prod(-1) / (rates**2).sum(-1) ** 1.5
    counts = np.histogram(shape, np.linspace(-1, 1, 12))[0]
    assert_allclose(found["s_star"] * points * 2 / 11, counts)
    assert abs(sum(found[f"{e}_mean"] for e in EIGENVALUES)) < 1e-14 * rms
    stretching = sum(found[f"stretching_{e}"] for e in EIGENVALUES)
    assert stretching == pytest.approx(-4 * found["strain_product"], rel=1e-11)  # Betchov


def test_plane_shear_has_no_third_direction():
    """u = (0, sin x, 0): strain +-cos(x)/2, beta = s* = 0, vorticity along e_beta where there is
    shear."""
    simulation = configured("strain", {"kind": "abc"}, bins=5)
    sine = np.zeros((3, *SHAPE))
    sine[1] = np.sin(2 * np.pi * np.arange(SHAPE[0]) / SHAPE[0])[:, None, None]
    found = row(simulation, "strain", with_values(simulation, velocity=sine))
    assert_allclose(found["s_star"], [0, 0, 2.5, 0, 0], atol=1e-12)
    for name, expected in (
        ("alpha", [5, 0, 0, 0, 0]),
        ("beta", [0, 0, 0, 0, 5]),
        ("gamma", [5, 0, 0, 0, 0]),
    ):
        assert_allclose(found[f"vorticity_{name}"], expected, atol=1e-12)
    mean = np.abs(np.cos(np.arange(12) * np.pi / 6)).mean() / 2
    assert found["alpha_mean"] == pytest.approx(mean, rel=1e-13)
    assert abs(found["beta_mean"]) < 1e-15


@pytest.mark.spmd
def test_counts_are_numpys():
    """Every point in its bin; <Q> = <R> = 0, because products of two and three modes have no
    aliases in the mean."""
    pairs = [["R", "Q"], ["speed", "dye"]]
    simulation = configured("joint_histograms", count=4, pairs=pairs, bins=21, range=3)
    got = row(simulation, "joint_histograms")
    u, speed, dye = on_grid(simulation, "velocity", "speed", "dye")
    a = np.moveaxis(slopes(simulation, u), (0, 1), (-2, -1))
    q = -0.5 * np.trace(a @ a, axis1=-2, axis2=-1)
    r = -np.linalg.det(a)
    omega = np.stack([a[..., j, i] - a[..., i, j] for i, j in ((1, 2), (2, 0), (0, 1))])
    unit = (omega**2).sum(0).mean() / 4
    units = {
        "R_Q": (r / unit**1.5, q / unit),
        "speed_dye": tuple((v - v.mean()) / v.std() for v in (speed, dye)),
    }
    edges = np.linspace(-3, 3, 22)
    for name, (first, second) in units.items():
        counts, _, _ = np.histogram2d(first.ravel(), second.ravel(), (edges, edges))
        found = got[name] * speed.size * (6 / 21) ** 2
        assert_allclose(found, counts, atol=1e-9, err_msg=name)
        assert found.sum() > 0.9 * speed.size
        for axis, (given, other) in enumerate(((first, second), (second, first))):
            names = name.split("_")[:: 1 if axis == 0 else -1]
            scale = got[f"{names[1]}_scale"]
            mean = 0.0 if name == "R_Q" else got[f"{names[1]}_mean"]
            points = np.histogram(given, edges)[0]
            sums = np.histogram(given, edges, weights=other * scale + mean)[0]
            expected = np.where(points > 0, sums / np.maximum(points, 1), np.nan)
            mean_given = got[f"{names[1]}_given_{names[0]}"]
            assert_allclose(mean_given, expected, rtol=1e-11, atol=1e-12 * scale)
    assert got["Q_scale"] == pytest.approx(unit, rel=1e-12)
    assert abs(got["Q_mean"]) < 1e-13 * unit and abs(got["R_mean"]) < 1e-13 * unit**1.5
    assert got["dye_scale"] == pytest.approx(dye.std(), rel=1e-12)


def test_the_mean_of_a_dissipation_rate_is_its_column():
    pairs = [["dye", "dye_dissipation_rate"], ["dye_gradient_magnitude", "dissipation_rate"]]
    simulation = configured("joint_histograms", pairs=pairs)
    got = row(simulation, "joint_histograms")
    columns = measured(simulation)
    assert got["dye_dissipation_rate_mean"] == pytest.approx(columns["dye_dissipation"], rel=1e-12)
    assert got["dissipation_rate_mean"] == pytest.approx(columns["viscous_dissipation"], rel=1e-12)
