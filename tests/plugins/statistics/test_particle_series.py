"""Series of particles, matter too: paths by id, and statistics with exact values."""

import jax
import numpy as np
import pytest
from gravity_cases import simulation, source
from numpy.testing import assert_allclose, assert_array_equal
from run_support import drawn, simulate, write_case
from tiers import slow

from simulator import open_run
from simulator.archive.series_recorder import measured_series

pytestmark = pytest.mark.spmd

FALLING = """\
model: {kind: navier_stokes, viscosity: 0}
grid: {shape: [8, 16, 16]}
initial: {kind: python, path: FLOW, function: flow}
time: {stop: 1.0, dt: 0.1, integrator: rk2}
devices: {platform: cpu, count: 2}
particles:
  - {name: tracers, kind: tracer, count: 100}
  - {name: drops, kind: inertial, count: 60, relaxation_time: 0.5, gravity: [0, 0, -1]}
output:
  diagnostics: {every_steps: 5}
  particle_statistics: {every_steps: 5, bins: 10, range: 5}
  trajectories: {every_steps: 1, count: 7, sample: [velocity]}
"""
TURBULENT = FALLING.replace("{kind: python, path: FLOW, function: flow}", "{kind: random, peak: 2}")
FLOW = """\
def flow(x, y, z):
    return {"velocity": [0 * x + 0 * y + 0 * z, 0.3 + 0 * x + 0 * y + 0 * z, 0 * x + 0 * y + 0 * z]}
"""
WIND = 0.3
AMPLITUDE = 1e-3
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
KINDS = ("particle_statistics", "trajectories", "slices")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A uniform wind, in which tracers drift and drops fall."""
    return ran(tmp_path_factory.mktemp("falling"), FALLING.replace("FLOW", str(source(FLOW))))


@pytest.fixture(scope="module")
def matter(tmp_path_factory):
    """Sheets displaced by s = A sin(k q) / k, each pulled away by 4 pi G rho s as long as none
    cross."""
    return ran(tmp_path_factory.mktemp("sheets"), SHEETS)


def ran(folder, text):
    assert simulate(write_case(folder, text), folder / "run") == 0
    return open_run(folder / "run")


@pytest.mark.long
def test_paths_are_those_of_every_so_manieth_particle(run, matter):
    for whole, species, count, stride in ((run, "tracers", 100, 15), (matter, "dark", 512, 6)):
        paths = whole.series("trajectories")
        last = whole.snapshots[-1].particles[species]
        assert_array_equal(paths.coordinates[f"{species}_id"], np.arange(0, count, stride))
        order = np.argsort(last["id"][...])[::stride]
        for i, axis in enumerate("xyz"):
            assert_array_equal(paths[f"{species}/position_{axis}"][-1], last["position"][i][order])
            if species == "dark":
                assert_array_equal(paths[f"dark/velocity_{axis}"][-1], last["velocity"][i][order])
    assert_array_equal(paths.attributes["box"], [8, 1, 1])
    assert not any("displacement" in name for name in paths.variables)
    paths = run.series("trajectories")
    assert len(paths) == 11
    along = paths["tracers/displacement_y"]
    assert_allclose(along, WIND * paths.time[:, None] + 0 * along, rtol=0, atol=1e-13)
    assert_allclose(paths["tracers/fluid_velocity_y"], WIND, rtol=0, atol=1e-14)


def test_statistics_of_a_uniform_drift_and_of_a_fall(run):
    """Tracers: <d_y^2> = (U t)^2, no acceleration, full memory. Drops: v_z = -tau g (1 - exp(-t /
    tau)), and the acceleration is -g exp(-t / tau). Heun's method with a step of a fifth of tau
    solves the fall to 2 %."""
    table = run.series("particle_statistics")
    t = table.time
    assert_allclose(table["tracers/dispersion_y"], (WIND * t) ** 2, rtol=0, atol=1e-13)
    assert_allclose(table["tracers/velocity_autocorrelation"], 1, rtol=0, atol=1e-13)
    assert_allclose(table["tracers/velocity_variance"], 0, rtol=0, atol=1e-14)
    assert_allclose(table["drops/mean_velocity_y"], WIND, rtol=0, atol=1e-3)
    fall = -0.5 * (1 - np.exp(-t / 0.5))
    assert_allclose(table["drops/mean_velocity_z"], fall, rtol=0.02, atol=1e-13)
    assert_allclose(table["drops/acceleration_variance"], np.exp(-4 * t), rtol=0.1, atol=0)
    assert_array_equal(table["drops/settling_velocity"], -table["drops/mean_velocity_z"])
    assert "tracers/settling_velocity" not in table
    v = np.sqrt(WIND**2 + fall**2)
    assert_allclose(table["drops/velocity_autocorrelation"], WIND / v, rtol=0.01)


@pytest.mark.long
@pytest.mark.parametrize("devices", [slow(1), 4])
def test_pairs_of_a_shear_flow_separate_ballistically(tmp_path, devices: int):
    """u = sin(y) e_x is steady without viscosity, and its paths are straight: r(t) = r(0) + t (sin
    y_2 - sin y_1). The spline's error of dx^4 / 384 is that of sin at 16 points, 6e-5."""
    flow = source(
        FLOW.replace("0 * x + 0 * y + 0 * z, 0.3 +", "jnp.sin(y) + 0 * x + 0 * z, 0 * y +")
    )
    pairs = "particles: [{name: tracers, kind: tracer, count: 3000, start: {kind: pairs, separations: [0.05, 1]}}]"
    text = f"""\
model: {{kind: navier_stokes, viscosity: 0}}
grid: {{shape: [16, 16, 16]}}
initial: {{kind: python, path: {flow}, function: flow}}
time: {{stop: 1, dt: 0.25}}
devices: {{platform: cpu, count: {devices}}}
{pairs}
output: {{particle_statistics: {{every_steps: 2}}, snapshots: {{every: 1}}}}
"""
    run = ran(tmp_path, text)
    table = run.series("particle_statistics")
    begun = run.snapshots[0].particles["tracers"]
    position = begun["position"][...][:, np.argsort(begun["id"][...])]
    first = position[:, 1::2] - position[:, ::2]
    first -= 2 * np.pi * np.round(first / (2 * np.pi))
    assert_allclose(np.linalg.norm(first, axis=0), np.tile([0.05, 1], 750), rtol=1e-13)
    speed = np.sin(position[1, 1::2]) - np.sin(position[1, ::2])
    for row, t in enumerate(table.time):
        for which in (0, 1):
            way = t * speed[which::2]
            begin = first[:, which::2]
            change = (way**2).mean()
            apart = ((begin[0] + way) ** 2 + begin[1] ** 2 + begin[2] ** 2).mean()
            assert_allclose(table["tracers/pair_change"][row][which], change, rtol=1e-3)
            assert_allclose(table["tracers/pair_dispersion"][row][which], apart, rtol=1e-3)


