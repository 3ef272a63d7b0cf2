"""Runs that blow up, and disks that do not take what is written."""

import re
import shutil

import numpy as np
import pytest
from run_support import CASE, contents, simulate, table, write_case

from simulator import open_run
from simulator.archive.manifest import committed
from simulator.archive.verify import verify

# An inviscid flow with a dt far beyond the limit of stability: it doubles its size in every few steps.
UNSTABLE = CASE.replace("viscosity: 0.02", "viscosity: 0").replace(
    "stop: 1.0, cfl: 0.3", "stop: 1000, dt: 1.0"
)
UNSTABLE = UNSTABLE.replace("{every_steps: 1}", "EVENTS").replace("every: 0.2", "every_steps: 7")
UNSTABLE = UNSTABLE.replace("snapshots: {every: 0.4}", "checkpoints: {every_steps: 2, keep_last: 100}")


@pytest.mark.parametrize("events", ["{every_steps: 1}", "{every_steps: 1000}"])
def test_a_field_that_is_not_finite_ends_the_run(tmp_path, capsys, events):
    """Whether a written state is the first bad one, or a step within the device loop."""
    text = UNSTABLE.replace("EVENTS", events)
    if events == "{every_steps: 1000}":
        text = text.replace("every_steps: 2,", "every_steps: 1000,").replace(
            "every_steps: 7", "every_steps: 1000"
        )
    run = tmp_path / "run"
    assert simulate(write_case(tmp_path, text), run) == 1
    (line,) = capsys.readouterr().err.splitlines()
    found = re.fullmatch(
        r"step (\d+), t = (\S+): velocity is not finite; all earlier output is intact. "
        r"A smaller time.cfl or time.dt, more viscosity or a finer grid may help",
        line,
    )
    assert found is not None, line
    # With this dt, the step's number is its time: both are those of the first state that is not finite.
    step = int(found[1])
    assert float(found[2]) == step > 2
    state = open_run(run).state
    assert state is not None and state.state == "failed" and state.reason == line
    assert line in (run / "run.log").read_text()
    rows = table(run)
    assert all(
        np.isfinite(rows[name]).all() for name in ("time", "dt", "energy", "enstrophy", "max_speed", "cfl")
    )
    for folder in [*committed(run / "snapshots"), *committed(run / "checkpoints")]:
        assert verify(folder).ok
        assert all(np.isfinite(values).all() for values in contents(folder).values())
    if events == "{every_steps: 1}":
        # The save under way at the failure was finished.
        assert int(committed(run / "checkpoints")[-1].name) == (step - 1) // 2 * 2
    assert sorted(path.name for path in run.iterdir() if path.name.startswith(".")) == []


def test_with_a_smaller_dt_the_failed_run_continues(tmp_path, capsys):
    text = UNSTABLE.replace("EVENTS", "{every_steps: 1}").replace("every_steps: 2,", "every_steps: 1,")
    assert simulate(write_case(tmp_path, text), tmp_path / "run") == 1
    first, *later = committed(tmp_path / "run" / "checkpoints")
    for folder in later:  # there the flow has long been wrong
        shutil.rmtree(folder)
    capsys.readouterr()
    assert simulate(tmp_path / "case.yaml", tmp_path / "run", "time.dt=1e-6", "time.max_steps=3") == 0
    shown = capsys.readouterr().out
    assert int(first.name) == 1 and table(tmp_path / "run")["step"][-1] == 3
    assert "time.dt: 1.0 -> 1e-06" in shown and "continuing a run that failed at" in shown


def test_a_checkpoint_that_cannot_be_written_ends_the_run_with_a_line(tmp_path, capsys):
    """A file in the place of the folder: even root cannot write below it."""
    config = write_case(tmp_path, CASE)
    assert simulate(config, tmp_path / "run", "time.max_steps=2") == 0
    run = tmp_path / "run"
    for folder in committed(run / "snapshots"):
        assert verify(folder).ok
    (run / "snapshots").rename(run / "plots")
    (run / "snapshots").write_text("in the way")
    capsys.readouterr()
    assert simulate(config, run, "time.max_steps=4") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "snapshots" in line and "Traceback" not in line
