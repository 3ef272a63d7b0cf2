"""A street of vortices behind a cylinder: killed and continued."""

from pathlib import Path

import numpy as np
import pytest
from fault_support import assert_equal
from run_support import simulate, started, table, wait_until, write_case

from simulator.archive.manifest import committed

CASE = """\
model: {kind: navier_stokes, viscosity: 1/100}
grid: {shape: [64, 32], box: [16, 8]}
initial: {kind: uniform, velocity: [1, 0]}
terms:
  - name: cylinder
    kind: relax
    target: {velocity: body}
    relaxation_time: 0.05
    mask: {kind: cylinder, center: [4, 4], radius: 0.5}
    coefficients: {velocity: 1, length: 1}
  - name: sponge
    kind: relax
    target: {velocity: [1, "0.5*exp(-(t - 4)**2)"]}
    relaxation_time: 0.2
    mask: {kind: box, center: [16, 4], size: [1.5, null], smoothing: 1}
time: {stop: 40.0, dt: 0.1}
devices: {platform: cpu, count: 1}
output:
  {diagnostics: {every_steps: 1}, snapshots: {every_steps: 200}, checkpoints: {every_steps: 20}}
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of six periods of shedding, one of which takes about 6 units of time."""
    folder = tmp_path_factory.mktemp("whole")
    assert simulate(write_case(folder, CASE), folder / "run") == 0
    lift = table(folder / "run")["lift_cylinder"]
    late = lift[200:]
    assert np.count_nonzero(np.diff(np.sign(late))) >= 4 and abs(late).max() > 0.05
    return folder


@pytest.mark.long
def test_a_run_killed_in_the_street_continues_bit_for_bit(whole, tmp_path):
    config = whole / "case.yaml"
    run = tmp_path / "run"
    with started("run", config, "--output", run) as process:
        wait_until(lambda: len(committed(run / "checkpoints")) > 0 and latest(run) >= 200)
        process.kill()
        process.wait()
    assert 200 <= latest(run) < 400
    assert simulate(config, run) == 0
    assert_equal(run, whole / "run")


def latest(run: Path) -> int:
    """The step of the last checkpoint."""
    return int(committed(run / "checkpoints")[-1].name)
