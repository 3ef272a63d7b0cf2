"""Status and table from what runs have written, against numbers by hand; and the expressions of a
table."""

import json
import math
import os
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from refusals import pairs
from run_support import fresh
from sweep_support import BASE

from simulator.archive.run_state import RunState, write_state
from simulator.archive.series_file import Series, Table
from simulator.cli import COMMANDS, main
from simulator.errors import UserError
from simulator.plan import Step
from simulator.study import execution
from simulator.study.planned import open_plan
from simulator.study.study_status import MemberState, MemberStatus, begun, ended, status_of
from simulator.study.sweep import open_sweep
from simulator.study.sweep_progress import next_commands
from simulator.study.sweep_text import plan_lines, status_lines, table_lines
from simulator.study.table import as_csv, as_text, parse, table_as_json
from simulator.words import size

STUDY = """\
base: base.yaml
sweep:
  grid: {model.viscosity: [0.1, 0.2, 0.3, 0.4], time.dt: [0.02]}
collect: [final.energy, max.dissipation, "mean.enstrophy[time>=1]", "integral.energy", steps, wall_time]
"""
# time, energy, dissipation, enstrophy: unevenly spaced
ROWS = [(0.0, 4.0, 1.0, 2.0), (1.0, 3.0, 5.0, 6.0), (1.5, 2.0, 4.0, 2.0), (3.0, 1.0, 3.0, 4.0)]
# mean over t >= 1: ((6 + 2)/2 * 0.5 + (2 + 4)/2 * 1.5) / 2 = (2 + 4.5) / 2
MEAN = 3.25
# 3.5 * 1 + 2.5 * 0.5 + 1.5 * 1.5
INTEGRAL = 7.0


def state(stage: str, step: int = 3, **more) -> RunState:
    return RunState(stage, step, 3.0, 3.0, 100.0 if stage == "finished" else 40.0, 1.0, 0.1, **more)


def finish(folder: Path) -> None:
    with closing(
        Table(folder / "diagnostics.csv", ["step", "time", "energy", "dissipation", "enstrophy"])
    ) as table:
        for step, (t, energy, dissipation, enstrophy) in enumerate(ROWS):
            row = {"time": t, "energy": energy, "dissipation": dissipation, "enstrophy": enstrophy}
            table.append({"step": step, **row})
    write_state(folder, state("finished", seconds=12.5))


@pytest.fixture
def half_done(study):
    """Four runs: done, failed, interrupted, waiting."""
    sweep = study(STUDY)
    sweep.prepare()
    done, failed, interrupted, _ = (run.folder for run in sweep.runs)
    finish(done)
    for folder, code, said in ((done, 0, ""), (failed, 1, "velocity is not finite")):
        ended(folder, begun(folder, os.getpid(), Path("log"), {}), code, said)
    write_state(failed, state("failed", reason="velocity is not finite"))
    write_state(interrupted, state("stopped", step=2, reason="SIGTERM"))
    return sweep


def test_the_table_against_numbers_by_hand_as_csv_json_and_arrays(half_done):
    first, *others = table = half_done.rows()
    assert first == {
        "index": 0,
        "run": half_done.runs[0].hash,
        "state": "done",
        "model.viscosity": 0.1,
        "time.dt": 0.02,
        "final.energy": 1.0,
        "max.dissipation": 5.0,
        "mean.enstrophy[time>=1]": MEAN,
        "integral.energy": INTEGRAL,
        "steps": 3.0,
        "wall_time": 12.5,
    }
    assert [row["state"] for row in others] == ["failed", "interrupted", "waiting"]
    assert all(math.isnan(row[text]) for row in others for text in list(first)[5:])
    header, first, second, *_ = as_csv(table).splitlines()
    assert header.startswith("index,run,state,model.viscosity,time.dt,final.energy,")
    assert first == f"0,{half_done.runs[0].hash},done,0.1,0.02,1.0,5.0,3.25,7.0,3.0,12.5"
    assert second == f"1,{half_done.runs[1].hash},failed,0.2,0.02,,,,,,"
    assert json.loads(table_as_json(table))[1]["final.energy"] is None
    arrays = half_done.table()
    assert_array_equal(arrays["model.viscosity"], [0.1, 0.2, 0.3, 0.4])
    assert_array_equal(arrays["final.energy"], [1, np.nan, np.nan, np.nan])
    assert list(arrays["state"]) == ["done", "failed", "interrupted", "waiting"]
    assert np.asarray(arrays["index"]).dtype == np.int64


