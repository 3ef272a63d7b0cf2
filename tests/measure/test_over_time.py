"""Means over time and their errors: against numpy, against an exactly known correlation, and through a restart."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_support import simulate, write_case

from simulator import open_run
from simulator.measure.statistics import empty, results, taken_in


@jax.jit
def all_of(samples, on):
    def one(moments, given):
        return taken_in(moments, *given), None

    return jax.lax.scan(one, empty(samples.shape[1]), (samples, on))[0]


def test_moments_are_those_of_the_samples_that_count():
    samples = np.random.default_rng(1).standard_normal((100, 3)) + np.array([1e6, 0, 5])
    on = np.arange(100) >= 37
    found = results(all_of(jnp.asarray(samples), jnp.asarray(on)))
    np.testing.assert_allclose(found["mean"], samples[37:].mean(0), rtol=1e-14, atol=1e-15)
    # About a mean of 1e6 the squares of deviations keep 16 - 6 digits (Welford; the naive sum would keep 4).
    np.testing.assert_allclose(found["variance"], samples[37:].var(0, ddof=1), rtol=1e-9)


def test_levels_hold_the_means_of_blocks():
    samples = np.random.default_rng(2).standard_normal((67, 2))
    moments = all_of(jnp.asarray(samples), jnp.ones(67, bool))
    for level in range(5):
        length = 2**level
        blocks = samples[: 67 // length * length].reshape(-1, length, 2).mean(1)
        assert moments.blocks[level] == len(blocks)
        np.testing.assert_allclose(moments.mean[level], blocks.mean(0), atol=1e-15)
        squares = ((blocks - blocks.mean(0)) ** 2).sum(0)
        np.testing.assert_allclose(moments.squares[level], squares, rtol=1e-12)


@pytest.mark.parametrize("phi", [0.0, 0.9])
def test_the_error_knows_of_the_correlation(phi):
    """x' = phi x + noise has the variance of its mean sigma^2 / n (1 + phi) / (1 - phi) for n times longer than the
    correlation. An estimate from m blocks has a relative error of 1 / sqrt(2 (m - 1)), 0.27 for the fewest, 8; the
    largest of the levels lies above more often than below."""
    n, copies = 4096, 16
    rng = np.random.default_rng(3)
    x = np.zeros((n, copies))
    for i in range(1, n):
        x[i] = phi * x[i - 1] + rng.standard_normal(copies)
    exact = np.sqrt((1 / (1 - phi**2)) * (1 + phi) / (1 - phi) / n)
    found = np.asarray(results(all_of(jnp.asarray(x), jnp.ones(n, bool)))["error"])
    assert (found > exact * (1 - 0.27)).all() and exact < found.mean() < exact * (1 + 2 * 0.27)


def test_too_few_samples_have_no_error():
    found = results(all_of(jnp.ones((5, 1)), jnp.ones(5, bool)))
    assert found["mean"] == 1 and found["variance"] == 0 and np.isnan(found["error"])
    assert np.isnan(results(empty(1))["mean"])


CASE = """\
name: case
model: {kind: navier_stokes, viscosity: 0.02}
grid: {shape: [8, 8, 8]}
initial: {kind: random, peak: 2, energy: 0.5, seed: 1}
time: {stop: 1.0, dt: 0.02}
devices: {platform: cpu, count: 2}
output:
  diagnostics: {every_steps: 1}
  spectra: {every_steps: 1}
  statistics: {from: 0.3, every_steps: 1}
"""


@pytest.mark.slow
def test_statistics_of_a_run_and_of_a_restarted_one(tmp_path):
    """They are those of its own rows; interrupted and continued they are the same bit for bit."""
    case = write_case(tmp_path, CASE)
    assert simulate(case, tmp_path / "run") == 0
    assert simulate(case, tmp_path / "again", "time.stop=0.62") == 0
    assert simulate(case, tmp_path / "again") == 0
    whole, parts = (open_run(tmp_path / name).series("statistics") for name in ("run", "again"))
    assert whole.variables == parts.variables and len(whole) == len(parts) == 51
    for name in whole.variables:
        np.testing.assert_array_equal(parts[name], whole[name], err_msg=name)
    run, last = open_run(tmp_path / "run"), whole.at(-1)
    rows = run.diagnostics["time"] > 0.3 - 1e-9
    assert last["samples"] == rows.sum() == 36
    np.testing.assert_allclose(last["mean/energy"], run.diagnostics["energy"][rows].mean(), rtol=1e-13)
    spectra = run.spectra["kinetic_energy"][rows]
    np.testing.assert_allclose(last["mean/spectrum/kinetic_energy"], spectra.mean(0), rtol=1e-12, atol=1e-18)
    variance = last["variance/spectrum/kinetic_energy"]
    np.testing.assert_allclose(variance, spectra.var(0, ddof=1), rtol=1e-9, atol=1e-20)
    assert last["error/energy"] > 0 and np.isnan(whole.at(5)["mean/energy"])
