"""Relaxation to targets and within masks that files hold: snapshots of runs, and arrays."""

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flow_support import flow, last, marched, measured
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refusal, rows
from run_support import call, largest_difference, simulate, write_case
from run_support import simulation as opened

from simulator import load_config, open_run, open_sweep
from simulator.archive.series_recorder import measured_series
from simulator.archive.stored_state import RunInputs
from simulator.cli import main
from simulator.measure import OUTPUTS
from simulator.physics.models.tendency import tendency, with_arrays
from simulator.plugins.bodies.file_target import StoredTarget
from simulator.simulation.abstract_run import paper_simulation

START = {"kind": "random", "peak": 2, "energy": 0.5}
SHAPE = (16, 16)
STEP = 0.02
TIME = {"stop": 0.4, "dt": STEP, "integrator": "rk2"}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The folder of a run with a snapshot every 0.1, and files with its last velocity and a mask."""
    folder = tmp_path_factory.mktemp("reference")
    output = {"directory": str(folder / "run"), "snapshots": {"every": 0.1}}
    simulation = flow(
        *SHAPE, initial={**START, "seed": 1}, viscosity=0.02, time=TIME, output=output
    )
    assert simulation.run() == 0
    velocity = np.asarray(open_run(folder / "run").snapshots[-1]["velocity"])
    x = np.arange(16) * 2 * np.pi / 16
    mask = np.broadcast_to(np.sin(x)[:, None] ** 2, SHAPE)
    np.save(folder / "velocity.npy", velocity)
    np.save(folder / "mask.npy", mask)
    np.save(folder / "large.npy", 1.5 * mask)
    np.save(folder / "nan.npy", np.where(mask > 0.99, np.nan, velocity))
    with h5py.File(folder / "data.h5", "w") as file:
        file["flow/velocity"] = velocity
        file["mask"] = mask.astype(np.float32)
    return folder


def nudge(target, tau=0.05, **keys):
    target = {"velocity": target}
    return {"name": "nudge", "kind": "relax", "target": target, "relaxation_time": tau, **keys}


def twin(*terms, shape=SHAPE, count=1, **blocks):
    blocks = {"viscosity": 0.02, "time": TIME, **blocks}
    return flow(*shape, initial={**START, "seed": 2}, terms=list(terms), count=count, **blocks)


def last_snapshot(folder):
    return str(open_run(folder / "run").snapshots[-1].path)


def rates(simulation):
    """The velocity's rate of the state, and the velocity."""
    state = simulation.state
    model = with_arrays(simulation.model, state.memory.terms)
    rate = jax.jit(lambda s: tendency(model, s.fields, s.time)[0]["velocity"])(state)
    return np.asarray(rate), np.asarray(state.fields["velocity"])


@pytest.mark.long
def test_a_nudged_twin_follows_the_run_that_it_is_nudged_to(reference):
    """Without the term the flows stay apart; with it their difference falls like exp(-t / tau),
    to 3e-4 at the end, and the form of advection keeps its few transforms."""
    run = open_run(reference / "run")
    simulation = twin(nudge({"series": str(reference / "run")}))
    assert "stress" in simulation.model.momentum.products({"velocity": jnp.ones((2, 1, 1, 1))})
    wanted = np.asarray(run.snapshots[-1]["velocity"])
    apart = []
    for one in (twin(), simulation):
        state = last(marched(one, STEP, 20))
        u = np.asarray(one.field_program("velocity")(state))
        apart.append(np.sqrt(((u - wanted) ** 2).mean() / (wanted**2).mean()))
    assert apart[0] > 0.5 and apart[1] < 2e-3
    row = measured(simulation)
    assert abs(row["budget_residual"]) < 1e-10
    assert row["rate"] > measured(twin())["rate"]


def test_only_the_modes_below_a_wavenumber_relax(reference):
    """Exactly -(u - target) / tau there, and nothing beyond, with a mask or without one."""
    target = {"snapshot": last_snapshot(reference)}
    (free, u), (some, _), (every, _) = map(
        rates, (twin(), twin(nudge(target, below=3)), twin(nudge(target)))
    )
    layout = twin().transform.layout
    near = np.asarray(jnp.broadcast_to(layout.k_squared() <= 9, layout.shape))
    wanted = np.asarray(twin(nudge(target)).state.memory.terms["nudge/velocity"])[0]
    scale = abs(every).max()
    assert_allclose(every - free, (wanted - u) / 0.05, atol=1e-12 * scale)
    assert_allclose(some - free, np.where(near, every - free, 0), atol=1e-12 * scale)
    ones = {"kind": "half_space", "axis": "x", "above": 1e-6, "smoothing": 1e-9}
    masked, _ = rates(twin(nudge(target, below=3, mask=ones)))
    # The mask is 0 in the first plane.
    assert abs(masked - some).max() < 0.3 * scale