def test_the_table_and_status_as_text(half_done):
    lines = table_lines(half_done, half_done.rows())
    assert lines[0].split()[:4] == [
        "index",
        "run",
        "state",
        "model.viscosity",
    ]  # time.dt is the same in all
    assert lines[1].split()[2:] == ["done", "0.1", "1", "5", "3.25", "7", "3", "12.5"]
    assert lines[-1] == "all runs: time.dt=0.02"
    shown = status_lines(half_done)
    assert [line.split()[3] for line in shown[1:5]] == ["done", "failed", "interrupted", "waiting"]
    assert shown[2].endswith("failed       velocity is not finite")
    assert shown[3].endswith("interrupted  step 2, 40 %: SIGTERM")
    assert shown[-1] == "study: 1 done, 1 failed, 1 interrupted, 1 waiting"


REFINED = """\
base: base.yaml
sweep: {grid: {time.dt: [0.04, 0.02, 0.01, 0.004]}}
collect: [final.energy, final.accuracy.l2, wall_time]
"""
ACCURACY = "def accuracy(fields, time): return {'l2': 0 * time, 'profile': fields['velocity'][0, :, 0, 0]}\n"


def test_the_table_of_a_refined_run_shows_errors_and_the_observed_order(study):
    """energy = 2 + dt^2, and an own series with an error of 3 dt^4: the errors against the finest
    run are (dt^2 - dt_f^2) / (2 + dt_f^2), and the orders 2 and 4, whatever the ratio of two dt.
    Another name of the series, an array in it and two files in one expression are refused."""
    Path("own.py").write_text(ACCURACY)
    base = BASE.replace(
        "spectra:", "python: {path: own.py, function: accuracy, every: 1}, spectra:"
    )
    sweep = study(REFINED, base)
    sweep.prepare()
    for run in sweep.runs:
        dt = run.values["time.dt"]
        with closing(Table(run.folder / "diagnostics.csv", ["step", "time", "energy"])) as table:
            table.append({"step": 1, "time": 1.0, "energy": 2 + dt**2})
        series = Series(
            run.folder / "accuracy.h5", {"i": np.arange(8)}, {"l2": (), "profile": ("i",)}
        )
        series.extend([(1, 1.0, {"l2": np.array(3 * dt**4), "profile": np.zeros(8)})])
        write_state(run.folder, state("finished", seconds=1.0))
    lines = table_lines(sweep, sweep.rows())
    assert lines[-5] == "relative to the finest run, time.dt = 0.004:"
    columns = [
        f"{what} of final.{name}"
        for name in ("energy", "accuracy.l2")
        for what in ("error", "order")
    ]
    assert lines[-4].split("  ")[1:] == columns
    shown = [[float(cell) if cell != "-" else None for cell in line.split()] for line in lines[-3:]]
    errors = [(dt**2 - 0.004**2) / (2 + 0.004**2) for dt in (0.04, 0.02, 0.01)]
    assert [row[1] for row in shown] == pytest.approx(errors, rel=5e-3)
    assert [row[2] for row in shown] == [None, 2, 2] and [row[4] for row in shown] == [None, 4, 4]
    for text, problem in {
        "final.acuracy.l2": r"no diagnostic 'acuracy.l2', did you mean accuracy\.\?",
        "max.(energy * accuracy.l2)": "takes columns of several files; those of one are needed",
    }.items():
        with pytest.raises(UserError, match=problem):
            study(REFINED.replace("final.accuracy.l2", f'"{text}"'), base)
    sweep = study(REFINED.replace("accuracy.l2", "accuracy.profile"), base)
    with pytest.raises(UserError, match="has no number 'profile'; its numbers are l2"):
        sweep.rows()


