"""Runs in a background shear: continued, on two processes, started from snapshots and measured again."""

import numpy as np
import pytest
from run_support import (
    assert_same_end,
    call,
    contents,
    largest_difference,
    simulate,
    table,
    write_case,
)

from simulator.archive.manifest import committed
from simulator.cli import main

CASE = """\
model: {kind: mhd, viscosity: 0.01, resistivity: 0.01, shear: -1.5, rotation: [0, 0, 1]}
grid: {shape: [12, 12, 10], box: [1, 2, 1]}
initial: {kind: random, peak: 12, energy: 0.5, seed: 1, magnetic: {energy: 0.1, peak: 12}}
time: {stop: 3.0, dt: 0.05, max_steps: 40}
devices: {platform: cpu, count: 2}
output: {diagnostics: {every_steps: 1}, spectra: {every_steps: 10}, snapshots: {every_steps: 10}}
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of 40 steps, in which frames are exchanged twice, at the times 2/3 and 2."""
    folder = tmp_path_factory.mktemp("whole")
    assert simulate(write_case(folder, CASE), folder / "run") == 0
    return folder


@pytest.mark.long
def test_a_run_continues_between_exchanges_bit_for_bit(whole, tmp_path):
    config = whole / "case.yaml"
    assert simulate(config, tmp_path / "run", "time.max_steps=20") == 0
    assert simulate(config, tmp_path / "run") == 0
    assert_same_end(tmp_path / "run", whole / "run")
    assert "memory_lost_to_shear" in contents(committed(whole / "run" / "checkpoints")[-1])
    columns = table(whole / "run")
    assert columns["lost_to_shear"][-1] > 0 and "shear_production" in columns


@pytest.mark.slow
def test_two_processes_agree_with_one(whole, tmp_path):
    ended = call("run", whole / "case.yaml", "--output", tmp_path / "run", "--processes", "2")
    assert ended.returncode == 0, ended.stderr
    assert largest_difference(tmp_path / "run", whole / "run") < 1e-12


@pytest.mark.long
def test_snapshots_are_read_in_the_frame_of_their_time(whole, tmp_path, capsys):
    """The snapshot of step 10 is tilted: a run with `time: keep` goes on from it, others are
    refused; `analyze` finds its diagnostics again."""
    config = whole / "case.yaml"
    snapshot = committed(whole / "run" / "snapshots")[1]
    start = f"initial={{kind: snapshot, path: {snapshot}, time: keep}}"
    assert simulate(config, tmp_path / "on", start, "time.max_steps=30") == 0
    assert largest_difference(tmp_path / "on", whole / "run") < 1e-12
    assert simulate(config, tmp_path / "no", start.replace("keep", "reset")) == 2
    assert "not periodic" in capsys.readouterr().err
    assert main(["analyze", str(whole / "run")]) == 0
    again, first = table(whole / "run" / "analysis"), table(whole / "run")
    for name in ("energy", "dissipation", "shear_production", "max_speed"):
        assert np.allclose(again[name], first[name][::10], rtol=1e-10), name
