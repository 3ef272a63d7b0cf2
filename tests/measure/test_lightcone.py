"""Matter on a light cone: against crossings that are bisected one by one."""

import gravity_cases as cases
import jax
import numpy as np
import pytest
from scipy.integrate import quad

from simulator.archive.recorder import series_of
from simulator.physics.models.cosmology import Background

LIGHT, NOW = 7.0, 0.5
VELOCITY = np.array([0.6, -0.2, 0.9])


@pytest.mark.spmd
@pytest.mark.parametrize("devices", [1, 2, 4])
def test_particles_cross_where_they_drift(devices: int) -> None:
    """A lattice that moves as one, from the light cone at tau = 0.1 to that at 0.45; the cone is deeper than the box.
    Sums of masses are equal to round-off, and the depth is that of the mean density up to a plane of the lattice."""
    run = cases.simulation(
        cases.MATTER,
        *("model.cosmology.start=0.5", "grid.shape=8,6,8", "model.components.0.count=216", "grid.box=6,6,2"),
        *("model.components.0.count=72", f"initial.components.dark={{kind: uniform, velocity: {VELOCITY.tolist()}}}"),
        f"output.lightcone={{every_steps: 1, observer: 0.3, speed_of_light: {LIGHT}}}",
        devices=devices,
    )
    begin, end = 0.1, 0.45
    state = jax.tree.map(lambda x: x, run.state).__class__(**{**vars(run.state), "time": jax.numpy.float64(NOW)})
    row = jax.jit(series_of(run)["lightcone"].compute)(state, {"begin": begin, "end": end})
    background = Background(run.config.model.cosmology)

    def height(time: float) -> float:
        a = background.scale_factor_at(time)
        return 0.3 + LIGHT * quad(lambda x: 1 / (x**2 * background.hubble(x)), a, 1, epsabs=1e-13)[0]

    assert row["farthest"] == pytest.approx(height(begin) - 0.3, rel=1e-9)
    assert row["nearest"] == pytest.approx(height(end) - 0.3, rel=1e-9)
    records, wanted = cases.by_id(run.state.particles["dark"]), np.zeros((8, 6))
    for (x, y, z), mass in zip(records["position"].T, records["mass"], strict=True):
        for n in range(-5, 6):
            low, high = begin, end

            def gap(time: float, z=z, n=n) -> float:
                return height(time) - z - VELOCITY[2] * (time - NOW) - 2 * n

            if gap(low) <= 0 or gap(high) > 0:
                continue
            for _ in range(40):
                middle = (low + high) / 2
                low, high = (middle, high) if gap(middle) > 0 else (low, middle)
            place = (np.array([x, y]) + VELOCITY[:2] * (low - NOW)) * (8 / 6, 1)
            i = np.floor(place).astype(int)
            for p in (0, 1):
                for q in (0, 1):
                    share = (1 - abs(place[0] - i[0] - p)) * (1 - abs(place[1] - i[1] - q))
                    wanted[(i[0] + p) % 8, (i[1] + q) % 6] += share * mass * 48 / 36
    np.testing.assert_allclose(row["dark_density/xy"], wanted, rtol=0, atol=1e-7 * wanted.max())
    moved = VELOCITY[2] * (end - begin)  # the lattice meets the light
    assert abs(wanted.mean() - (height(begin) - height(end) + moved)) < 2 / 3
