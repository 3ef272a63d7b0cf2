"""Halos by friends of friends, cores of waves, mass functions; catalogues on every layout, in
pandas and in yt."""

import numpy as np
import pytest
from fault_support import flip
from numpy.testing import assert_allclose, assert_array_equal
from run_support import call, drawn, write_case
from scipy.sparse.csgraph import connected_components
from scipy.special import erf

from simulator import open_run
from simulator.cli import main
from simulator.measure import OUTPUTS
from simulator.plugins.cosmology.halo_catalogue import HaloCatalogue, catalogue_of, catalogues
from simulator.plugins.cosmology.halos import (
    cores,
    distances,
    fitted_mass_functions,
    friends,
    halos,
)
from simulator.plugins.cosmology.soliton import radial_ground_state

CASE = """\
name: case
model:
  kind: composite
  units: mpc_h_km_s_msun_h
  background: {start: 0.4, matter: 0.3, hubble: 100}
  components: [{kind: particles, name: dark, count: 4096, reproducible: true}]
grid: {shape: [16, 16, 16], box: [64, 64, 64]}
initial: {kind: composite, components: {dark: {kind: cosmological, transfer: eisenstein_hu, h: 0.7, sigma8: 2}}}
time: {stop: {scale_factor: 1}, cfl: 1, max_dt: 0.002}
devices: {platform: cpu, count: 1}
output: {snapshots: {every: {redshift: [1]}}}
"""
MAPS = "output.projections={every: {redshift: [1, 0]}, align: true}"
"""Series of another plugin, which may be absent."""


