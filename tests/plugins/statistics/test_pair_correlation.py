"""Exact numbers of pairs of particles, and particles at random, which are uncorrelated."""

import jax
import numpy as np
import pytest
from flow_support import flow
from numpy.testing import assert_allclose, assert_array_equal, assert_array_less
from tiers import slow

from simulator.archive.series_recorder import measured_series
from simulator.plugins.statistics.pair_correlation import pairs_between

BOX = np.array([6.0, 5.0, 4.0])
EDGES = np.array([0.05, 0.3, 0.7, 1.2, 1.9])


def test_pairs_are_counted_exactly():
    """Half of the particles in a small cloud across the box's corner, half at random."""
    rng = np.random.default_rng(5)
    cloud = rng.normal(0, 0.2, (60, 3)) % BOX
    position = np.concatenate([cloud, rng.random((60, 3)) * BOX])
    away = position[:, None] - position
    away -= BOX * np.round(away / BOX)
    distance = np.sqrt((away**2).sum(-1))[np.triu_indices(len(position), 1)]
    assert_array_equal(pairs_between(position, BOX, EDGES), np.histogram(distance, EDGES)[0])


@pytest.mark.spmd
@pytest.mark.parametrize("devices", [1, slow(2)])
def test_particles_at_random_are_uncorrelated(devices: int):
    """The number of pairs of independent particles in a bin has the variance of its mean, so that g
    is 1 within 1 / sqrt(pairs); five of these are far in the tail for five bins. The edges of the
    box make no difference."""
    species = [
        {"name": name, "kind": "tracer", "count": count}
        for name, count in (("tracers", 4001), ("others", 3999))
    ]
    output = {"pair_correlation": {"every": 1, "bins": 5, "range": [0.2, 1.2]}}
    blocks = {"particles": species, "output": output, "time": {"stop": 1.0, "dt": 0.05}}
    start = {"kind": "taylor_green"}
    run = flow(16, 16, 16, initial=start, viscosity=0.02, count=devices, **blocks)
    measured = measured_series(run)["pair_correlation"]
    row = measured.finish(
        {name: np.asarray(v) for name, v in jax.jit(measured.compute)(run.state).items()}
    )
    assert (row["tracers/pairs"] > 500).all()
    assert_array_less(abs(row["tracers/g"] - 1), 5 / np.sqrt(row["tracers/pairs"]))
    assert_allclose(measured.coordinates["r"][0], np.sqrt(0.2 * 0.2 * 6**0.2), rtol=1e-14)
