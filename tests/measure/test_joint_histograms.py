"""Joint probability densities: the counts of numpy, on any number of devices, and what theory says of Q and R."""

import numpy as np
import pytest
from flow_support import flow, measured
from measuring import on_grid, row, wavenumbers, with_values

from simulator.archive.recorder import series_of
from simulator.errors import UserError

PAIRS = [["R", "Q"], ["speed", "dye"]]
DYE = {"kind": "navier_stokes", "viscosity": 0.02, "scalars": [{"name": "dye", "diffusivity": 0.01}]}


def configured(count=1, pairs=PAIRS):
    initial = {"kind": "random", "peak": 2, "scalars": {"dye": {"peak": 2}}}
    output = {"joint_histograms": {"every": 1, "pairs": pairs, "bins": 21, "range": 3}}
    grid = {"box": [2 * np.pi, 5.0, 4.0]}
    return flow(12, 9, 10, initial=initial, model=DYE, grid=grid, count=count, output=output)


@pytest.mark.spmd
def test_counts_are_numpys():
    """Every point in its bin; <Q> = <R> = 0, because products of two and three modes have no aliases in the mean."""
    simulation = configured(4)
    got, k = row(simulation, "joint_histograms"), wavenumbers(simulation)
    u, speed, dye = on_grid(simulation, "velocity", "speed", "dye")
    modes = np.fft.fftn(u, axes=(1, 2, 3))
    a = np.array([[np.fft.ifftn(1j * k[j] * modes[i]).real for j in range(3)] for i in range(3)])
    a = np.moveaxis(a, (0, 1), (-2, -1))
    q, r = -0.5 * np.trace(a @ a, axis1=-2, axis2=-1), -np.linalg.det(a)
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
        np.testing.assert_allclose(found, counts, atol=1e-9, err_msg=name)
        assert found.sum() > 0.9 * speed.size
        for axis, (given, other) in enumerate(((first, second), (second, first))):
            names = name.split("_")[:: 1 if axis == 0 else -1]
            scale = got[f"{names[1]}_scale"]
            mean = 0.0 if name == "R_Q" else got[f"{names[1]}_mean"]
            points = np.histogram(given, edges)[0]
            sums = np.histogram(given, edges, weights=other * scale + mean)[0]
            expected = np.where(points > 0, sums / np.maximum(points, 1), np.nan)
            mean_given = got[f"{names[1]}_given_{names[0]}"]
            np.testing.assert_allclose(mean_given, expected, rtol=1e-11, atol=1e-12 * scale)
    assert got["Q_scale"] == pytest.approx(unit, rel=1e-12)
    assert abs(got["Q_mean"]) < 1e-13 * unit and abs(got["R_mean"]) < 1e-13 * unit**1.5
    assert got["dye_scale"] == pytest.approx(dye.std(), rel=1e-12)


def test_the_conditional_dissipation_of_a_sine_is_a_parabola():
    """theta = sin x has |grad theta|^2 = 1 - theta^2; and the mean of a dissipation rate is its column."""
    pairs = [["dye", "dye_dissipation_rate"], ["dye_gradient_magnitude", "dissipation_rate"]]
    simulation = configured(pairs=pairs)
    grid, got = simulation.grid, row(simulation, "joint_histograms")
    columns = measured(simulation, simulation.state)
    assert got["dye_dissipation_rate_mean"] == pytest.approx(columns["dye_dissipation"], rel=1e-12)
    assert got["dissipation_rate_mean"] == pytest.approx(columns["viscous_dissipation"], rel=1e-12)
    sine = np.broadcast_to(np.sin(np.arange(grid.shape[0]) * grid.spacing[0])[:, None, None], grid.shape)
    rows = row(simulation, "joint_histograms", with_values(simulation, dye=sine))
    found = rows["dye_dissipation_rate_given_dye"]
    theta = series_of(simulation)["joint_histograms"].coordinates["first"] / np.sqrt(2)
    there = np.isfinite(found)
    assert there.sum() == 7  # values of the sine at 12 points
    width = 6 / 21 / np.sqrt(2)
    np.testing.assert_allclose(found[there], 0.02 * (1 - theta[there] ** 2), atol=0.02 * width)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([["Q", "Q"]], r"output\.joint_histograms\.pairs\.0: Q, Q is no pair"),
        ([["Q", "velocity"]], r"output\.joint_histograms\.pairs\.0: velocity is not a scalar"),
    ],
)
def test_refusals(pairs, message):
    with pytest.raises(UserError, match=message):
        series_of(configured(pairs=pairs))
