"""A run from its file to its folder: when its steps end, what it writes, and what that says."""

import json
import os
import re

import h5py
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from run_support import (
    CASE,
    ROOT,
    contents,
    environment,
    fresh,
    simulate,
    spawned,
    started,
    table,
    tool,
    write_case,
)

from simulator import open_run
from simulator.archive.manifest import committed
from simulator.archive.series_file import SeriesReader
from simulator.archive.verify import verify
from simulator.cli import main
from simulator.physics.stepping import INTEGRATORS
from simulator.run.run_status import remember_job, waiting_job

COLUMNS = [
    "step",
    "time",
    "dt",
    "energy",
    "kinetic_energy",
    "dissipation",
    "enstrophy",
    "helicity",
    "max_speed",
    "max_divergence",
    "cfl",
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The small case, run with all defaults of `run`."""
    folder = tmp_path_factory.mktemp("finished")
    assert simulate(write_case(folder), folder / "run") == 0
    return folder / "run"


@pytest.mark.smoke
def test_the_folder_holds_what_it_should(finished):
    names = {path.name for path in finished.iterdir()}
    assert names == {
        "config.yaml",
        "provenance.json",
        "run.log",
        "state.json",
        "ledger.json",
        "diagnostics.csv",
        "spectra.h5",
        "slices.h5",
        "snapshots",
        "snapshots.vtkhdf",
        "checkpoints",
    }
    with h5py.File(finished / "snapshots.vtkhdf") as file:
        assert tuple(file["step"]) == open_run(finished).snapshots.steps
    for folder in [*committed(finished / "snapshots"), *committed(finished / "checkpoints")]:
        assert verify(folder).ok
    state = open_run(finished).state
    assert (state.state, state.time, state.percent) == ("finished", 1.0, 100.0)


def test_diagnostics_have_these_columns_in_this_order(finished):
    lines = (finished / "diagnostics.csv").read_text().splitlines()
    # Those of issue 2; a model may have more between them.
    assert [name for name in lines[0].split(",") if name in COLUMNS] == COLUMNS
    found = table(finished)
    assert_array_equal(found["step"], np.arange(len(found["step"])))
    assert_array_equal(found["energy"], found["kinetic_energy"])
    # The dt of a row is the step's that led there; the box mean of omega^2 gives the dissipation of
    # every flow.
    assert_allclose(found["dissipation"], 2 * 0.02 * found["enstrophy"], rtol=1e-13)
    assert_allclose(np.diff(found["time"]), found["dt"][1:], rtol=0, atol=1e-15)
    assert found["energy"][0] == pytest.approx(0.5, rel=1e-14)
    assert (np.diff(found["energy"]) < 0).all()


def test_cfl_chooses_dt(finished):
    """dt = 0.3 / rate of the state before the step; the column `cfl` is dt times the rate after
    it."""
    found = table(finished)
    rate = found["cfl"][1:] / found["dt"][1:]
    free = found["dt"][2:] * rate[:-1]
    assert found["cfl"][0] == 0
    assert (free <= 0.3 * (1 + 1e-12)).all()
    # Only the steps before an aligned time (0.4, 0.8, 1) are shorter: at most two for each.
    assert 0 < (free < 0.3 * (1 - 1e-12)).sum() <= 6


def test_snapshots_and_the_end_are_hit_exactly(finished):
    run = open_run(finished)
    assert [snapshot.time for snapshot in run.snapshots] == [0.0, 0.4, 0.8, 1.0]
    found = table(finished)
    for time in (0.4, 0.8, 1.0):
        (row,) = np.flatnonzero(found["time"] == time)
        # The remainder is halved: the last two steps are alike, and none is a sliver.
        assert (
            found["dt"][row] == pytest.approx(found["dt"][row - 1], rel=1e-9)
            or found["dt"][row] > 0.05
        )
    assert found["dt"][1:].min() > 0.3 * found["dt"].max()


def test_soft_events_never_change_a_step(finished):
    """Spectra every 0.2 are taken after the first step at or beyond, and carry that step's time."""
    steps = table(finished)["step"]
    times = table(finished)["time"]
    spectra = open_run(finished).spectra
    due = [times[np.flatnonzero(times >= 0.2 * n * (1 - 1e-12))[0]] for n in range(6)]
    assert_array_equal(spectra.time, due)
    assert all(times[step] == time for step, time in zip(spectra.step, spectra.time, strict=True))
    assert set(spectra.step) <= set(steps)


def test_shards_reassemble_to_the_field(finished):
    """The snapshot holds u in physical space: its box mean is the row's energy, its spectrum the
    state's."""
    snapshot = open_run(finished).snapshots[-1]
    velocity = np.asarray(snapshot["velocity"][...])
    assert velocity.shape == (3, 16, 12, 10)
    found = table(finished)
    assert 0.5 * (velocity**2).sum(0).mean() == pytest.approx(found["energy"][-1], rel=1e-13)
    assert np.sqrt((velocity**2).sum(0)).max() == pytest.approx(found["max_speed"][-1], rel=1e-13)
    modes = np.fft.fftn(velocity, axes=(1, 2, 3)) / velocity[0].size
    state = contents(committed(finished / "checkpoints")[-1])[
        "velocity"
    ]  # (3, z, y, x), kept modes
    for x, y, z in [(1, -2, 3), (-5, 3, 0), (0, 0, 2), (4, 1, 1)]:
        assert_allclose(state[:, z, y, x], modes[:, x, y, z], rtol=0, atol=1e-15)
    # One shard holds y = 0 to 5 and 6 to 11 of this process's two devices.
    (shard,) = json.loads((snapshot.path / "manifest.json").read_text())["shards"]
    assert [block["start"] for block in shard["blocks"]["velocity"]] == [[0, 0, 0], [0, 6, 0]]


def test_slices_are_the_mid_planes_of_the_snapshots(finished):
    run = open_run(finished)
    slices: SeriesReader = run.slices
    assert list(slices.time) == [0.0, 0.4, 0.8, 1.0]
    velocity = np.asarray(run.snapshots[-1]["velocity"][...])
    speed = np.sqrt((velocity**2).sum(0))
    planes = {"yz": speed[8], "xz": speed[:, 6], "xy": speed[:, :, 5]}
    for name, plane in planes.items():
        assert_allclose(slices[f"speed/{name}"][-1], plane, rtol=0, atol=1e-14)


def test_provenance_says_what_computed_it(finished):
    found = open_run(finished).provenance
    assert found["command"][:2] == ["simulator", "run"] and found["command"][3] == "--output"
    assert set(found["git"]) == {"commit", "dirty", "changed"} and len(found["git"]["commit"]) == 40
    assert found["devices"]["count"] == 2 and found["devices"]["platform"] == "cpu"
    plans = {"native": "custom_partitioning_zx_y_native", "xla": "custom_partitioning_z_xy"}
    kernels = found["mesh"]["kernels"].partition(" ")[0]
    assert found["mesh"]["transform"] == plans[kernels] and found["mesh"]["axes"] == {"slab": 2}
    assert found["earlier"] == []


@pytest.mark.parametrize(
    "state, environ, warned",
    [("PENDING", {}, True), ("PENDING", {"SLURM_JOB_ID": "12"}, False), ("FAILED", {}, False)],
)
def test_a_run_whose_job_waits_is_taken_up_with_a_warning(
    tmp_path, monkeypatch, state: str, environ: dict[str, str], warned: bool
):
    tool(tmp_path / "bin", "squeue", f"echo {state}")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    remember_job(tmp_path, "12")
    assert waiting_job(tmp_path, environ) == ("12" if warned else None)


def test_the_log_names_the_job_that_waits(tmp_path, monkeypatch, capsys):
    tool(tmp_path / "bin", "squeue", "echo PENDING")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "run").mkdir()
    remember_job(tmp_path / "run", "12")
    assert simulate(write_case(tmp_path), tmp_path / "run", "time.stop=0.01") == 0
    said = "warning: job 12 of this run waits in Slurm's queue and continues it when it starts"
    assert said in capsys.readouterr().out


