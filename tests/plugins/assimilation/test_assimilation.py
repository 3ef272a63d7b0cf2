"""Flows from observations: the gradient, the observations, resumption, layouts and refusals."""

import os
import shutil
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("optax")
from numpy.testing import assert_allclose, assert_array_equal
from run_support import ROOT
from searches import opened, prior_of, read, search
from tiers import slow, slow_but

from simulator import Simulation
from simulator.archive.manifest import committed
from simulator.archive.snapshot_reader import open_snapshot
from simulator.cli import main
from simulator.cluster import discover
from simulator.physics.initial.random import RandomSettings, shape_of, solenoidal
from simulator.physics.models import State
from simulator.plugins.assimilation.assimilation import Assimilating, open_assimilation
from simulator.plugins.assimilation.kalman import Filter, _moments
from simulator.plugins.assimilation.settings import (
    FunctionSettings,
    ObservationSettings,
)
from simulator.plugins.assimilation.variational import Variational
from simulator.run.log import RunLog
from simulator.simulation.placement import connect
from simulator.spectral.random import Stream

FLOW = """
model: {kind: navier_stokes, viscosity: 0.02}
grid: {shape: [16, 16, 16]}
initial: {kind: random, peak: 2, energy: 0.5, seed: 1}
time: {stop: 0.4, dt: 0.05, integrator: INTEGRATOR}
devices: {platform: cpu, count: 2}
"""
TASK = "base: flow.yaml\nobservations: [{table: table.npz}]\nbackground: {spectrum: {velocity: e.txt}}\n"
TIMES = np.array([0.0, 0.1, 0.2, 0.4])


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A flow, its velocity at 1/8 of the points at four times, and a prior."""
    folder = tmp_path_factory.mktemp("assimilate")
    (folder / "flow.yaml").write_text(FLOW.replace("INTEGRATOR", "rk2"))
    (folder / "rk4.yaml").write_text(FLOW.replace("INTEGRATOR", "rk4"))
    (folder / "task.yaml").write_text(TASK)
    (folder / "table.npz").touch()
    np.savetxt(folder / "e.txt", [(k, k**2 * np.exp(-0.5 * k**2) + 1e-6) for k in range(1, 10)])
    simulation = opened(folder / "flow.yaml")
    seen = []
    for steps in np.diff(TIMES, prepend=0) / 0.05:
        simulation.state = advanced(simulation, round(steps))
        seen.append(np.asarray(simulation.fields["velocity"])[:, ::2, ::2, ::2])
    x = np.arange(0, 16, 2) * 2 * np.pi / 16
    noise = 0.01 * np.random.default_rng(0).standard_normal(np.shape(seen))
    np.savez(
        folder / "table.npz",
        time=TIMES,
        x=x[:, None, None],
        y=x[:, None],
        z=x,
        velocity=np.array(seen) + noise,
        error=0.01,
    )
    return folder


def searching(case: Path, simulation: Simulation, method: Any = Variational, **own: Any) -> Any:
    return search(case, simulation, method, "velocity", **own)


def advanced(simulation: Simulation, steps: int) -> State:
    step = jax.jit(simulation.step)
    state = simulation.state
    for _ in range(steps):
        state = step(state, 0.05)
    return state


@pytest.mark.long
@pytest.mark.parametrize("base", [slow("flow.yaml"), "rk4.yaml"])
def test_the_gradient_is_that_of_differences(case: Path, base: str):
    """Along a random direction. J changes by 1e5 over a length of one; central differences with h =
    1e-5 err by h^2 and by the round-off of J over h, both below 1e-8 of the slope."""
    found = searching(case, opened(case / base))
    at, way = (found.background.drawn(Stream.PROBE, number) for number in (3, 7))
    _, _, states = found.cost(at, 8)
    slope = sum(float(jnp.vdot(g, way[n]).real) for n, g in found._gradient(at, states, 8).items())
    plus, minus = ({n: x + h * way[n] for n, x in at.items()} for h in (1e-5, -1e-5))
    assert slope == pytest.approx(
        (found.cost(plus, 8)[0] - found.cost(minus, 8)[0]) / 2e-5, rel=1e-7
    )


@pytest.mark.long
def test_an_ensemble_follows_the_flow(case: Path):
    """At the end the error of the mean is a tenth of that of members without observations, and the
    spread says how large it is."""
    simulation = opened(case / "flow.yaml", "devices.count=1")
    found = searching(case, simulation, Filter, members=64, radius=1.6)
    at = begun = found.first()
    while not found.is_finished(at):
        at, *_ = found.next(at)
    mean, deviation = (np.asarray(part["velocity"]) for part in _moments(at.members.fields))
    free = _moments(found._forecast(begun.members, np.int64(8), found.data(8))[0].fields)
    free_mean, free_deviation = (np.asarray(part["velocity"]) for part in free)
    true = np.asarray(advanced(simulation, 8).fields["velocity"])
    error = np.linalg.norm(mean - true)
    spread = np.linalg.norm(deviation)
    assert error < 0.1 * np.linalg.norm(free_mean - true)
    assert spread < 0.1 * np.linalg.norm(free_deviation) and 0.5 < spread / error < 2


@pytest.mark.long
def test_no_member_knows_the_flow_of_a_seed(tmp_path: Path):
    """Members and the flows of initial.seed 0 ... are independent: their correlations are below 0.6,
    five standard deviations. Equal random numbers correlate by 0.97 and more."""
    (tmp_path / "flow.yaml").write_text(
        FLOW.replace("[16, 16, 16]", "[24, 24]").replace("INTEGRATOR", "rk2")
    )
    np.savetxt(tmp_path / "e.txt", [(k, k**4 * np.exp(-0.08 * k**2)) for k in range(1, 16)])
    simulation = opened(tmp_path / "flow.yaml", "devices.count=1")
    prior = prior_of(simulation, "velocity", tmp_path / "e.txt")
    observed: Any = [SimpleNamespace(steps=np.zeros(1, int))]
    members = Filter(observed, prior, members=20).first().members
    flows = [np.asarray(member) for member in members.fields["velocity"]]
    layout = simulation.transform.layout
    settings = RandomSettings(peak=5)
    shape = shape_of(settings, simulation.inputs)
    start = jax.jit(lambda seed: solenoidal(layout, settings, shape, seed))
    starts = [np.asarray(start(seed)) for seed in range(20)]

    weight = np.sqrt(np.asarray(layout.weight()))
    own, other = (
        np.stack([(weight * flow).ravel() / np.linalg.norm(weight * flow) for flow in each])
        for each in (flows, starts)
    )
    assert abs((own.conj() @ other.T).real).max() < 0.6


DYE = "{kind: navier_stokes, viscosity: 0.05, scalars: [{name: dye, diffusivity: 0.05}]}"
SCALARS = {
    "vorticity": (
        "{kind: python, path: turbulence_2d.py, equation: Vorticity}",
        {"vorticity": 2.0},
    ),
    "dye": (DYE, {"dye": 1.0}),
    "flow and dye": (DYE, {"velocity": 1.0, "dye": 1.0}),
    "buoyancy": (
        "{kind: boussinesq, viscosity: 0.05, diffusivity: 0.05, stratification: 1}",
        {"buoyancy": 1.0},
    ),
    "two": ("{kind: python, path: gray_scott.py, equation: GrayScott}", {"u": 0.01, "v": 0.01}),
}
OFTEN = (("vorticity", "variational"), ("flow and dye", "ensemble"))
OPTIONS = {
    "variational": "windows: 1\niterations: 8\nhessian_products: 4",
    "ensemble": "members: 40\nradius: 2",
}


def uncertain_flow(folder: Path, model: str, uncertain: dict[str, float]) -> Simulation:
    """A plane flow whose fields have these variances, in flow.yaml."""
    for equation in ("turbulence_2d.py", "gray_scott.py"):
        shutil.copy(ROOT / "configs/equations" / equation, folder)
    noise = "".join(f"{name}: {{variance: {v}, peak: 2}}, " for name, v in uncertain.items())
    start = f"fields: {{{noise}}}"
    if "velocity" in uncertain:
        start = "peak: 2, scalars: {dye: {peak: 2}}"
    (folder / "flow.yaml").write_text(
        f"model: {model}\ngrid: {{shape: [12, 12]}}\ndevices: {{platform: cpu, count: 1}}\n"
        f"initial: {{kind: random, {start}}}\ntime: {{stop: 0.2, dt: 0.05}}\n"
    )
    return opened(folder / "flow.yaml")


@pytest.mark.long
@pytest.mark.parametrize(
    "of, method", slow_but(product(SCALARS, ("variational", "ensemble")), OFTEN)
)
def test_scalar_fields_are_recovered(tmp_path: Path, of: str, method: str):
    """Observed at all points with an error of a tenth, the flow has an error of at most as much, of
    which a part remains: the observations determine it better than that."""
    model, uncertain = SCALARS[of]
    simulation = uncertain_flow(tmp_path, model, uncertain)
    states = [simulation.state, advanced(simulation, 4)]
    x = np.arange(12) * 2 * np.pi / 12
    waves = np.arange(1, 9)
    random = np.random.default_rng(100)
    true = {}
    lines = []
    for name, variance in uncertain.items():
        inverse = simulation.model.transforms[name].inverse
        shape = (*simulation.model.shapes[name], 12, 12)
        values = np.stack([np.asarray(inverse(s.fields[name])).reshape(shape) for s in states])
        true[name] = values[0 if method == "variational" else 1]
        error = 0.1 * variance**0.5
        values = values + error * random.standard_normal(values.shape)
        table = {"time": [0.0, 0.2], "x": x[:, None], "y": x, name: values}
        np.savez(tmp_path / f"{name}.npz", **table)
        spectrum = variance / 6 * waves**2 * np.exp(-0.3 * waves**2)
        np.savetxt(tmp_path / f"{name}.txt", np.stack([waves, spectrum], 1))
        lines.append(f"{{table: {name}.npz, error: {error}}}")
    spectra = ", ".join(f"{name}: {name}.txt" for name in uncertain)
    (tmp_path / "task.yaml").write_text(
        f"base: flow.yaml\nmethod: {method}\nobservations: [{', '.join(lines)}]\n"
        f"{OPTIONS[method]}\nbackground: {{spectrum: {{{spectra}}}}}\n"
    )
    assert main(["assimilate", str(tmp_path / "task.yaml"), "--output", str(tmp_path / "out")]) == 0
    (snapshot,) = committed(tmp_path / "out" / "snapshots")
    for name, variance in uncertain.items():
        recovered = open_snapshot(snapshot)[name][...]
        assert recovered.shape == true[name].shape
        assert np.sqrt(((recovered - true[name]) ** 2).mean()) < 0.1 * variance**0.5, name


class EveryThird:
    """A signal that arrives at every third row of a history."""

    rows = 0

    @property
    def received(self) -> int:
        self.rows += 1
        return 15 * (self.rows % 3 == 0)


def finished(file: Path, output: Path, signals: Any) -> int:
    """The number of starts until the search in `output` ends."""
    task = open_assimilation(file, output=str(output))
    cluster = connect(task.config, discover(os.environ))
    for starts in range(1, 30):
        if (code := Assimilating(task, cluster, RunLog(quiet=True), signals).run()) != 3:
            assert code == 0
            return starts
    raise AssertionError("does not end")


def outcome(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The history without its seconds, and the recovered velocity."""
    (snapshot,) = committed(folder / "snapshots")
    rows = np.loadtxt(folder / "history.csv", delimiter=",", skiprows=1)
    return rows[:, :-1], open_snapshot(snapshot)["velocity"][...]


