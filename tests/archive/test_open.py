"""open_run: everything that a run has written, by name."""

import numpy as np
import pytest
from run_support import fresh
from storage_support import XYZ, grid, save

from simulator.archive.open_run import open_run
from simulator.archive.series import Series, Table
from simulator.archive.shard import Dataset
from simulator.archive.state import RunState, write_state
from simulator.errors import UserError

pytestmark = pytest.mark.smoke

K = np.arange(4.0)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.yaml").write_text("grid: {shape: [8, 8, 8]}\nmodel: {kind: navier_stokes, viscosity: 1e-3}\n")
    with Table(tmp_path / "diagnostics.csv", ["step", "time", "energy"]) as table:
        table.append({"step": 0, "time": 0.0, "energy": 0.125})
    Series(tmp_path / "spectra.h5", {"k": K}, {"kinetic_energy": ("k",)}).append(0, 0.0, {"kinetic_energy": K**2})
    return tmp_path


def test_what_a_run_has_written_by_name(folder):
    run = open_run(str(folder))
    assert run.config["grid"]["shape"] == [8, 8, 8] and run.config["model"]["viscosity"] == 1e-3
    assert run.diagnostics["energy"][0] == 0.125
    np.testing.assert_array_equal(run.spectra["kinetic_energy"], [K**2])
    np.testing.assert_array_equal(run.spectra.coordinates["k"], K)
    assert run.state is None and run.provenance == {} and "not started" in repr(run)
    write_state(folder, RunState("running", 3, 0.3, 1.0, 30.0, 5.0, 0.1))
    assert run.state is not None and run.state.step == 3 and "running, step 3" in repr(run)


def test_snapshots_are_read_lazily_and_grow_with_the_run(folder):
    run = open_run(folder)
    assert len(run.snapshots) == 0
    with pytest.raises(IndexError):
        run.snapshots[-1]
    velocity = np.arange(3 * 64, dtype=np.float64).reshape(3, 4, 4, 4)
    for step in (0, 10):
        dataset = Dataset("velocity", velocity + step, grid(4, 4, 4), XYZ)
        save(folder / "snapshots", step, [dataset], {"time": 0.1 * step})
    assert run.snapshots.steps == (0, 10) and repr(run.snapshots) == "<2 snapshots, steps [0, 10]>"
    np.testing.assert_array_equal(run.snapshots[-1]["velocity"][1, :, 2], velocity[1, :, 2] + 10)
    assert [snapshot.step for snapshot in run.snapshots[:2]] == [0, 10]
    assert "  snapshots        2, steps 0, 10" in str(run)
    assert "velocity  (3, 4, 4, 4) float64" in str(run.snapshots[0])


def test_what_is_missing_is_said_in_a_line(folder):
    with pytest.raises(UserError, match=r"slices\.h5: not written"):
        open_run(folder).slices  # noqa: B018
    (folder / "slices.h5").write_bytes(b"no HDF5")
    with pytest.raises(UserError, match=r"slices\.h5"):
        open_run(folder).slices  # noqa: B018
    with pytest.raises(UserError, match="no such folder"):
        open_run(folder / "absent")
    (folder / "config.yaml").unlink()
    with pytest.raises(UserError, match="not a run"):
        open_run(folder)


def test_reading_a_run_needs_no_jax(folder):
    done = fresh(f"""
        import sys
        from simulator.archive.open_run import open_run
        run = open_run({str(folder)!r})
        run.config, run.diagnostics, run.spectra, run.state, run.provenance
        assert "jax" not in sys.modules
    """)
    assert done.returncode == 0, done.stderr