def test_a_finished_run_is_left_alone(finished, capsys):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    assert simulate(finished.parent / "case.yaml", finished) == 0
    last = table(finished)["step"][-1]
    assert capsys.readouterr().out == (
        f"{finished}: already finished at t = 1, step {last}; a later time.stop continues it, "
        "--overwrite starts again\n"
    )
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before


def test_a_fixed_dt_gives_times_that_are_products_and_a_remainder_of_one_to_two_is_halved(tmp_path):
    config = write_case(tmp_path, CASE.replace("cfl: 0.3", "dt: 0.1, integrator: rk2"))
    small = ("grid.shape=8,8,8", "output.spectra=null")
    whole = ("output.snapshots=null", "time.stop=3")
    assert simulate(config, tmp_path / "run", *small, *whole) == 0
    found = table(tmp_path / "run")
    # 30 * 0.1 is beyond 3 by one rounding: the clock is set to the end's time and dt stays.
    assert list(found["time"]) == [n * 0.1 for n in range(30)] + [3.0]
    assert set(found["dt"][1:]) == {0.1}
    aligned = ("output.snapshots.every=0.25", "time.stop=0.55")
    assert simulate(config, tmp_path / "halved", *small, *aligned) == 0
    found = table(tmp_path / "halved")
    assert_allclose(
        found["time"], [0, 0.1, 0.175, 0.25, 0.35, 0.425, 0.5, 0.55], rtol=0, atol=1e-15
    )
    assert {0.25, 0.5, 0.55} <= set(found["time"])