@pytest.mark.long
@pytest.mark.parametrize(
    "own",
    [
        "windows: 1\niterations: 4\nhessian_products: 4",
        "method: ensemble\nmembers: 40\nradius: 2",
    ],
)
def test_a_stopped_search_continues_as_if_it_had_not_been(case: Path, tmp_path: Path, own: str):
    """It stops after every third row of its history, and ends with the same numbers, bit by bit;
    they fit. Two processes find the same, to round-off that the descent and the analysis amplify."""
    (case / "own.yaml").write_text(TASK + own)
    whole, parts, shared = (tmp_path / name for name in ("whole", "parts", "shared"))
    assert finished(case / "own.yaml", whole, SimpleNamespace(received=0)) == 1
    assert finished(case / "own.yaml", parts, EveryThird()) > 1
    for one, other in zip(outcome(whole), outcome(parts), strict=True):
        assert_array_equal(one, other)
    rows = outcome(whole)[0]
    if "ensemble" in own:  # four analyses with so few members do not end at the noise
        assert rows[-1, 3] < rows[0, 1] / 100
    else:
        assert rows[-1, 3] < 1.5
    assert main(["run", str(whole / "run.yaml"), "time.max_steps=1"]) in (0, 3)
    assert (
        main(["assimilate", str(case / "own.yaml"), "--output", str(shared), "--processes", "2"])
        == 0
    )
    assert_allclose(outcome(shared)[1], outcome(whole)[1], atol=1e-9)
    assert (shared / "report.html").exists() == (
        find_spec("simulator.plugins.pictures") is not None
    )