def test_files_of_every_kind_give_the_same_target_and_mask(reference):
    code = reference / "own.py"
    code.write_text(
        "import jax.numpy as jnp\n\n\ndef hill(x, y, t):\n    return jnp.sin(x) ** 2 + 0 * y\n"
    )
    hill = {"kind": "python", "path": str(code), "function": "hill"}
    targets = [
        {"snapshot": last_snapshot(reference)},
        {"array": str(reference / "velocity.npy")},
        {"array": str(reference / "data.h5"), "dataset": "flow/velocity"},
    ]
    found = [rates(twin(nudge(target)))[0] for target in targets]
    assert_allclose(found[1], found[0], atol=1e-12)
    assert_allclose(found[2], found[0], atol=1e-12)
    masks = [
        hill,
        {"kind": "array", "path": str(reference / "mask.npy")},
        {"kind": "array", "path": str(reference / "data.h5"), "dataset": "mask"},
    ]
    found = [rates(twin(nudge(targets[0], mask=mask)))[0] for mask in masks]
    assert_allclose(found[1], found[0], atol=1e-12)
    assert_allclose(found[2], found[0], atol=1e-5)  # the file is in single precision


def test_every_series_is_the_one_of_the_flow_without_terms(reference):
    """Of one state, but for the columns of terms: their power, and the residual, which without terms
    is summed over the steps."""
    mask = {"kind": "array", "path": str(reference / "mask.npy")}
    term = nudge({"array": str(reference / "velocity.npy")}, mask=mask)
    known = ("statistics", "spectra", "transfer", "histograms", "structure_functions")
    kinds = [kind for kind in known if kind in OUTPUTS]  # plugins may be absent
    output = {kind: {"every_steps": 1} for kind in kinds}
    rows = []
    for terms in ([term], []):
        simulation = twin(*terms, output=output)
        measured_kinds = measured_series(simulation)
        row = {}
        for kind in kinds:
            series = measured_kinds[kind]
            carried = series.carried
            sums = () if carried is None else (carried.update(simulation.state, carried.begin()),)
            computed = jax.jit(series.compute)(simulation.state, *sums)
            row |= {f"{kind}/{name}": values for name, values in computed.items()}
        rows.append(row)
    others = {n for row in rows for n in row if n.endswith(("/power_nudge", "/budget_residual"))}
    assert rows[0].keys() - others == rows[1].keys() - others != set()
    for name in rows[1].keys() - others:
        assert_allclose(rows[0][name], rows[1][name], rtol=1e-12, atol=1e-14, err_msg=name)


def test_a_target_of_another_grid_keeps_its_modes(reference):
    target = nudge({"snapshot": last_snapshot(reference)})
    same, finer = (twin(target, shape=shape) for shape in (SHAPE, (24, 24)))
    modes = [s.state.memory.terms["nudge/velocity"][0] for s in (same, finer)]
    pairs = zip((same, finer), modes, strict=True)
    points = [np.squeeze(np.asarray(s.transform.inverse(f))) for s, f in pairs]
    assert_allclose(points[1][:, ::3, ::3], points[0][:, ::2, ::2], atol=1e-12)


def test_interpolation_in_time_is_exact_for_cubics():
    """And takes the snapshot itself at its time, whatever the intervals are."""
    target = StoredTarget.__new__(StoredTarget)
    target.times = [0.0, 0.3, 0.4, 1.0, 1.1, 2.0]
    t = jnp.asarray(target.times)

    def cubic(t):
        return 1 + t - 2 * t**2 + 0.7 * t**3

    for time in (0.0, 0.1, 0.35, 0.4, 1.05, 1.7, 2.0):
        assert float(target.at(cubic(t), jnp.float64(time))) == pytest.approx(
            cubic(time), rel=1e-13
        )


