"""Assimilation beside the exact answer of a linear Gaussian problem, of a scalar field."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("optax")
from linear_gaussian import TIMES, LinearGaussian, grid_points, problem
from searches import opened, search
from tiers import slow

from simulator.plugins.assimilation.kalman import Filter, _moments
from simulator.plugins.assimilation.variational import Variational


def searching(folder: Path, method: Any, **own: Any) -> Any:
    return search(folder, opened(folder / "flow.yaml"), method, "vorticity", **own)


def values(filter_or_search: Any, field: jax.Array) -> np.ndarray:
    return np.asarray(filter_or_search.simulation.transform.inverse(field)).ravel()


@pytest.mark.long
@pytest.mark.parametrize("members", [300, slow(800)])
def test_the_filter_is_that_of_kalman_but_for_its_samples(tmp_path: Path, members: int):
    """Without localisation and inflation, analyses of a linear run combine to one, with the sample
    covariance P + dP of m members for the prior's P. To first order the mean is off by (1 - K H) (e +
    dP u), u = H^T (H P H^T + R)^-1 y, where the mean e of the members has the covariance P / m, and dP
    that of Wishart's distribution: off has the covariance C = (1 - K H) [P (1 + u.P u) + P u u^T P]
    (1 - K H)^T / (m - 1). Its square has the standard deviation sqrt(2 / n) of its mean, n = tr(C)^2 /
    tr(C^2). The next order is that of d / m, with the d = tr(K H) degrees of freedom that are
    observed. The variance is low by as much, since members span fewer directions."""
    exact = problem(tmp_path, observed=10, error=1.0, seed=1)
    found = searching(tmp_path, Filter, members=members, inflation=1.0, radius=1e9)
    at = found.first()
    while not found.is_finished(at):
        at, *_ = found.next(at)
    mean, spread = _moments(at.members.fields)
    x, y = grid_points()
    last = exact.at(TIMES[-1], x, y)
    off = values(found, mean["vorticity"]) - last @ exact.mean
    variance = sum((values(found, part) ** 2).mean() for part in spread["vorticity"])

    covariance = last @ exact.covariance @ last.T
    gain = _gain(exact)
    observed = np.trace(gain @ exact.observation)
    left = last @ (np.eye(len(gain)) - gain @ exact.observation)
    prior = np.diag(exact.variance)
    u = np.linalg.solve(prior, exact.mean)  # K y = P u
    error = prior * (1 + u @ prior @ u) + np.outer(prior @ u, prior @ u)
    error = left @ error @ left.T / (members - 1)
    free = np.trace(error) ** 2 / (error**2).sum()
    most = 1 + 3 * (2 / free) ** 0.5 + 4 * observed / members
    assert (off**2).sum() < most * np.trace(error)
    assert (off**2).sum() > np.trace(error) / 4  # the estimate is one
    apart = variance / covariance.diagonal().mean() - 1
    assert abs(apart) < 2 * observed / members + 3 * (2 / members / free) ** 0.5


def _gain(exact: LinearGaussian) -> np.ndarray:
    return exact.covariance @ exact.observation.T / exact.error**2


def test_the_descent_ends_at_the_posterior_mean(tmp_path: Path):
    """The last iteration lowers J by less than the tolerance 1e-10 of itself; the distance from the
    minimum, in posterior deviations, is about the root of J's excess, which is some of these steps:
    1e-3 of a deviation is a hundred."""
    exact = problem(tmp_path, observed=40, error=0.5, seed=2)
    found = searching(tmp_path, Variational, windows=1, iterations=200, tolerance=1e-10)
    at = found.first()
    said = ""
    while not found.is_finished(at):
        at, _, said = found.next(at)
    assert "the window ends: " in said
    start = found.start(at.xi).fields["vorticity"]
    assert start.shape == found.simulation.state.fields["vorticity"].shape
    x, y = grid_points()
    first = exact.at(0.0, x, y)
    off = values(found, start) - first @ exact.mean
    deviation = np.sqrt((first @ exact.covariance @ first.T).diagonal())
    assert abs(off / deviation).max() < 1e-3
    # At the minimum the residual is (1 + H P H^T / error^2)^-1 of its value at the prior's mean.
    residual = (exact.values - exact.observation @ exact.mean) / exact.error
    assert at.misfit == pytest.approx((residual**2).mean(), rel=1e-4)


@pytest.mark.long
def test_the_expected_error_is_that_of_the_posterior(tmp_path: Path):
    """In sum and in every shell to 5 %, with a prior that the observations reduce by factors of 1.4 to
    9; with half of the products the sum to 5 %, for which the random directions count."""
    exact = problem(tmp_path, observed=40, error=0.5, seed=2)
    prior, posterior = (
        exact.spectrum(each) for each in (np.diag(exact.variance), exact.covariance)
    )
    assert (prior[1:] / posterior[1:]).max() > 9
    found = searching(tmp_path, Variational)
    _, states = found.misfits(found.first().xi, 4)
    estimate = found.posterior(found.first().xi, states, 4)
    given = estimate.variance["vorticity"][: len(posterior)]
    np.testing.assert_allclose(given[1:], posterior[1:], rtol=0.05)
    assert given.sum() == pytest.approx(posterior.sum(), rel=0.05)
    assert estimate.known == pytest.approx(np.trace(_gain(exact) @ exact.observation), rel=0.01)
    assert not estimate.is_rough

    found = searching(tmp_path, Variational, hessian_products=100)
    fewer = found.posterior(found.first().xi, states, 4)
    assert fewer.eigenpairs < 100 and fewer.directions > 1
    assert fewer.variance["vorticity"].sum() == pytest.approx(posterior.sum(), rel=0.05)