@pytest.mark.parametrize("dt, times", [(0.05, 0), (0.2, 1)])
def test_a_fixed_dt_beyond_the_limit_of_cfl_is_warned_of_once(tmp_path, dt, times):
    config = write_case(tmp_path, CASE.replace("cfl: 0.3", f"dt: {dt}, integrator: rk2"))
    changes = ("output={diagnostics: {every_steps: 1}}", "time.max_steps=3")
    assert simulate(config, tmp_path / "run", "grid.shape=8,8,8", *changes) == 0
    beyond = table(tmp_path / "run")["cfl"] > INTEGRATORS["rk2"].max_cfl["two_thirds"]
    assert beyond[1:].all() if times else not beyond.any()
    log = (tmp_path / "run" / "run.log").read_text()
    assert log.count("warning: the CFL number exceeds 0.4, the limit of rk2") == times


PYTHON = """\
import jax.numpy as jnp

def build(x, y, z, amplitude):
    return {"velocity": (amplitude * jnp.sin(2 * jnp.pi * z / 4), 0 * x, 0 * y)}
"""


@pytest.mark.long
def test_a_reader_that_leaves_does_not_end_the_run(tmp_path, monkeypatch):
    """`simulator run ... --output 7 | head -1`, and afterwards `resume 7`."""
    monkeypatch.chdir(tmp_path)
    write_case(tmp_path)
    small = ("grid.shape=8,8,8", "devices.count=1", "output.spectra=null", "time.max_steps=3")
    arguments = ("run", "case.yaml", *small, "--output", "7")
    with started(*arguments, begin=spawned) as process:
        assert process.stdout.readline().startswith("case: navier_stokes")
        process.stdout.close()
        assert (process.wait(60), process.stderr.read()) == (0, "")
    log = (tmp_path / "7" / "run.log").read_text()
    assert "finished at t = " in log and "simulator verify 7" in log
    assert main(["resume", "7", "time.max_steps=4"]) == 0
    assert open_run("7").state.step == 4


def test_a_users_function_is_copied_and_the_copy_runs(tmp_path):
    (tmp_path / "fields.py").write_text(PYTHON)
    text = CASE.replace(
        "{kind: random, peak: 3, energy: 0.5, seed: 1}",
        "{kind: python, path: fields.py, function: build, parameters: {amplitude: 2}}",
    )
    arguments = ["grid.shape=8,8,9", "time.max_steps=2"]
    assert simulate(write_case(tmp_path, text), tmp_path / "run", *arguments) == 0
    found = table(tmp_path / "run")
    # A shear flow u(z) only decays, at the rate nu k^2 in amplitude, twice that in energy: <u^2> /
    # 2 = 1 at first.
    decay = np.exp(-2 * 0.02 * (2 * np.pi / 4) ** 2 * found["time"])
    assert_allclose(found["energy"], decay, rtol=1e-13)
    assert (tmp_path / "run" / "inputs" / "fields.py").read_text() == PYTHON
    # With --overwrite the run starts anew, from the file as it is now.
    (tmp_path / "fields.py").write_text(PYTHON.replace("(amplitude", "(3 * amplitude"))
    assert simulate(tmp_path / "case.yaml", tmp_path / "run", *arguments, "--overwrite") == 0
    assert table(tmp_path / "run")["energy"][0] == pytest.approx(9, rel=1e-13)
    assert "3 * amplitude" in (tmp_path / "run" / "inputs" / "fields.py").read_text()