@pytest.mark.long
def test_a_run_that_is_continued_takes_the_same_steps(reference, tmp_path):
    """Bit for bit, though the first part knows fewer snapshots."""

    def run(stop, name):
        output = {"directory": str(tmp_path / name)}
        term = nudge({"series": str(reference / "run")}, tau=0.2)
        simulation = twin(term, time={**TIME, "stop": stop}, output=output)
        assert simulation.run() == 0
        return simulation

    run(0.2, "parts")
    whole, parts = run(0.4, "whole"), run(0.4, "parts")
    assert_array_equal(whole.state.fields["velocity"], parts.state.fields["velocity"])


def test_members_of_an_ensemble_have_the_targets_of_their_states(reference):
    mask = {"kind": "array", "path": str(reference / "mask.npy")}
    simulation = twin(nudge({"series": str(reference / "run")}, mask=mask))
    state = simulation.state
    both = simulation.together(simulation.step, in_axes=(0, None))(
        simulation.stack([state] * 2), STEP
    )
    alone = jax.jit(simulation.step)(state, STEP)
    for member in simulation.unstack(both):
        assert_allclose(member.fields["velocity"], alone.fields["velocity"], atol=1e-13)


@pytest.mark.plugins
def test_gradients_by_a_target_and_by_its_rate_are_those_of_differences(reference, differentiate):
    mask = {"kind": "array", "path": str(reference / "mask.npy")}
    simulation = twin(nudge({"array": str(reference / "velocity.npy")}, mask=mask, tau=0.2))
    layout = simulation.transform.layout

    def loss(state):
        return layout.inner(state.fields["velocity"], state.fields["velocity"]).sum()

    gradient = differentiate(simulation, loss, steps=2, dt=0.05)
    target = simulation.state.memory.terms["nudge/velocity"]
    keys = {"terms.0.relaxation_time": 0.2, "terms.0.target.velocity": target}
    _, slopes = gradient(keys)
    h = 1e-5
    ahead, behind = (
        float(gradient.value({**keys, "terms.0.relaxation_time": 0.2 + s})) for s in (h, -h)
    )
    assert float(slopes["terms.0.relaxation_time"]) == pytest.approx(
        (ahead - behind) / (2 * h), rel=1e-6
    )
    way = slopes["terms.0.target.velocity"]
    ahead, behind = (
        float(gradient.value({**keys, "terms.0.target.velocity": target + s * way}))
        for s in (h, -h)
    )
    # The gradient is of the stored coefficients, whose imaginary parts count as they are.
    slope = float((abs(way) ** 2).sum())
    assert (ahead - behind) / (2 * h) == pytest.approx(slope, rel=1e-6)


@pytest.mark.spmd
@pytest.mark.slow
def test_two_processes_read_their_parts(reference, tmp_path):
    """And continue on one device what they began: 1e-12, sums in another order."""
    mask = f"{{kind: array, path: {reference / 'mask.npy'}}}"
    target = f"{{velocity: {{series: {reference / 'run'}}}}}"
    term = f"{{name: nudge, kind: relax, relaxation_time: 0.1, target: {target}, mask: {mask}}}"
    initial = "{kind: random, peak: 2, energy: 0.5, seed: 2}"
    text = CASE.replace("{kind: taylor_green}", initial).replace("stop: 0.4", "stop: 0.2, dt: 0.02")
    path = tmp_path / "case.yaml"
    path.write_text(f"{text}terms: [{term}]\n")
    ended = call("run", path, "--output", tmp_path / "two", "--processes", "2", "devices.count=4")
    assert ended.returncode == 0, ended.stderr
    for name, options in (("two", ["time.stop=0.4"]), ("one", ["time.stop=0.4"])):
        assert simulate(path, tmp_path / name, "devices.count=1", *options) == 0
    assert largest_difference(tmp_path / "two", tmp_path / "one") < 1e-12