def test_a_table_shows_the_digits_that_differ():
    lines = as_text([{"energy": 2e6 + 1e-3 * i, "time": 1.0} for i in range(3)])
    assert [line.split() for line in lines[1:]] == [
        ["2000000", "1"],
        ["2000000.001", "1"],
        ["2000000.002", "1"],
    ]


CHOSEN = {
    "run": [2, 3],
    "run --jobs 2": [2, 3],
    "retry": [1, 2],
    "retry --failed": [1],
    "retry --index 3,1,0": [1, 3],
}


@pytest.mark.parametrize("line, expected", CHOSEN.items())
def test_which_runs_are_run(half_done, monkeypatch, line: str, expected: list[int]):
    """The runs are done, failed, interrupted and waiting."""
    chosen: list[int] = []

    def run_all(sweep, work, **how) -> int:
        chosen.extend(run.index for job in work for run in job.runs)
        return 0

    monkeypatch.setattr(execution, "run_all", run_all)
    name, *options = line.split()
    assert main(["sweep", name, "study.yaml", *options]) == 1, "the failed one still is"
    assert chosen == expected


def test_the_commands_of_login_nodes_start_no_device(half_done):
    """They import JAX at most."""
    run = str(half_done.runs[0].folder)
    lines = [f"sweep {name} study.yaml" for name in ("plan", "status", "table", "submit --dry-run")]
    lines += [
        "check base.yaml",
        "submit base.yaml --dry-run",
        *(f"{name} {run}" for name in ("status", "plot", "verify") if name in COMMANDS),
    ]
    done = fresh(f"""
        from simulator.cli import main; import jax
        codes = [main(line.split()) for line in {lines}]; assert not any(codes), codes
        jax.config.update('jax_num_cpu_devices', 3)  # raises once devices have started
        assert len(jax.devices('cpu')) == 3
    """)
    assert done.returncode == 0, done.stderr


def test_status_and_table_of_a_planned_sweep_need_no_jax(half_done):
    """And print what the opened sweep has."""
    expected = [*status_lines(half_done), *table_lines(half_done, half_done.rows())]
    done = fresh("""
        import sys
        from simulator.cli import main
        assert main(["sweep", "status", "study.yaml"]) == main(["sweep", "table", "study.yaml"]) == 0
        assert "jax" not in sys.modules
    """)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected


@pytest.mark.parametrize("name", ["study.yaml", "base.yaml", "parts.py"])
def test_a_plan_of_files_that_have_changed_is_not_shown(study, name: str):
    Path("parts.py").write_text(
        "def stress(velocity, gradient, width): return 6 * [gradient[0, 0]]\n"
    )
    closure = "subgrid: {kind: python, path: parts.py, function: stress}"
    base = BASE.replace("viscosity: 0.01", f"viscosity: 0.01, {closure}")
    study(STUDY, base).prepare()
    planned = open_plan("study.yaml")
    assert len(planned.runs) == 4
    Path(name).write_text(Path(name).read_text() + "# changed\n")
    assert open_plan("study.yaml") is None


def test_a_plan_leaves_out_the_runs_of_an_earlier_file(study):
    study(STUDY).prepare()
    study(STUDY.replace("0.1, 0.2, ", "")).prepare()
    planned = open_plan("study.yaml")
    assert [run.index for run in planned.runs] == [2, 3]


