"""Gas and waves through the command line: rows, pictures' data, restart bit for bit, other layouts and processes,
stops."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from run_support import simulate, write_case

from simulator.archive.open_run import open_run

WAVE = """\
model: {kind: schrodinger_poisson, self_interaction: 0.5}
grid: {shape: [12, 10, 8], box: [6, 5, 4]}
initial: {kind: soliton, core_radius: 0.8}
time: {stop: 0.4, cfl: 0.5, integrator: composition4}
devices: {platform: cpu, count: 2}
output: {diagnostics: {every_steps: 1}, spectra: {every: 0.1}, snapshots: {fields: [psi, density]}}
"""


def test_restart_bit_for_bit_and_on_other_devices(tmp_path: Path) -> None:
    """A run that was interrupted after 3 steps ends as the one that was not; on 4 devices to 1e-12."""
    config = write_case(tmp_path, WAVE)
    assert simulate(config, tmp_path / "whole") == 0
    assert simulate(config, tmp_path / "same", "time.max_steps=3") == 0
    shutil.copytree(tmp_path / "same", tmp_path / "other")
    for name, count in (("same", 2), ("other", 4)):
        assert simulate(config, tmp_path / name, f"devices.count={count}") == 0
    whole, same, other = (open_run(tmp_path / n) for n in ("whole", "same", "other"))
    assert len(whole.diagnostics["step"]) > 5
    for column, values in whole.diagnostics.items():
        assert np.array_equal(same.diagnostics[column], values), column
    a, b, c = (np.asarray(r.snapshots[-1]["psi"][...]) for r in (whole, same, other))
    assert np.array_equal(a, b)
    assert np.abs(a - c).max() < 1e-12 * np.abs(a).max()
    assert np.asarray(whole.spectra["density_power"]).shape[0] >= 5
    assert "density/xy" in whole.slices.variables


def test_an_under_resolved_wave_warns_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_case(tmp_path, WAVE)
    assert simulate(config, tmp_path / "run", "initial.core_radius=0.3", "time.stop=0.02") == 0
    printed = capsys.readouterr()
    assert (printed.out + printed.err).count("warning: the wave function is under-resolved") == 1
