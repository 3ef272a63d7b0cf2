"""Runs in one dimension: exact solutions, the numbers of a plane that is uniform along y, and one
axis wherever a user sees axes."""

from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from run_support import ROOT, simulate, simulation

from simulator import open_run
from simulator.cli import main

EQUATIONS = ROOT / "configs/equations"
CODE = """\
import jax.numpy as jnp

from simulator.equations import Equation, Field

VISCOSITY = 0.1


class Burgers(Equation):
    evolved = ("u",)

    def linear(self):
        return {"u": -VISCOSITY * self.k_squared}

    def products(self, values):
        return {"square": values["u"] ** 2}

    def advection(self, values):
        return [(-1) ** i * values["u"] for i in range(len(self.k))]

    def combine(self, products, fields):
        return {"u": -0.5 * self.gradient(products["square"])[0]}


class Line(Burgers):
    dimensions = 1


class Velocity(Equation):
    \"\"\"Burgers' equation of a vector, whose force depends on place and time.\"\"\"

    evolved = (Field("velocity", vector=True),)

    def linear(self):
        return {"velocity": -VISCOSITY * self.k_squared}

    def products(self, values, points, time):
        u = values["velocity"]
        force = 0.1 * jnp.cos(points.x + points.y + points.z - time) + 0 * u
        return {"square": u * u, "force": force}

    def advection(self, values):
        return values["velocity"]

    def combine(self, products, fields):
        flux = self.divergence(products["square"]) / 2
        return {"velocity": products["force"] - flux}


def sine(*points):
    return {"u": jnp.sin(points[0]) + 0 * sum(points)}


def wave(x):
    return {"velocity": (jnp.sin(x),)}


def push(x, t):
    return {"u": 0.1 * jnp.cos(x - t)}


def rub(values, points, time):
    return {"u": -(1 + jnp.cos(points.x)) * values["u"]}


def measured(fields, time):
    (x,) = fields.points
    return {"moment": (x * fields["u"]).mean(), "square": fields["u"] ** 2}
"""
CASE = """\
model: {kind: python, path: own.py, equation: Line}
grid: {shape: [48]}
initial: {kind: python, path: own.py, function: sine}
time: {stop: 0.4, dt: 0.01}
devices: {platform: cpu}
output: {checkpoints: {every_steps: 10, keep_last: 9}, diagnostics: {every_steps: 10}, snapshots: {every_steps: 20}}
"""
EVERYTHING = """\
forcing: {kind: python, path: own.py, function: push}
terms: [{kind: python, name: rub, path: own.py, function: rub}]
output:
  checkpoints: {every_steps: 10, keep_last: 9}
  diagnostics: {every_steps: 10}
  snapshots: {every_steps: 20}
  slices: {every_steps: 10}
  spectra: {every_steps: 10}
  probes: {every_steps: 1, points: [[1.0], [2.5]], lines: [{axis: x, through: [0]}]}
  python: {every_steps: 10, path: own.py, function: measured}
"""