def test_a_sweep_is_found_from_another_folder(study, tmp_path: Path, monkeypatch):
    """Its output.directory is relative to the folder where it was planned."""
    sweep = study(STUDY)
    sweep.prepare()
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    there = open_sweep("../study.yaml")
    assert there.folder == sweep.folder == open_plan("../study.yaml").folder
    assert [run.index for run in there.runs] == [0, 1, 2, 3]
    assert {run.config.output.directory.parent for run in there.runs} == {sweep.folder}
    shutil.rmtree(sweep.folder)
    assert open_sweep("../study.yaml").folder == tmp_path / "notebooks" / "out" / "study"


def test_the_plan_as_text(study):
    """The state as `simulator plan` has it; five steps of 512 points."""
    found = study(STUDY)
    lines = plan_lines(found)
    state = size(Step(found.runs[0].config).state)
    assert lines[0].split("  ")[-3:] == ["memory of a state", "steps", "grid points x steps"]
    assert lines[1].split()[3:] == [*state.split(), "5", "2560"]
    said = f"the largest state has {state} (a step takes 3 to 20 times as much)"
    assert lines[-1] == f"4 runs in out/study, {said}, cost 1.02e+04 points x steps"


CUT_OFF = MemberState.INTERRUPTED


@pytest.mark.parametrize(
    "prepare, stage, detail",
    [
        (lambda folder, record: None, MemberState.WAITING, ""),
        (
            lambda folder, record: ended(folder, record, 2, "x.py: no"),
            MemberState.FAILED,
            "x.py: no",
        ),
        (lambda folder, record: ended(folder, record, 3, ""), MemberState.WAITING, ""),
        (lambda f, r: ended(f, r, -9, "killed"), CUT_OFF, "cut off before its first step: killed"),
        (lambda f, r: write_state(f, state("running")), CUT_OFF, "step 3, 40 %: cut off"),
        (
            lambda folder, record: write_state(folder, state("finished")),
            MemberState.DONE,
            "t = 3, step 3",
        ),
    ],
)
def test_where_a_run_stands(tmp_path: Path, prepare, stage: MemberState, detail: str):
    dead = 2**22 + 1  # above every process id
    record = begun(tmp_path, dead, tmp_path / "log", {})
    if stage is MemberState.WAITING and not detail:
        (tmp_path / "logs" / "sweep.json").unlink()
    prepare(tmp_path, record)
    assert (status_of(tmp_path).stage, status_of(tmp_path).detail) == (stage, detail)


@pytest.mark.plugins
def test_pictures_of_what_there_is(half_done):
    pictures = pytest.importorskip("simulator.plugins.pictures.study")
    files = pictures.plot_sweep(half_done, y=["max.dissipation"])
    names = [
        "max_dissipation_against_model_viscosity",
        "series_energy",
        "series_dissipation",
        "series_enstrophy",
    ]
    assert [path.stem for path in files] == names
    (drawn, *_) = pictures.plot_sweep(half_done, x="1/model.viscosity", y=["max.dissipation"])
    assert drawn.stem == "max_dissipation_against_1_model_viscosity"
    inverse = pictures._swept(half_done, "2/model.viscosity")
    values = [2 / run.values["model.viscosity"] for run in half_done.runs]
    assert inverse.values == values and inverse.label == r"2/$\nu$"
    assert all(
        path.parent == half_done.folder / "plots" and path.read_bytes()[:4] == b"\x89PNG"
        for path in files
    )


@pytest.mark.plugins
@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"x": "model.viscosty"},
            "--x: the sweep does not set 'model.viscosty', did you mean model.visc",
        ),
        ({"x": "model.viscosity+foo"}, "--x: 'model.viscosity+foo' cannot be computed; a formula"),
        (
            {"hue": "grid.shape"},
            "--hue: the sweep does not set 'grid.shape'; it sets model.viscosity",
        ),
        ({"y": ["max.enrgy"]}, "--y: 'max.enrgy': no diagnostic 'enrgy', did you mean energy?"),
        ({}, "no run has written anything yet"),
    ],
)
def test_pictures_that_cannot_be_drawn(study, options, message: str):
    pictures = pytest.importorskip("simulator.plugins.pictures.study")
    with pytest.raises(UserError) as caught:
        pictures.plot_sweep(study(STUDY), **options)
    assert message in str(caught.value)


