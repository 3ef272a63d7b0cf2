"""Runs in a background shear, of exact waves and by error: continued, on two processes, with little memory, in
single precision, and started from snapshots."""

from functools import cache

import numpy as np
import pytest
from run_support import (
    assert_same_end,
    contents,
    largest_difference,
    simulate,
    table,
    write_case,
)

from simulator.archive.manifest import committed
from simulator.cli import main

SHEARED = """\
model: {kind: mhd, viscosity: 0.01, resistivity: 0.01, shear: -1.5, rotation: [0, 0, 1]}
grid: {shape: [12, 12, 10], box: [1, 2, 1]}
initial: {kind: random, peak: 12, energy: 0.5, seed: 1, magnetic: {energy: 0.1, peak: 12}}
time: {stop: 3.0, dt: 0.05, max_steps: 40}
devices: {platform: cpu, count: 2}
output: {diagnostics: {every_steps: 1}, spectra: {every_steps: 10}, snapshots: {every_steps: 10}}
"""
"""40 steps, in which frames are exchanged twice, at the times 2/3 and 2."""
WAVES = """\
model: {kind: mhd, viscosity: 0.02, resistivity: 0.05, ion_length: 0.1, rotation: [1, 0, 20]}
grid: {shape: [10, 12, 12]}
initial: {kind: random, peak: 2, energy: 0.5, seed: 1, magnetic: {energy: 0.5, mean_field: [0, 1, 3]}}
time: {stop: 1.0, cfl: 0.5, max_steps: 8, waves: exact}
devices: {platform: cpu, count: 2}
output: {diagnostics: {every_steps: 1}, snapshots: {every_steps: 4}}
"""
BY_ERROR = WAVES.replace("cfl: 0.5", "error: 1.0e-5")
HALF = {SHEARED: 20, WAVES: 3, BY_ERROR: 3}
"""The step after which a run is continued."""
each = pytest.mark.parametrize("case", HALF, ids=("shear", "waves", "error"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """`whole(CASE)` is the folder of the file of a case and of its run."""

    @cache
    def whole(case):
        folder = tmp_path_factory.mktemp("whole")
        assert simulate(write_case(folder, case), folder / "run") == 0
        return folder

    return whole


@pytest.mark.long
@each
def test_a_run_continues_bit_for_bit(whole, tmp_path, case):
    config = whole(case) / "case.yaml"
    run = tmp_path / "run"
    assert simulate(config, run, f"time.max_steps={HALF[case]}") == 0
    assert simulate(config, run) == 0
    assert_same_end(run, whole(case) / "run")
    rows, expected = (folder / "diagnostics.csv" for folder in (run, whole(case) / "run"))
    assert rows.read_text() == expected.read_text()


@pytest.mark.long
def test_snapshots_are_read_in_the_frame_of_their_time(whole, tmp_path, capsys):
    """The snapshot of step 10 is tilted: a run with `time: keep` goes on from it, others are
    refused; `analyze` finds its diagnostics again."""
    config = whole(SHEARED) / "case.yaml"
    run = whole(SHEARED) / "run"
    start = f"initial={{kind: snapshot, path: {committed(run / 'snapshots')[1]}, time: keep}}"
    assert simulate(config, tmp_path / "on", start, "time.max_steps=30") == 0
    assert largest_difference(tmp_path / "on", run) < 1e-12
    assert simulate(config, tmp_path / "no", start.replace("keep", "reset")) == 2
    assert "not periodic" in capsys.readouterr().err
    assert "memory_lost_to_shear" in contents(committed(run / "checkpoints")[-1])
    first = table(run)
    assert first["lost_to_shear"][-1] > 0
    assert main(["analyze", str(run)]) == 0
    again = table(run / "analysis")
    for name in ("energy", "dissipation", "shear_production", "max_speed"):
        assert np.allclose(again[name], first[name][::10], rtol=1e-10), name


@pytest.mark.long
def test_waves_need_neither_much_memory_nor_double_precision(whole, tmp_path):
    """Eight steps of a few operations each: some ten units of round-off, 6e-8."""
    config = whole(WAVES) / "case.yaml"
    assert simulate(config, tmp_path / "low", "run.memory=low") == 0
    assert largest_difference(tmp_path / "low", whole(WAVES) / "run") < 1e-12
    assert simulate(config, tmp_path / "single", "precision=single") == 0
    energy = [table(run)["energy"][-1] for run in (tmp_path / "single", whole(WAVES) / "run")]
    assert energy[0] == pytest.approx(energy[1], rel=2e-6)


@pytest.mark.long
def test_a_run_by_cfl_continues_by_error_and_back(whole, tmp_path):
    config = whole(WAVES) / "case.yaml"
    run = tmp_path / "run"
    for choice in ("cfl=0.5", "error=1e-5", "cfl=0.5"):
        steps = 3 + (table(run)["step"][-1] if run.exists() else 0)
        assert simulate(config, run, f"time.{choice}", f"time.max_steps={steps:g}") == 0
        assert table(run)["step"][-1] == steps
        stored = contents(committed(run / "checkpoints")[-1])
        assert ("memory_rejected" in stored) == choice.startswith("error")