@pytest.fixture(scope="module")
def case(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("line")
    (folder / "own.py").write_text(CODE)
    (folder / "case.yaml").write_text(CASE)
    whole = CASE[: CASE.index("output")] + EVERYTHING
    (folder / "whole.yaml").write_text(whole)
    return folder / "case.yaml"


@pytest.fixture(scope="module")
def ran(case) -> Path:
    run = case.parent / "run"
    assert simulate(case.with_name("whole.yaml"), run) == 0
    return run


def start(case: Path, name: str) -> str:
    return f"initial={{kind: python, path: {case.parent / 'own.py'}, function: {name}}}"


def last(case: Path, folder: Path, *overrides: str) -> np.ndarray:
    """The field `u` at the end of a run."""
    assert simulate(case, folder, *overrides) == 0
    return open_run(folder).snapshots[-1]["u"][...]


@pytest.mark.parametrize("dealias", ["two_thirds", "spherical"])
def test_burgers_equation_is_that_of_cole_and_hopf(case, tmp_path, dealias):
    """u = -2 nu phi_x / phi, with phi_t = nu phi_xx and phi = exp(cos x / (2 nu)) at the start:
    Cole, Q. Appl. Math. 9, 225 (1951). The steps' error is of order dt^4 = 1e-8 at most."""
    n, nu, t = 96, 0.1, 0.4
    x = 2 * np.pi * np.arange(n) / n
    k = np.arange(n // 2 + 1)
    phi = np.fft.rfft(np.exp(np.cos(x) / (2 * nu))) * np.exp(-nu * k**2 * t)
    exact = -2 * nu * np.fft.irfft(1j * k * phi) / np.fft.irfft(phi)
    example = EQUATIONS / "burgers.yaml", tmp_path / "run", start(case, "sine")
    keys = f"grid.shape={n}", f"time.stop={t}", "time.dt=0.01", f"model.parameters.viscosity={nu}"
    assert_allclose(last(*example, *keys, f"grid.dealias={dealias}"), exact, rtol=0, atol=1e-8)


def test_a_soliton_keeps_its_shape_and_moves_at_its_speed(tmp_path):
    """u = c / 2 sech^2(sqrt(c) / 2 (x - c t)), Korteweg & de Vries (1895). Its spectrum falls as
    exp(-pi k / sqrt(c)): to 2e-7 at k_max = 9.7 of 96 points, to 3e-14 at 19.8 of 192 points. The
    box repeats it; at the edges the images are below 2 cosh^-2(10) = 2e-8."""
    keys = "grid.box=20", "initial.parameters={speeds: [4], places: [10]}", "time.stop=0.25"
    errors = []
    for n in (96, 192):
        x = 20 * np.arange(n) / n
        exact = sum(2 / np.cosh(x - 10 - 4 * 0.25 + 20 * image) ** 2 for image in (-1, 0, 1))
        example = EQUATIONS / "korteweg_de_vries.yaml", tmp_path / str(n), f"grid.shape={n}"
        errors.append(abs(last(*example, *keys) - exact).max())
    assert errors[1] < 2e-7 and errors[1] < errors[0] / 20


def test_modes_of_kuramoto_and_sivashinsky_grow_at_their_rates(tmp_path):
    """exp((k^2 - k^4) t); the nonlinear terms are of order a^2 = 1e-20 for waves of amplitude
    1e-10."""
    keys = "grid.shape=48", "grid.box=30", "initial.fields.u={variance: 1e-20}", "time.stop=0.4"
    last(EQUATIONS / "kuramoto_sivashinsky.yaml", tmp_path / "run", *keys)
    first, end = (np.fft.rfft(s["u"][...]) for s in open_run(tmp_path / "run").snapshots)
    k = 2 * np.pi / 30 * np.arange(1, 11)
    assert_allclose(end[1:11] / first[1:11], np.exp((k**2 - k**4) * 0.4), rtol=1e-6)


def test_a_line_is_a_plane_that_is_uniform_along_y(case, tmp_path):
    plane = last(case, tmp_path / "plane", "model.equation=Burgers", "grid.shape=48,4")
    line = last(case, tmp_path / "line")
    assert line.shape == (48,) and plane.shape == (48, 4)
    assert_allclose(plane, np.broadcast_to(line[:, None], (48, 4)), rtol=0, atol=1e-12)


def test_a_vector_has_one_component(case, tmp_path):
    changed = "model.equation=Velocity", start(case, "wave")
    assert simulate(case, tmp_path / "vector", *changed) == 0
    velocity = open_run(tmp_path / "vector").snapshots[-1]["velocity"]
    assert velocity.shape == (1, 48) and list(map(list, velocity.entry.components)) == [["x"]]
    # The same as a scalar, whose force is a forcing.
    force = f"forcing={{kind: python, path: {case.parent / 'own.py'}, function: push}}"
    assert_allclose(velocity[0], last(case, tmp_path / "scalar", force), rtol=0, atol=1e-12)


def test_files_have_one_axis(ran):
    run = open_run(ran)
    u = run.snapshots[-1]["u"]
    assert u.shape == (48,) and [a.name for a in u.axes] == ["x"]
    assert list(run.slices.variables) == ["u/x"] and list(run.slices.coordinates) == ["x"]
    assert_array_equal(run.slices["u/x"][-1], u[...])
    k = run.series("spectra").coordinates["k"]
    assert_array_equal(k, np.arange(16))  # (48 - 1) // 3 = 15 modes
    # Plancherel's theorem: the shells hold half the mean square.
    assert_allclose(run.series("spectra")["u"][-1].sum(), (u[...] ** 2).mean() / 2, rtol=1e-12)
    probes = run.series("probes")
    assert probes["u"].shape[1:] == (2,) and probes["line/u"].shape[1:] == (48,)
    assert_allclose(probes["line/u"][-1], u[...], rtol=0, atol=1e-14)
    rows = run.series("measured")
    assert_allclose(rows["square"][-1], u[...] ** 2, rtol=0, atol=1e-15)
    with h5py.File(ran / "snapshots" / "00000040.h5") as file:
        assert file["u"].shape == (48,) and {"x", "u"} <= set(file) and "y" not in file
    with h5py.File(ran / "snapshots" / "00000040.vtkhdf") as file:
        image = file["VTKHDF"]
        assert list(image.attrs["WholeExtent"]) == [0, 47, 0, 0, 0, 0]
        assert image["PointData/u"].shape == (48,)
    with h5py.File(ran / "snapshots.vtkhdf") as file:
        assert file["u"].shape == (3, 48)
    assert main(["verify", str(ran)]) == 0
    pytest.importorskip("dask")
    assert run.to_xarray()["u"].dims == ("time", "x")


@pytest.mark.plugins
def test_pictures_are_curves(ran, tmp_path):
    pytest.importorskip("simulator.plugins.pictures.movie")
    assert main(["movie", str(ran), "--field", "u", "--output", str(tmp_path / "u.gif")]) == 0
    assert main(["report", str(ran)]) == 0
    assert "Values along x at several times" in (ran / "report.html").read_text()
    assert (ran / "plots" / "slices_u.png").exists()


def test_a_run_continues_bit_for_bit(case, ran, tmp_path):
    short = tmp_path / "short"
    assert simulate(case.with_name("whole.yaml"), short, "time.stop=0.2") == 0
    assert simulate(case.with_name("whole.yaml"), short) == 0
    assert_array_equal(open_run(short).snapshots[-1]["u"], open_run(ran).snapshots[-1]["u"])


def test_a_snapshot_is_a_start_at_another_resolution(case, ran):
    again = f"initial={{kind: snapshot, path: {ran / 'snapshots' / '00000040'}}}"
    finer = simulation(case, again, "grid.shape=96")
    coarse = open_run(ran).snapshots[-1]["u"][...]
    assert_allclose(np.asarray(finer.fields["u"])[::2], coarse, rtol=0, atol=1e-13)
    np.save(case.parent / "u.npy", coarse)
    stored = simulation(
        case, f"initial={{kind: file, fields: {{u: {{array: {case.parent / 'u.npy'}}}}}}}"
    )
    assert_allclose(np.asarray(stored.fields["u"]), coarse, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "overrides, message",
    [
        (["devices.count=2"], "devices.count: one dimension is not divided; 1 device is needed"),
        (["grid.box=1,1"], "grid.box: has 2 lengths, but shape has 1 axis; give one for each"),
        (["grid.shape=48,1"], "grid.shape: Line is solved in one dimension; [48] is a line"),
        (["model={kind: navier_stokes, viscosity: 1}"], "navier_stokes is solved in two or three"),
        (["forcing={kind: kolmogorov, field: u}"], "kolmogorov is made for two or three dimensions"),
        (["initial={kind: random}"], "random makes a velocity with two or three components"),
        (["output.probes={every: 1, points: [[1, 2]]}"], "probes.points.0: [x] is needed, not [1.0"),
        (["output.slices={every: 1, through: maximum}"], "through: all of the box is stored in one"),
    ],
)  # fmt: skip
def test_what_has_no_meaning_in_one_dimension_is_refused(case, overrides, message, capsys):
    assert main(["check", str(case), *overrides]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.parametrize("wrong", ["self.curl", "self.rotated_gradient"])
def test_operators_of_a_plane_are_refused(case, tmp_path, wrong, capsys):
    code = CODE.replace("-0.5 * self.gradient", f"-0.5 * {wrong}")
    (tmp_path / "own.py").write_text(code)
    assert main(["check", str(case), f"model.path={tmp_path / 'own.py'}"]) == 2
    assert f"combine: ValueError: {wrong[5:]} needs" in capsys.readouterr().err
