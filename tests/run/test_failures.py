"""Runs that blow up, and disks that do not take what is written."""

import re

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