def test_a_field_that_is_not_solenoidal_is_projected_with_a_warning(tmp_path, capsys):
    body = 'k = jnp.pi / 2\n    return {"velocity": (jnp.sin(k * z), 0 * x, jnp.sin(k * z))}'
    (tmp_path / "fields.py").write_text(
        f"import jax.numpy as jnp\n\ndef build(x, y, z):\n    {body}\n"
    )
    start = "{kind: python, path: fields.py, function: build}"
    text = CASE.replace("{kind: random, peak: 3, energy: 0.5, seed: 1}", start)
    assert (
        simulate(
            write_case(tmp_path, text), tmp_path / "run", "grid.shape=8,8,9", "time.max_steps=1"
        )
        == 0
    )
    warning = "warning: initial velocity has divergence: 50.00% of its energy was removed"
    assert (
        warning in capsys.readouterr().out and warning in (tmp_path / "run" / "run.log").read_text()
    )
    assert table(tmp_path / "run")["energy"][0] == pytest.approx(0.25, rel=1e-13)


# An inviscid flow with a dt far beyond the limit of stability: it doubles its size in every few
# steps.
UNSTABLE = """\
model: {kind: navier_stokes, viscosity: 0}
grid: {shape: [16, 12, 10], box: [2*pi, 5, 4]}
initial: {kind: random, peak: 3, energy: 0.5, seed: 1}
time: {stop: 1000, dt: 1.0}
devices: {platform: cpu, count: 2}
output:
  diagnostics: {every_steps: ROWS}
  checkpoints: {every_steps: SAVES, keep_last: 100}
"""


@pytest.mark.parametrize("rows, saves", [(1, 2), (1000, 1000)])
def test_a_field_that_is_not_finite_ends_the_run(tmp_path, capsys, rows, saves):
    """Whether a written state is the first bad one, or a step within the device loop."""
    text = UNSTABLE.replace("ROWS", str(rows)).replace("SAVES", str(saves))
    run = tmp_path / "run"
    assert simulate(write_case(tmp_path, text), run) == 1
    (line,) = capsys.readouterr().err.splitlines()
    found = re.fullmatch(
        r"step (\d+), t = (\S+): velocity is not finite; all earlier output is intact. "
        r"A smaller time.cfl or time.dt, more viscosity or a finer grid may help",
        line,
    )
    assert found is not None, line
    # With this dt, the step's number is its time: both are those of the first state that is not
    # finite.
    step = int(found[1])
    assert float(found[2]) == step > 2
    state = open_run(run).state
    assert state.state == "failed" and state.reason == line
    assert (state.step, state.time) == (step, step)
    assert line in (run / "run.log").read_text()
    found = table(run)
    assert all(
        np.isfinite(found[name]).all() for name in ("time", "dt", "energy", "max_speed", "cfl")
    )
    for folder in [*committed(run / "snapshots"), *committed(run / "checkpoints")]:
        assert verify(folder).ok
        assert all(np.isfinite(values).all() for values in contents(folder).values())
    if saves == 2:
        # The save under way at the failure was finished.
        assert int(committed(run / "checkpoints")[-1].name) == (step - 1) // 2 * 2
    assert sorted(path.name for path in run.iterdir() if path.name.startswith(".")) == []


LATE_LISTINGS = """\
import os

listed, scanned = os.listdir, os.scandir


def is_late(path):
    return not isinstance(path, int) and os.path.abspath(path).startswith(os.environ["LATE"])


os.listdir = lambda path=".": [] if is_late(path) else listed(path)
os.scandir = lambda path=".": scanned(os.environ["EMPTY"] if is_late(path) else path)
"""


def test_a_run_goes_on_where_listings_of_its_folders_come_late(tmp_path):
    """NFS may list a folder as it was a minute ago, here before the run, but opens by name what is
    there: a run that begins anew would remove what it has not seen."""
    config = write_case(tmp_path)
    run = tmp_path / "run"
    assert simulate(config, run, "time.max_steps=3", "output.snapshots.every_steps=1") == 0
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "sitecustomize.py").write_text(LATE_LISTINGS)
    (empty := tmp_path / "empty").mkdir()
    late = {"PYTHONPATH": f"{tmp_path / 'late'}:{ROOT}", "LATE": str(run), "EMPTY": str(empty)}
    words = ["run", str(config), "--output", str(run), "output.snapshots.every_steps=1"]
    program = f"""
        from simulator import open_run
        from simulator.cli import main
        print(open_run({str(run)!r}).snapshots.steps)
        print(main({words}), main(["verify", {str(run)!r}]))
        """
    seen = fresh(program, **environment(**late))
    first, *_, last = seen.stdout.splitlines()
    assert (first, last) == ("(0, 1, 2, 3)", "0 0"), seen
    assert f"continuing from {run}/checkpoints/00000003" in seen.stdout
    assert open_run(run).snapshots.steps[:4] == (0, 1, 2, 3)