def test_statistics_of_growing_sheets(matter):
    """The growing mode is s = s_0 exp(t) for 4 pi G rho = 1. The spline's aliases change the force
    of 32 cells a wave by less than 1e-3, and kick-drift-kick with dt = 0.05 the rate by dt^2 /
    24."""
    table = matter.series("particle_statistics")
    k = 2 * np.pi / 8
    square = (AMPLITUDE / k) ** 2 / 2
    t = table.time
    assert_allclose(table["dark/acceleration_variance"], square * np.exp(2 * t), rtol=2e-3)
    assert_allclose(table["dark/velocity_variance"], square * np.exp(2 * t), rtol=2e-3)
    assert np.abs(table["dark/mean_velocity_x"]).max() < 1e-12 * AMPLITUDE
    width = 6 / 20
    density = table["dark/acceleration"][-1]
    # Two components of three vanish; a sine's largest value is sqrt(2) of its rms, here in units of
    # rms / sqrt(3).
    assert density.sum() * width == pytest.approx(1, abs=1e-12)
    assert density[: round((3 - np.sqrt(6)) / width) - 1].sum() == 0
    assert {name.partition("/")[2] for name in table.variables} == {
        *(f"mean_velocity_{axis}" for axis in "xyz"),
        "velocity_variance",
        "acceleration_variance",
        "acceleration",
    }


def test_the_probability_density_of_the_acceleration_is_normal_for_random_modes():
    """It integrates to 1 with unit variance, up to the bins' width."""
    statistics = "output.particle_statistics={every: 1, bins: 200, range: 10}"
    run = simulation(TURBULENT, "grid.shape=16,16,16", "particles.0.count=3000", statistics)
    measured = measured_series(run)["particle_statistics"]
    row = jax.jit(measured.compute)(run.state)
    sigma = measured.coordinates["sigma"]
    density = np.asarray(row["tracers/acceleration"])
    width = sigma[1] - sigma[0]
    assert density.sum() * width == pytest.approx(1, abs=1e-12)
    assert (density * sigma**2).sum() * width == pytest.approx(1, abs=0.01)


@pytest.mark.plugins
@pytest.mark.long
def test_every_series_of_particles_is_drawn(run, matter):
    names = {name.removesuffix(".png") for name in drawn(run.path)}
    assert {
        "trajectories_tracers",
        "trajectories_drops",
        "dispersion",
        "acceleration_tracers",
    } <= names
    assert {"settling_velocity", "slices_speed"} <= names
    names = {name.removesuffix(".png") for name in drawn(matter.path)}
    assert {"trajectories_dark", "acceleration_dark"} <= names and "dispersion" not in names
    assert sorted(name for name in names if "density" in name) == [
        "slices_density",
        "spectrum_density_power",
    ]
