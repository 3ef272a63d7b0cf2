"""The radial distribution function: exact numbers of pairs on any devices, 1 for particles at random."""

import jax
import numpy as np
import pytest
from gravity_cases import simulation
from particle_cases import GRID, domain, random_positions, shared_out

from simulator.archive.recorder import series_of
from simulator.measure.pair_correlation import pairs_between
from simulator.physics.particles.migration import settled
from simulator.physics.particles.population import Population

pytestmark = pytest.mark.spmd

COUNT = 120
EDGES = np.array([0.05, 0.3, 0.7, 1.2, 1.9])
"""Up to 1.9 of the box of 6 x 5 x 4."""


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


@pytest.mark.parametrize("layout", [
    "one device", "4 slabs, the last with fewer planes", pytest.param("3 x 2 pencils", marks=pytest.mark.slow),
])  # fmt: skip
def test_pairs_are_counted_exactly(layout):
    """Of all particles, and of every so manieth, from where the devices hold them."""
    position, place = clustered(COUNT), domain(layout)
    particles = settled(shared_out(position, place, COUNT), place)
    population = Population("p", {"position": 3}, COUNT, place)
    for stride in (1, 7):
        chosen = np.asarray(population.chosen(particles, particles.records["position"], stride)).T
        expected = brute(position[:, ::stride], GRID.box, EDGES)
        np.testing.assert_array_equal(pairs_between(chosen, np.array(GRID.box), EDGES), expected)


FLOW = """\
model: {kind: navier_stokes, viscosity: 0.02}
grid: {shape: [16, 16, 16]}
initial: {kind: taylor_green}
time: {stop: 1, dt: 0.05}
particles: [{name: tracers, kind: tracer, count: 4001}, {name: others, kind: tracer, count: 3999}]
output: {pair_correlation: {every: 1, bins: 5, range: [0.2, 1.2]}}
"""


@pytest.mark.parametrize("devices", [1, 2])
def test_particles_at_random_are_uncorrelated(devices: int):
    """The number of pairs of independent particles in a bin has the variance of its mean, so that g is 1 within
    1 / sqrt(pairs); five of these are far in the tail for five bins. The edges of the box make no difference."""
    run = simulation(FLOW, devices=devices)
    measured = series_of(run)["pair_correlation"]
    row = measured.finish({name: np.asarray(v) for name, v in jax.jit(measured.compute)(run.state).items()})
    assert (row["tracers/pairs"] > 500).all()
    np.testing.assert_array_less(abs(row["tracers/g"] - 1), 5 / np.sqrt(row["tracers/pairs"]))
    np.testing.assert_allclose(measured.coordinates["r"][0], np.sqrt(0.2 * 0.2 * 6**0.2), rtol=1e-14)