TIME = np.linspace(0, 4, 41)
COLUMNS = {
    "time": TIME,
    "energy": 2 + np.sin(TIME),
    "u_rms": np.full(41, 0.5),
    "dissipation": 0.1 * TIME,
}


def value(text):
    return parse(text).reduce(COLUMNS)


def test_a_formula_is_reduced_row_by_row():
    rows = COLUMNS["dissipation"] * COLUMNS["energy"] / COLUMNS["u_rms"] ** 3
    assert value("max.(dissipation * energy / u_rms**3)") == pytest.approx(rows.max(), rel=1e-15)
    assert value("final.(sqrt(energy) - 2)") == pytest.approx(
        np.sqrt(COLUMNS["energy"][-1]) - 2, rel=1e-15
    )
    late = TIME > 2
    mean = np.trapezoid(rows[late], TIME[late]) / np.ptp(TIME[late])
    assert value("mean.(dissipation * energy / u_rms**3)[time>2]") == pytest.approx(mean, rel=1e-14)
    assert parse("mean.(energy / u_rms**3)[time>2]").columns == ("energy", "u_rms", "time")


def test_ends_extremes_deviations_and_percentiles_of_the_rows_that_are_chosen():
    assert (value("first.time"), value("final.time"), value("min.energy")) == (
        0,
        4,
        COLUMNS["energy"].min(),
    )
    assert value("max.time[time<2*pi/3]") == pytest.approx(2, rel=1e-15)
    assert value("mean.time[time>0.5, time<=1]") == pytest.approx(0.8, rel=1e-14)
    assert np.isnan(value("max.energy[time>9]")) and np.isnan(value("max.missing"))
    mean = value("mean.energy")
    variance = np.trapezoid((COLUMNS["energy"] - mean) ** 2, TIME) / 4
    assert value("std.energy") == pytest.approx(np.sqrt(variance), rel=1e-14)
    assert value("p50.dissipation") == pytest.approx(0.2, rel=1e-14)
    assert value("p95.dissipation") == pytest.approx(0.38, rel=1e-14)
    assert np.isnan(value("sem.energy[time>3.5]"))  # five rows


def test_the_error_of_a_mean_knows_of_correlation():
    """Each of 64 independent values stands in 8 rows: the error is sigma / 8, not sigma /
    sqrt(512). An estimate from m blocks has a relative error of 1 / sqrt(2 (m - 1)): 0.09 for the
    64, 0.27 for the fewest, 8."""
    values = np.random.default_rng(4).standard_normal(64).repeat(8)
    rows = {"time": np.arange(512.0), "energy": values}
    error = parse("mean.energy").error
    assert 1 / 8 * (1 - 0.27) < error.reduce(rows) < 1 / 8 * (1 + 2 * 0.27)
    assert parse("max.energy").error is None


@pytest.mark.parametrize(
    "text, message",
    pairs("""
mean.(energy +)
    cannot be computed
mean.(open('x'))
    only numbers
mean.(energy.real.imag)
    only numbers
average.energy
    unknown reduction 'average'
p100.energy
    unknown reduction 'p100'
max.(energy),(time)
    is not an expression
max.(energy)],[(time)
    cannot be computed
"""),
)
def test_what_is_no_expression_is_refused(text, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        parse(text)


def test_a_finished_study_is_compared_and_a_failed_one_is_looked_at(study) -> None:
    """The commands after `next:`."""
    sweep = study(STUDY)
    done, failed = (MemberStatus(stage) for stage in (MemberState.DONE, MemberState.FAILED))
    assert next_commands(sweep, [done, done])[0].endswith("simulator sweep table study.yaml")
    assert next_commands(sweep, [done, failed])[-1].endswith("simulator sweep table study.yaml")
