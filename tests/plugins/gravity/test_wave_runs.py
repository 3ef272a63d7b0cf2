"""Runs of waves: the files of their snapshots, and a warning."""

import h5py
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from run_support import simulate, write_case

from simulator import open_run

WAVE = """\
model: {kind: schrodinger_poisson, self_interaction: 0.5}
grid: {shape: [12, 10, 8], box: [6, 5, 4]}
initial: {kind: jeans_wave, amplitude: 0.3}
time: {stop: 0.4, cfl: 0.5, integrator: composition4}
devices: {platform: cpu, count: 2}
output: {diagnostics: {every_steps: 1}, spectra: {every: 0.1}, snapshots: {fields: [psi, density]}}
"""


def test_a_snapshot_of_waves_alone_holds_their_modulus(tmp_path):
    """VTK and yt have no complex numbers, and would find no field."""
    config = write_case(tmp_path, WAVE)
    short = ("time.stop=0.02", "output.snapshots.fields=[psi]")
    assert simulate(config, tmp_path / "run", *short) == 0
    snapshot = open_run(tmp_path / "run").snapshots[-1]
    assert set(snapshot.manifest.fields) == {"psi", "psi_modulus"}
    assert_allclose(snapshot["psi_modulus"], np.abs(snapshot["psi"]), rtol=1e-6)
    with h5py.File(snapshot.path.with_suffix(".vtkhdf"), locking=False) as file:
        assert_array_equal(file["VTKHDF/PointData/psi_modulus"], snapshot["psi_modulus"])


def test_an_under_resolved_wave_warns_once(tmp_path, capsys):
    config = write_case(tmp_path, WAVE)
    short = ("initial.mode=[5,4,3]", "time.stop=0.02")
    assert simulate(config, tmp_path / "run", *short) == 0
    printed = capsys.readouterr()
    assert (printed.out + printed.err).count("warning: the wave function is under-resolved") == 1