def test_observations_of_every_kind(case: Path):
    """At grid points and between them (a shift moves modes exactly), scattered in a CSV; spectra; a
    function."""
    simulation = opened(case / "flow.yaml")
    values = np.asarray(simulation.fields["velocity"])
    state = simulation.state
    h = 2 * np.pi / 16
    points = np.random.default_rng(0).integers(0, 16, (5, 3))
    rows = [(0, *(h * p), values[(1, *p)]) for p in points]
    lines = ["time,x,y,z,velocity_y", *(",".join(map(repr, map(float, row))) for row in rows)]
    (case / "t.csv").write_text("\n".join(lines))
    spectrum = np.asarray(simulation.spectra(state)["kinetic_energy"])
    np.savez(case / "s.npz", time=[0.0], k=[1.0, 3.0], kinetic_energy=spectrum[None, [1, 3]])
    (case / "speed.py").write_text(
        "def observe(fields):\n    return (fields['velocity'] ** 2).sum(0).mean()[None]\n"
    )
    np.savez(
        case / "f.npz", time=[0.0, 0.1], values=[[(values**2).sum(0).mean()], [np.nan]], error=2.0
    )
    python = FunctionSettings(path=case / "speed.py")
    settings = [
        ObservationSettings(table=case / "t.csv", error=0.1),
        ObservationSettings(table=case / "s.npz", error=0.1),
        ObservationSettings(table=case / "f.npz", python=python),
    ]
    found = read(simulation, *settings)
    for one in found:
        assert_allclose(one.operator(state), one.values[0], rtol=1e-12, atol=1e-14)
    assert found[2].weight.tolist() == [[0.5], [0.0]]


