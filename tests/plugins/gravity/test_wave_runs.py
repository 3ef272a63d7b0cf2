"""Runs of waves: the files of their snapshots, and whether the grid resolves them."""

import h5py
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from run_support import simulate, write_case

from simulator import open_run
from simulator.cli import main

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


EXPANDING = """\
model:
  kind: schrodinger_poisson
  units: mpc_h_km_s_msun_h
  boson_mass: 1
  h: 0.68
  background: {start: 0.01, hubble: 100, matter: 0.3}
grid: {shape: [16, 16, 16], box: [1, 1, 1]}
initial: {kind: cosmological, transfer: eisenstein_hu, boson_mass: 1, h: 0.68, seed: 3}
time: {stop: {redshift: 5}, cfl: 0.5, max_dt: 0.01}
devices: {platform: cpu, count: 1}
output: {diagnostics: {every_steps: 1}}
"""


@pytest.mark.plugins("cosmology", "pictures")
def test_waves_that_become_noise_are_foretold_warned_of_and_marked(tmp_path, capsys):
    """A box that is too large, and the one that `check` names: there nothing warns."""
    from simulator.plugins.pictures.health import checks

    config = write_case(tmp_path, EXPANDING)
    assert main(["check", str(config)]) == 0
    foretold = capsys.readouterr()
    assert "warning: the grid carries velocities up to" in foretold.err
    assert "warning" not in foretold.out
    small = foretold.err.partition("grid.box: ")[2].partition(" resolves")[0]
    assert main(["check", str(config), f"grid.box={small}"]) == 0
    assert "warning" not in (said := capsys.readouterr().err) and "pi hbar / (m dx)" in said
    assert simulate(config, tmp_path / "run") == 0
    log = (tmp_path / "run" / "run.log").read_text()
    foretold = foretold.err.rstrip("\n")
    assert log.count(foretold) == 1
    run = open_run(tmp_path / "run")
    found = checks(run, run.state)
    assert foretold in {f"warning: {check.meaning}" for check in found}
    assert 3 <= log.count("warning: the wave function is under-resolved") <= 9
    (marked,) = (check for check in found if "edge_mass" in check.name)
    kept = [c for c in found if "conservation" in c.name]
    assert [(c.name, c.verdict) for c in kept] == [("conservation (mass)", "good")]
    edge = open_run(tmp_path / "run").diagnostics["edge_mass"]
    assert marked.verdict == "bad" and f"{100 * edge.max():.3g}%" in marked.value
    assert simulate(config, tmp_path / "small", f"grid.box={small}") == 0
    assert "under-resolved" not in (tmp_path / "small" / "run.log").read_text()