def clustered(count):
    """Half of the particles in 20 clumps, some across the faces of the box."""
    rng = np.random.default_rng(3)
    box = np.array([3.0, 2.0, 5.0])
    clumps = rng.random((20, 3)) * box
    near = clumps[rng.integers(0, 20, count // 2)] + 0.1 * rng.standard_normal((count // 2, 3))
    return np.concatenate([rng.random((count - count // 2, 3)), near / box]) % 1 * box, box


@pytest.mark.parametrize("slab", [2000, 300, 11])
def test_friends_are_those_of_all_pairs(slab):
    """In one slab, or in slabs thinner than the linking length; crowding up to the round-off of its
    sums."""
    position, box = clustered(1000)
    mass = np.linspace(1, 2, 1000)
    reach = 0.09
    away = np.stack([distances(position, one, box) for one in position])
    number, expected = connected_components(away <= reach)
    found, crowding = friends(position, mass, box, reach, slab)
    assert len(set(zip(found, expected, strict=True))) == number == found.max() + 1
    weight = np.where((away <= reach) & (away > 0), 1 - (away / reach) ** 2, 0)
    assert_allclose(crowding, weight @ mass, rtol=0, atol=1e-12)


def test_a_ball_across_a_corner_is_one_halo():
    """Of constant density, 1000 times the mean: sphere and halo have its mass, in any order of
    particles."""
    rng = np.random.default_rng(1)
    box = np.array([8.0, 8.0, 8.0])
    grid = np.stack(np.meshgrid(*(np.arange(41),) * 3, indexing="ij"), -1).reshape(-1, 3) / 20 - 1
    ball = grid[np.linalg.norm(grid, axis=1) < 1]
    position = np.concatenate([ball * 0.5, rng.random((50, 3)) * box]) % box
    n = len(ball)
    drift = np.array([1.0, -2.0, 3.0])
    mixed = rng.permutation(n + 50)
    given = {"id": mixed, "mass": np.full(n + 50, 2.0)[mixed], "position": position[mixed].T}
    given["velocity"] = np.where(mixed[:, None] < n, drift, 0).T
    found, members = halos(given, box, members=100)
    assert (
        found["id"].tolist() == [0]
        and found["number"][0] >= n
        and found["mass"][0] == 2 * found["number"][0]
    )
    assert_array_equal(members[:n], np.arange(n))
    assert np.abs((found["center_of_mass"] + 4) % 8 - 4).max() < 0.01
    assert_allclose(found["velocity"][0], drift * n / found["number"][0], rtol=1e-12)
    assert found["sphere_mass"][0] == pytest.approx(2 * n, rel=0.01)
    assert found["radius"][0] == pytest.approx(8 * (3 / (4 * np.pi * 200)) ** (1 / 3), rel=0.02)


BOX = np.array([16.0, 16.0, 16.0])


def soliton(size, centre):
    """The density of a soliton with the core radius `size`, on 32^3 points of spacing 0.5."""
    state = radial_ground_state()
    axes = np.meshgrid(*(np.arange(32) * 0.5,) * 3, indexing="ij")
    r = distances(np.stack(axes, -1).reshape(-1, 3), centre, BOX).reshape(32, 32, 32)
    return 7 * np.interp(r * state.core / size, state.radius, state.amplitude, right=0) ** 2


def test_the_core_of_a_soliton():
    """Between grid points. A cubic spline of the density misses it by 0.4 % if the core has two
    points to its radius, and the mean over the box shifts nothing. M(r_c) of the ground state by
    its own table."""
    state = radial_ground_state()
    size = 1.0
    centre = np.array([15.9, 4.3, 8.1])
    found = cores(soliton(size, centre), BOX, overdensity=50)
    assert found["id"].tolist() == [0]
    place = np.array([found[f"position_{a}"][0] for a in "xyz"])
    assert np.abs(place - centre).max() < 0.01
    s = np.linspace(0, state.core, 4001)
    within = (
        np.trapezoid(4 * np.pi * s**2 * 7 * np.interp(s, state.radius, state.amplitude) ** 2, s)
        / state.core**3
    )
    for name, exact in (("peak_density", 7.0), ("core_radius", size), ("core_mass", within)):
        assert found[name][0] == pytest.approx(exact, rel=0.01), name


@pytest.mark.parametrize("size, overdensity", [(0.95, 50), (0.25, 50), (0.5, 1500)])
def test_below_two_cells_there_is_no_number(size, overdensity):
    """A cell is 0.5. The sphere with 50 times the mean density has a radius above two cells, that
    with 1500 times has not."""
    columns = cores(soliton(size, np.array([8.0, 8.0, 8.0])), BOX, overdensity)
    assert np.isnan([columns["core_radius"], columns["core_mass"]]).all()
    assert np.isnan([columns["radius"], columns["mass"]]).all() == (overdensity == 1500)
    catalogue = HaloCatalogue("waves", 0, columns, {}, {})
    header, row = catalogue.rows()
    shown = dict(zip(header, row, strict=True))
    assert shown["core radius"] == shown["core mass"] == "unresolved"
    assert (shown["radius"] == "unresolved") == (overdensity == 1500)
    assert float(shown["peak density"]) > 1


@pytest.mark.slow
def test_waves_without_cores_say_how_far_they_are_from_one(tmp_path, capsys):
    """The first density is 1 + 0.3 cos x."""
    case = write_case(
        tmp_path,
        "model: {kind: schrodinger_poisson}\ngrid: {shape: [8, 8, 8]}\n"
        "initial: {kind: jeans_wave, amplitude: 0.3}\ntime: {stop: 1e-6, max_dt: 1}\n",
    )
    ended = call("run", case, "--output", tmp_path / "run", "output.snapshots.fields=[psi]")
    assert ended.returncode == 0, ended.stderr
    assert main(["halos", str(tmp_path / "run")]) == 0
    line = "t = 1e-06: 0 cores: the densest point has 1.3 times the mean density, a halo 200 times"
    assert line in capsys.readouterr().out


def test_printed_columns_have_the_units_of_the_run():
    units = {"code_length": "kpc", "code_mass/code_length**3": "Msun/kpc^3"}
    columns = {"id": np.array([0]), "peak_density": np.ones(1), "core_radius": np.ones(1)}
    header = HaloCatalogue("waves", 0, columns, {}, {}, units).rows()[0]
    assert header == ["id", "peak density (Msun/kpc^3)", "core radius (kpc)"]


def test_mass_functions_hold_the_collapsed_mass():
    """Of Press & Schechter above M: erfc(1.686 / (sqrt(2) sigma)), here with sigma ~ M^-1/2. The
    fits of Sheth & Tormen and of Watson et al. to simulations differ by less than 25 % where sigma
    is between 0.5 and 1.5."""
    found = fitted_mass_functions(1.0, lambda radius: radius**-1.5, np.geomspace(0.02, 1e4, 4000))
    low, high = erf(1.686 / np.sqrt(2) / found["sigma"][[0, -1]])
    assert np.trapezoid(found["press_schechter"], found["mass"]) == pytest.approx(
        high - low, rel=1e-3
    )
    there = (found["sigma"] > 0.5) & (found["sigma"] < 1.5)
    assert_allclose(found["watson"][there], found["sheth_tormen"][there], rtol=0.25)
    assert np.isnan(found["watson"][found["sigma"] < 0.26]).all()


def test_a_box_without_halos_has_empty_columns_of_the_same_types():
    """With masses below one: a mass of type int made the bins of its mass function infinite."""
    side = (np.arange(4) + 0.5) / 4
    lattice = np.stack(np.meshgrid(side, side, side), 0).reshape(3, -1)
    particles = {"position": lattice, "velocity": 0 * lattice}
    particles |= {"id": np.arange(64), "mass": np.full(64, 0.01)}
    none, ids = halos(particles, np.ones(3))
    some, _ = halos(particles, np.ones(3), linking=1.1)
    assert len(ids) == 0 < len(some["id"])
    assert {name: values.dtype for name, values in none.items()} == {
        name: values.dtype for name, values in some.items()
    }


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The catalogues of a run on one device."""
    return found_in(tmp_path_factory.mktemp("halos"))


def found_in(folder, *arguments):
    maps = [MAPS] if "projections" in OUTPUTS else []
    case = write_case(folder, CASE)
    ended = call("run", case, "--output", folder / "run", *arguments, *maps)
    assert ended.returncode == 0, ended.stderr
    assert main(["halos", str(folder / "run"), "--members", "8"]) == 0
    return folder / "run"


@pytest.mark.slow
@pytest.mark.parametrize(
    "layout", ["devices.count=2", "devices.count=4", "--processes 2 devices.count=2"]
)
def test_catalogues_and_maps_do_not_depend_on_the_layout(found, layout, tmp_path):
    """The masses on the grid are the same bit for bit; forces differ by round-off, which chaos
    amplifies."""
    other = found_in(tmp_path, *layout.split())
    for one, two in zip(catalogues(found), catalogues(other), strict=True):
        for name in ("id", "number", "mass"):
            assert_array_equal(one.columns[name], two.columns[name])
        assert_array_equal(one.tables["particles"]["ids"], two.tables["particles"]["ids"])
        for name, values in one.columns.items():
            assert_allclose(two.columns[name], values, rtol=1e-6, atol=1e-6, err_msg=name)
    if "projections" not in OUTPUTS:
        return
    maps, others = (open_run(run).series("projections") for run in (found, other))
    for plane in maps:
        assert_allclose(others[plane], maps[plane], rtol=1e-7)


@pytest.mark.long
def test_a_catalogue_is_verified_and_read_elsewhere(found, capsys):
    assert main(["verify", str(found), "--quiet"]) == 0
    last = catalogues(found)[-1]
    assert len(last.columns["id"]) > 5 and {"fits", "mass_function"} <= last.tables.keys()
    assert "mass_function_dark.png" in drawn(found)
    path = catalogue_of(found, "dark", last.step)
    whole = path.read_bytes()
    for at in np.linspace(0, 1, 12):
        flip(path, at)
        assert main(["verify", str(found), "--quiet"]) == 1
        assert f"simulator halos {found} makes it again" in capsys.readouterr().out
        path.write_bytes(whole)
    pandas = pytest.importorskip("pandas")
    yt = pytest.importorskip("yt")
    halo = yt.load(str(path))
    mass = halo.all_data()["halos", "particle_mass"].to("Msun")
    assert_allclose(np.sort(mass)[::-1], last.columns["mass"], rtol=1e-4)
    assert_allclose(halo.domain_width.to("Mpccm/h"), 64, rtol=1e-4)
    pytest.importorskip("tables")
    assert_array_equal(pandas.read_hdf(path, "catalogue")["id"], last.columns["id"])


@pytest.mark.parametrize(
    "command, problem",
    [
        ("halos RUN --linking 0", "--linking: 0"),
        ("halos RUN --members 1", "--members: 1"),
        ("halos linking=1", "name a run's folder"),
        ("analyze RUN --halos --members 9", "simulator halos RUN finds halos"),
    ],
)
def test_refusals(command, problem, capsys):
    """Before the run is looked at."""
    assert main(command.split()) == 2 and problem in capsys.readouterr().err
