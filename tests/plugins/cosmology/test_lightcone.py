"""Matter on a light cone, against crossings that are bisected one by one."""

from dataclasses import replace

import gravity_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from tiers import slow

from simulator.archive.series_recorder import measured_series
from simulator.plugins.gravity.cosmology import Background

LIGHT = 7.0
NOW = 0.5
VELOCITY = np.array([0.6, -0.2, 0.9])


@pytest.mark.spmd
@pytest.mark.parametrize("devices", [1, slow(2), 4])
def test_particles_cross_where_they_drift(devices: int):
    """A lattice that moves as one, from the light cone at tau = 0.1 to that at 0.45; the cone is
    deeper than the box. The mean is that of the matter between, which moves towards the light, up
    to a plane of the lattice."""
    run = cases.simulation(
        cases.MATTER,
        *(
            "model.cosmology.start=0.5",
            "grid.shape=8,6,8",
            "grid.box=6,6,2",
            "model.components.0.count=72",
        ),
        f"initial.components.dark={{kind: uniform, velocity: {VELOCITY.tolist()}}}",
        f"output.lightcone={{every_steps: 1, observer: 0.3, speed_of_light: {LIGHT}}}",
        devices=devices,
    )
    begin = 0.1
    end = 0.45
    state = replace(run.state, time=jnp.float64(NOW))
    row = jax.jit(measured_series(run)["lightcone"].compute)(state, {"begin": begin, "end": end})
    background = Background(run.config.model.cosmology)
    records = cases.by_id(run.state.particles["dark"])
    for name, time in (("farthest", begin), ("nearest", end)):
        a = background.scale_factor_at(time)
        depth = LIGHT * quad(lambda x: 1 / (x**2 * background.hubble(x)), a, 1, epsabs=1e-13)[0]
        assert row[name] == pytest.approx(depth, rel=1e-9)
    position = np.repeat(records["position"], 11, 1)
    images = np.tile(np.arange(-5, 6), 72)

    def above(time) -> np.ndarray:
        height = 0.3 + LIGHT * np.asarray(background.distance(time))
        return height - position[2] - VELOCITY[2] * (time - NOW) - 2 * images

    low, high = np.full((2, len(images)), [[begin], [end]])
    crosses = (above(low) > 0) & (above(high) <= 0)
    for _ in range(45):
        middle = (low + high) / 2
        low, high = np.where(above(middle) > 0, (middle, high), (low, middle))
    x, y = (position[:2] + np.outer(VELOCITY[:2], np.ones(len(images))) * (low - NOW)) * [
        [8 / 6],
        [1],
    ]
    i = np.floor(x).astype(int)
    j = np.floor(y).astype(int)
    wanted = np.zeros((8, 6))
    for p, q in ((0, 0), (0, 1), (1, 0), (1, 1)):
        share = crosses * (1 - abs(x - i - p)) * (1 - abs(y - j - q)) * records["mass"][0] * 48 / 36
        np.add.at(wanted, ((i + p) % 8, (j + q) % 6), share)
    assert_allclose(row["dark_density/xy"], wanted, rtol=0, atol=1e-9 * wanted.max())
    assert (
        abs(wanted.mean() - (row["farthest"] - row["nearest"] + VELOCITY[2] * (end - begin)))
        < 2 / 3
    )
