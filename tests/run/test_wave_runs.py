"""Runs whose waves are exact: continued, on two processes, with little memory, in single precision."""

import pytest
from run_support import assert_same_end, call, largest_difference, simulate, table, write_case

CASE = """\
model: {kind: mhd, viscosity: 0.02, resistivity: 0.05, ion_length: 0.1, rotation: [1, 0, 20]}
grid: {shape: [10, 12, 12]}
initial: {kind: random, peak: 2, energy: 0.5, seed: 1, magnetic: {energy: 0.5, mean_field: [0, 1, 3]}}
time: {stop: 1.0, cfl: 0.5, max_steps: 8, waves: exact}
devices: {platform: cpu, count: 2}
output: {diagnostics: {every_steps: 1}, snapshots: {every_steps: 4}}
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of eight steps."""
    folder = tmp_path_factory.mktemp("whole")
    assert simulate(write_case(folder, CASE), folder / "run") == 0
    return folder


@pytest.mark.long
def test_a_run_with_exact_waves_continues_bit_for_bit(whole, tmp_path):
    config = whole / "case.yaml"
    assert simulate(config, tmp_path / "run", "time.max_steps=3") == 0
    assert simulate(config, tmp_path / "run") == 0
    assert_same_end(tmp_path / "run", whole / "run")


@pytest.mark.long
def test_little_memory_changes_no_wave(whole, tmp_path):
    assert simulate(whole / "case.yaml", tmp_path / "run", "run.memory=low") == 0
    assert largest_difference(tmp_path / "run", whole / "run") < 1e-12


@pytest.mark.long
def test_single_precision_keeps_the_energy_of_waves(whole, tmp_path):
    """Eight steps of a few operations each: some ten units of round-off, 6e-8."""
    assert simulate(whole / "case.yaml", tmp_path / "run", "precision=single") == 0
    energy = [table(f / "run")["energy"][-1] for f in (tmp_path, whole)]
    assert energy[0] == pytest.approx(energy[1], rel=2e-6)


@pytest.mark.slow
def test_exact_waves_on_two_processes(whole, tmp_path):
    ended = call("run", whole / "case.yaml", "--output", tmp_path / "run", "--processes", "2")
    assert ended.returncode == 0, ended.stderr
    assert largest_difference(tmp_path / "run", whole / "run") < 1e-12
