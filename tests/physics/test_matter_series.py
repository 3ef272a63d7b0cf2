"""Series of particles that are matter: paths, and statistics with exact values."""

import numpy as np
import pytest
from run_support import simulate, write_case

from simulator import open_run
from simulator.show import plot_run

pytestmark = pytest.mark.spmd

AMPLITUDE, DENSITY = 1e-3, 1.0
SHEETS = f"""\
model:
  kind: composite
  gravitational_constant: {1 / (4 * np.pi)}
  components: [{{kind: particles, name: dark, count: 512, assignment: pcs, softening: 0}}]
grid: {{shape: [32, 4, 4], box: [8, 1, 1]}}
initial: {{kind: composite, components: {{dark: {{kind: zeldovich_wave, amplitude: {AMPLITUDE}}}}}}}
time: {{stop: 0.5, dt: 0.05}}
devices: {{platform: cpu, count: 2}}
output:
  diagnostics: {{every_steps: 5}}
  particle_statistics: {{every_steps: 1, bins: 20, range: 3}}
  trajectories: {{every_steps: 1, count: 100}}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Sheets displaced by s = A sin(k q) / k, each pulled away by 4 pi G rho s as long as none cross."""
    folder = tmp_path_factory.mktemp("sheets")
    config = write_case(folder, SHEETS)
    assert simulate(config, folder / "run") == 0
    return open_run(folder / "run")


def test_statistics_of_growing_sheets(run):
    """The growing mode is s = s_0 exp(t) for 4 pi G rho = 1. The spline's aliases change the force of 32 cells a wave
    by less than 1e-3, and kick-drift-kick with dt = 0.05 the rate by dt^2 / 24."""
    table, k = run.series("particle_statistics"), 2 * np.pi / 8
    square, t = (AMPLITUDE / k) ** 2 / 2, table.time
    np.testing.assert_allclose(table["dark/acceleration_variance"], square * np.exp(2 * t), rtol=2e-3)
    np.testing.assert_allclose(table["dark/velocity_variance"], square * np.exp(2 * t), rtol=2e-3)
    assert np.abs(table["dark/mean_velocity_x"]).max() < 1e-12 * AMPLITUDE
    width = 6 / 20
    density = table["dark/acceleration"][-1]
    # Two components of three vanish; a sine's largest value is sqrt(2) of its rms, here in units of rms / sqrt(3).
    assert density.sum() * width == pytest.approx(1, abs=1e-12)
    assert density[: round((3 - np.sqrt(6)) / width) - 1].sum() == 0
    assert {name.partition("/")[2] for name in table.variables} == {
        *(f"mean_velocity_{axis}" for axis in "xyz"),
        "velocity_variance",
        "acceleration_variance",
        "acceleration",
    }


def test_paths_hold_places_and_velocities(run):
    paths = run.series("trajectories")
    np.testing.assert_array_equal(paths.coordinates["dark_id"], np.arange(0, 512, 6))
    np.testing.assert_array_equal(paths.attributes["box"], [8, 1, 1])
    last = run.snapshots[-1].particles["dark"]
    order = np.argsort(last["id"][...])[::6]
    for i, axis in enumerate("xyz"):
        for record in ("position", "velocity"):
            np.testing.assert_array_equal(paths[f"dark/{record}_{axis}"][-1], last[record][i][order])
    assert not any("displacement" in name for name in paths.variables)


def test_they_are_drawn(run):
    names = {path.stem for path in plot_run(run.path).files}
    assert {"trajectories_dark", "acceleration_dark"} <= names and "dispersion" not in names
