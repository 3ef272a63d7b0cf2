"""Where matter lies: against fields of which it is known, on one device and on four, without
gathering a field."""

from functools import cache

import gravity_cases as cases
import jax
import numpy as np
import pytest
from gravity_cases import GAS, WAVE
from numpy.testing import assert_allclose
from peers.collectives import collectives
from tiers import slow

from simulator.archive.series_recorder import measured_series
from simulator.plugins.statistics.profiles import profile_edges
from simulator.spectral import Grid

# 14 planes of y on 4 devices: two of padding.
GRID = ("grid.shape=16,14,12", "grid.box=2*pi,6,5")
PLACE = (1.3, 5.9, 0.1)
SHAPE = "2.5 + jnp.cos(x - 1.3) + jnp.cos(jnp.pi * (y - 5.9) / 3) + 0.2 * jnp.cos(2 * jnp.pi * (z - 0.1) / 5)"
FIELDS = {
    WAVE: f'{{"psi": ({SHAPE}) * jnp.exp(1j * x)}}',
    GAS: f'{{"density": {SHAPE}, "velocity": (0 * x + 0 * y + 0 * z,) * 3}}',
}
KINDS = {
    "profiles": "bins: 9",
    "projections": "",
    "histograms": "bins: 24, decades: [-3, 2]",
}
OUTPUT = tuple(f"output.{kind}={{every_steps: 1, {more}}}" for kind, more in KINDS.items())


@cache
def run(text, devices):
    return cases.simulation(text, *GRID, *OUTPUT, devices=devices, python=FIELDS[text])


@cache
def compiled(text, devices, kind):
    simulation = run(text, devices)
    return jax.jit(measured_series(simulation)[kind].compute).lower(simulation.state).compile()


@cache
def found(text, devices):
    """Everything that is measured, by KIND/NAME."""
    values = {}
    simulation = run(text, devices)
    for kind in KINDS:
        what = measured_series(simulation)[kind]
        got = {k: np.asarray(v) for k, v in compiled(text, devices, kind)(simulation.state).items()}
        shapes = {
            k: tuple(len(what.coordinates[d]) for d in over) for k, over in what.variables.items()
        }
        assert {k: v.shape for k, v in got.items()} == shapes
        values |= {f"{kind}/{k}": v for k, v in got.items()}
    return values


def density(text):
    return np.asarray(run(text, 1).fields["density"])


@pytest.mark.parametrize("text", [WAVE, GAS], ids=["wave", "gas"])
def test_the_densest_point_lies_between_the_grid_points(text):
    """The maximum of the series of modes is that of the function, which has only the modes 0 to 2:
    to round-off of a place at which the slope vanishes, sqrt(1e-16 rho / curvature)."""
    at = [found(text, 1)[f"profiles/center_{axis}"] for axis in "xyz"]
    assert_allclose(at, PLACE, atol=1e-7)
    peak = 4.7 ** (2 if text is WAVE else 1)
    assert found(text, 1)["profiles/peak_density"] == pytest.approx(peak, rel=1e-12)


def test_profiles_against_a_loop_over_points():
    """Shell means of the gas about the point that was found, at distances to the nearest image."""
    simulation = run(GAS, 1)
    values = found(GAS, 1)
    grid = simulation.grid
    rho = density(GAS)
    edges = profile_edges(grid, 9)
    places = (np.arange(n) * h for n, h in zip(grid.shape, grid.spacing, strict=True))
    axes = np.meshgrid(*places, indexing="ij")
    away = [(x - c + n / 2) % n - n / 2 for x, c, n in zip(axes, PLACE, grid.box, strict=True)]
    r = np.sqrt(sum(d**2 for d in away))
    assert edges[0] == min(grid.spacing) and edges[-1] == pytest.approx(2.5)
    for i in range(9):
        inside = (r >= (edges[i] if i else 0)) & (r < edges[i + 1])
        assert values["profiles/points"][i] == inside.sum()
        if inside.any():
            assert values["profiles/density"][i] == pytest.approx(rho[inside].mean(), rel=1e-12)
            assert values["profiles/radius"][i] == pytest.approx(r[inside].mean(), rel=1e-6)
        mass = rho[r < edges[i + 1]].sum() * grid.volume / grid.points
        assert values["profiles/enclosed_mass"][i] == pytest.approx(mass, rel=1e-12)