CASE = """\
model: {kind: navier_stokes, viscosity: 0.1}
grid: {shape: [16, 16]}
initial: {kind: taylor_green}
time: {stop: 0.4}
devices: {platform: cpu}
"""
NUDGED = CASE + "terms: [{name: a, kind: relax, relaxation_time: 1, target: {velocity: TARGET}}]\n"
MASKED = NUDGED.replace("TARGET}", "[0, 0]}, mask: {kind: array, path: FOLDER/mask.npy}")
CASES = {
    "series": NUDGED.replace("TARGET", "{series: FOLDER/run}"),
    "snapshot": NUDGED.replace("TARGET", "{snapshot: SNAPSHOT}"),
    "array": NUDGED.replace("TARGET", "{array: FOLDER/velocity.npy}"),
    "mask": MASKED,
    "dyed": MASKED.replace("0.1}", "0.1, scalars: [{name: dye, diffusivity: 1}]}"),
}
REFUSED = """
series | time.stop=0.5
    terms.0.target.velocity: FOLDER/run: its last snapshot is of the time 0.4, but the run goes on to
series | terms.0.target.velocity.time_offset=-0.1 & time.stop=0.3
    its first snapshot is of the time 0.1, but the run begins at 0
dyed | terms.0.target={dye: {snapshot: SNAPSHOT}}
    has no dye of this run's kind; it has velocity
snapshot | grid.box=1,1
    the run's [1.0, 1.0]
snapshot | grid.shape=16,16,16 & initial.kind=abc
    its box is [6.28
snapshot | terms.0.target.velocity.snapshot=FOLDER/mask.npy
    terms.0.target.velocity: FOLDER/mask.npy
series | terms.0.target.velocity.series=FOLDER
    terms.0.target.velocity: FOLDER
array | grid.shape=32,32
    terms.0.target.velocity: FOLDER/velocity.npy: its shape is (2, 16, 16); (2, 32, 32) is needed
array | terms.0.target.velocity.array=FOLDER/nan.npy
    terms.0.target.velocity: its file has values that are not finite
array | terms.0.target.velocity.array=FOLDER/data.h5
    data.h5:/density
array | terms.0.target.velocity={array: FOLDER/data.h5, dataset: masks}
    has no data set 'masks', did you mean mask?
array | terms.0.target.velocity.array=FOLDER/none.npy
    none.npy
mask | terms.0.mask.path=FOLDER/large.npy
    terms.0.mask: FOLDER/large.npy: its values lie between 0 and 1.5 at the start; they have to
mask | grid.dealias=spherical
    terms.0.mask.kind: an array has no values between
mask | terms.0.below=2
    terms.0.below: needs targets of files
"""


@pytest.mark.parametrize("case, changes, words", rows(REFUSED))
def test_a_file_that_does_not_fit_is_refused_in_a_line(case, changes, words, reference, tmp_path):
    def placed(text):
        return text.replace("FOLDER", str(reference)).replace("SNAPSHOT", last_snapshot(reference))

    path = write_case(tmp_path, placed(CASES[case]))
    said = refusal(lambda: opened(path, *map(placed, changes)).check_start())
    assert placed(words) in said


def nudged_case(folder, tmp_path):
    target = f"{{velocity: {{series: {folder / 'run'}}}}}"
    term = f"{{name: nudge, kind: relax, relaxation_time: 0.1, below: 3, target: {target}}}"
    text = CASE.replace("stop: 0.4", "stop: 0.1, dt: 0.02")
    (tmp_path / "run.yaml").write_text(f"{text}terms: [{term}]\n")
    return tmp_path / "run.yaml"


def test_a_plan_counts_the_snapshots_of_a_target(reference, tmp_path):
    """Those at 0, 0.1, 0.2 and 0.3, which a run until 0.1 needs, as modes."""
    simulation = paper_simulation(load_config(nudged_case(reference, tmp_path)), RunInputs())
    target = simulation.template.memory.terms["nudge/velocity"]
    assert target.shape == (4, 2, *simulation.transform.layout.shape)
    assert simulation.placed_template.memory.terms["nudge/velocity"].sharding is not None


@pytest.mark.slow
def test_runs_of_a_sweep_share_a_step_and_nudge_alike(reference, tmp_path, monkeypatch):
    """By other rates; a run of the batch is the run alone to round-off."""
    case = nudged_case(reference, tmp_path)
    rates = "{grid: {terms.0.relaxation_time: [0.05, 0.1]}}"
    (tmp_path / "sweep.yaml").write_text(f"base: run.yaml\nname: rates\nsweep: {rates}\n")
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", "run", "sweep.yaml", "--batch", "auto"]) == 0
    assert simulate(case, tmp_path / "alone") == 0
    runs = open_sweep(tmp_path / "sweep.yaml").runs
    (same,) = (run for run in runs if run.config.terms[0].relaxation_time == 0.1)
    assert largest_difference(same.folder, tmp_path / "alone") < 1e-13
