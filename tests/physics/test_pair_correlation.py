"""The radial distribution function: exact numbers of pairs on any devices, 1 for particles at random."""

import jax
import numpy as np
import pytest
from gravity_cases import simulation
from particle_cases import GRID, domain, random_positions, shared_out

from simulator.archive.recorder import series_of
from simulator.measure.pair_correlation import PairCounter
from simulator.physics.particles.migration import settled

pytestmark = pytest.mark.spmd

COUNT = 120
EDGES = np.array([0.05, 0.3, 0.7, 1.2, 1.9])
"""Up to 1.9 of the box of 6 x 5 x 4: three cells along x, two along y and z, and all slabs see each other."""


def brute(position: np.ndarray, box, edges: np.ndarray) -> np.ndarray:
    away = position[:, :, None] - position[:, None, :]
    box = np.array(box)[:, None, None]
    away -= box * np.round(away / box)
    distance = np.sqrt((away**2).sum(0))[np.triu_indices(position.shape[1], 1)]
    return np.histogram(distance, edges)[0]


def clustered(count: int) -> np.ndarray:
    """Half of them in a small cloud across the box's corner, half at random."""
    position = random_positions(count)
    cloud = np.random.default_rng(5).normal(0, 0.2, (3, count // 2))
    position[:, : count // 2] = cloud % np.array(GRID.box)[:, None]
    return position


@pytest.mark.parametrize(("layout", "edges", "stride"), [
    ("one device", EDGES, 1), ("one device", EDGES, 7), ("4 slabs, the last with fewer planes", EDGES / 4, 1),
    pytest.param("3 x 2 pencils", EDGES, 1, marks=pytest.mark.slow),
    pytest.param("4 slabs, the last with fewer planes", EDGES, 1, marks=pytest.mark.slow),
    pytest.param("5 x 1 pencils, the last empty", EDGES, 1, marks=pytest.mark.slow),
])  # fmt: skip
def test_pairs_are_counted_exactly(layout, edges, stride):
    """Of all particles, and of every so manieth."""
    position, place = clustered(COUNT), domain(layout)
    particles = settled(shared_out(position, place, COUNT), place)
    count = jax.jit(PairCounter(place, edges).__call__, static_argnums=(1, 2))
    found = count(particles, COUNT, stride)
    assert found.sharding.is_fully_replicated  # four bins on four devices: XLA might leave each with one
    np.testing.assert_array_equal(found, brute(position[:, ::stride], GRID.box, edges))


def test_many_batches_of_pairs(monkeypatch):
    """Batches that end within the others of one particle, and particles without any others."""
    monkeypatch.setattr("simulator.measure.pair_correlation.TOGETHER", 16)
    position, place = clustered(COUNT), domain("one device")
    particles = shared_out(position, place, COUNT + 9)
    found = PairCounter(place, EDGES / 4)(particles, COUNT, 1)
    np.testing.assert_array_equal(found, brute(position, GRID.box, EDGES / 4))


FLOW = """\
model: {kind: navier_stokes, viscosity: 0.02}
grid: {shape: [16, 16, 16]}
initial: {kind: taylor_green}
time: {stop: 1, dt: 0.05}
particles: [{name: tracers, kind: tracer, count: 4000}]
output: {pair_correlation: {every: 1, bins: 5, range: [0.2, 1.2]}}
"""


def test_particles_at_random_are_uncorrelated():
    """The number of pairs of independent particles in a bin has the variance of its mean, so that g is 1 within
    1 / sqrt(pairs); five of these are far in the tail for five bins. The edges of the box make no difference."""
    run = simulation(FLOW)
    measured = series_of(run)["pair_correlation"]
    row = {name: np.asarray(values) for name, values in jax.jit(measured.compute)(run.state).items()}
    assert (row["tracers/pairs"] > 500).all()
    np.testing.assert_array_less(abs(row["tracers/g"] - 1), 5 / np.sqrt(row["tracers/pairs"]))
    np.testing.assert_allclose(measured.coordinates["r"][0], np.sqrt(0.2 * 0.2 * 6**0.2), rtol=1e-14)