@pytest.mark.parametrize("text", [WAVE, GAS], ids=["wave", "gas"])
def test_projections_and_histograms_against_the_field(text):
    grid = run(text, 1).grid
    rho = density(text)
    values = found(text, 1)
    for i, plane in enumerate(("yz", "xz", "xy")):
        expected = rho.sum(i) * grid.spacing[i]
        assert_allclose(values[f"projections/density/{plane}"], expected, rtol=1e-12)
    # Of bins that no value lies on the edge of, numpy's counts.
    counts, _ = np.histogram(np.log10(rho / rho.mean()), 24, (-3, 2))
    width = 5 / 24
    assert_allclose(values["histograms/log_density"] * width * rho.size, counts, atol=1e-9)
    assert values["histograms/log_density"].sum() * width == pytest.approx(1, rel=1e-12)
    assert values["histograms/log_density_mass"].sum() * width == pytest.approx(1, rel=1e-12)


@pytest.mark.spmd
@pytest.mark.parametrize("text", [pytest.param(WAVE, id="wave"), slow(GAS, id="gas")])
def test_four_devices_measure_the_same_and_send_no_field(text):
    """To round-off (sums of 2688 values); beside all-to-alls less than half of a component is
    sent."""
    one = found(text, 1)
    four = found(text, 4)
    assert one.keys() == four.keys()
    for name, values in one.items():
        assert_allclose(four[name], values, rtol=1e-11, atol=1e-13, err_msg=name)
    simulation = run(text, 4)
    for kind in KINDS:
        for what, traffic in collectives(compiled(text, 4, kind)).items():
            if what != "all-to-all":
                assert traffic.bytes < 8 * simulation.grid.points / 2, (kind, what)


@pytest.mark.slow
def test_a_flat_box_has_a_densest_point_too():
    """One plane of points, a ridge along y: the place is found across it, and stays along it."""
    text = GAS.replace("[16, 16, 16]", "[16, 8, 1]")
    fields = '{"density": 2 + jnp.cos(x - 1.3) + 0 * y + 0 * z, "velocity": (0 * x + 0 * y + 0 * z,) * 3}'
    simulation = cases.simulation(text, OUTPUT[0], python=fields)
    got = jax.jit(measured_series(simulation)["profiles"].compute)(simulation.state)
    assert_allclose([got[f"center_{a}"] for a in "xyz"], (1.3, 0, 0), atol=1e-7)


def test_the_shells_reach_from_the_spacing_to_half_the_box():
    edges = profile_edges(Grid((32, 16, 1), (2.0, 3.0, 0.1)), 4)
    assert_allclose(edges, np.geomspace(2 / 32, 1, 5))
    assert_allclose(profile_edges(Grid((8, 8, 8)), 2, (0.1, 10.0)), [0.1, 1, 10])


@pytest.mark.slow
def test_a_composite_has_the_profile_of_all_matter_and_of_each_component():
    """Densities of the components add up to the whole, in shells about the densest point of
    that."""
    text = """\
model:
  kind: composite
  components: [{kind: self_gravitating_gas, sound_speed: 1.0}, {kind: schrodinger_poisson}]
grid: {shape: [8, 8, 8], box: [7, 7, 7]}
initial:
  kind: composite
  components: {gas: {kind: uniform, density: 0.01}, waves: {kind: jeans_wave, amplitude: 0.3}}
time: {stop: 1.0, max_dt: 0.05}
"""
    simulation = cases.simulation(text, *OUTPUT, devices=2)
    densities = ("density", "gas_density", "waves_density")
    for kind, names in (
        ("profiles", densities),
        ("histograms", [f"log_{name}" for name in densities]),
    ):
        what = measured_series(simulation)[kind]
        got = {k: np.asarray(v) for k, v in jax.jit(what.compute)(simulation.state).items()}
        assert set(names) <= got.keys()
        if kind == "profiles":
            whole, gas, waves = (got[name] for name in names)
            assert_allclose(gas + waves, whole, rtol=1e-12)
            assert_allclose(gas[np.isfinite(gas)], 0.01, rtol=1e-12)