@pytest.mark.parametrize(
    "change, words",
    [
        (
            {"velocity": None, "velocty": np.zeros((4, 3, 8, 8, 8))},
            "unknown variable 'velocty', did you mean velocity",
        ),
        ({"time": TIMES + 1}, "the time 1 is outside of the run, which lasts from 0 to 0.4"),
        ({"time": TIMES * 0.9}, "no whole number of steps of time.dt = 0.05"),
        (
            {"x": np.full((8, 1, 1), 7.0)},
            "x = 7 is outside of the box, which extends from 0 to 6.28319",
        ),
        (
            {"velocity": np.zeros((4, 3, 8, 8, 7))},
            "velocity has the shape (4, 3, 8, 8, 7); (4, 3, 8, 8, 8) is needed",
        ),
    ],
)
def test_bad_observations_are_refused_in_one_line(
    case: Path, tmp_path: Path, refused_command, change, words
):
    with np.load(case / "table.npz") as file:
        arrays = {name: array for name, array in {**file, **change}.items() if array is not None}
    np.savez(case / "bad.npz", **arrays)
    (case / "bad.yaml").write_text(TASK.replace("table.npz", "bad.npz"))
    line = refused_command("assimilate", case / "bad.yaml", "--output", tmp_path / "out")
    assert line.startswith(f"{case / 'bad.yaml'}:2: observations.0.table: ") and words in line
    assert not (tmp_path / "out").exists()


def test_its_file_is_not_taken_for_a_run(case: Path, refused_command):
    assert "task.yaml:2: this is an assimilation: simulator assimilate" in refused_command(
        "check", case / "task.yaml"
    )


PARTICLES = "particles: [{name: drops, kind: tracer, count: 8}]\n"
WAVES = """
model: {kind: schrodinger_poisson, hbar_over_m: 0.5, gravitational_constant: 0.1}
grid: {shape: [8, 8, 8]}
initial: {kind: jeans_wave, amplitude: 0.01}
time: {stop: 0.4, dt: 0.05}
devices: {platform: cpu, count: 2}
"""


@pytest.mark.parametrize("method", ["variational", "ensemble"])
@pytest.mark.parametrize(
    "base, words",
    [
        (FLOW.replace("INTEGRATOR", "rk2") + PARTICLES, "this run has particles (drops)"),
        (WAVES, "a prior describes real fields, and this model has none"),
        (FLOW.replace("INTEGRATOR", "rk2").replace("0.02", "-1"), "model.viscosity: "),
    ],
)
def test_a_base_that_cannot_be_recovered_is_refused_before_any_process_starts(
    tmp_path: Path, refused_command, method: str, base: str, words: str
) -> None:
    (tmp_path / "flow.yaml").write_text(base)
    (tmp_path / "table.npz").touch()
    (tmp_path / "e.txt").touch()
    (tmp_path / "task.yaml").write_text(f"{TASK}method: {method}\n")
    command = ["assimilate", str(tmp_path / "task.yaml"), "--output", str(tmp_path / "out")]
    line = refused_command(*command, "--processes", "2")
    assert words in line and not (tmp_path / "out").exists()
