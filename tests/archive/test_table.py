"""diagnostics.csv: whole rows, exact numbers, cut where a checkpoint says; and open_run: all of a
run by name."""

import resource
import signal
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from run_support import fresh
from storage_support import XYZ, grid, save

from simulator.archive.open_run import open_run
from simulator.archive.run_state import RunState, write_state
from simulator.archive.series_file import Series, Table, read_columns
from simulator.archive.shard import Dataset
from simulator.errors import RunFailure, UserError

pytestmark = pytest.mark.smoke


def filled(path, steps=5):
    table = Table(path, ["step", "time", "energy"])
    for step in range(steps):
        table.append({"step": step, "time": step * 0.1, "energy": 1.0 / (step + 3)})
    return table


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=5))
def test_numbers_come_back_bit_for_bit(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("table") / "diagnostics.csv"
    with closing(Table(path, ["step", "energy"])) as table:
        for step, value in enumerate(values):
            table.append({"energy": np.float64(value), "step": np.int32(step)})
    read = read_columns(path)
    assert_array_equal(read["energy"], np.array(values, dtype=float))
    assert read["step"].dtype == np.int64 and list(read["step"]) == list(range(len(values)))


@pytest.mark.parametrize("columns", [(), ("time",), ("time", "step"), ("step", "energy", "energy")])
def test_the_first_column_is_the_step_and_none_is_there_twice(tmp_path, columns):
    with pytest.raises(ValueError, match="first column is step"):
        Table(tmp_path / "table.csv", columns)


def test_a_row_has_to_be_complete(tmp_path):
    table = filled(tmp_path / "diagnostics.csv")
    for row in (
        {"step": 9, "time": 1.0},
        {"step": 9, "time": 1.0, "energy": 1.0, "enstrophy": 2.0},
    ):
        with pytest.raises(ValueError, match=r"energy|enstrophy"):
            table.append(row)
    assert len(read_columns(table.path)["step"]) == 5


def test_a_write_cut_at_any_byte_leaves_the_rows_before_it(tmp_path):
    path = tmp_path / "diagnostics.csv"
    filled(path).close()
    whole = path.read_bytes()
    last = whole.rfind(b"\n", 0, -1) + 1
    for cut in range(last, len(whole)):
        path.write_bytes(whole[:cut])
        assert list(read_columns(path)["step"]) == [0, 1, 2, 3]
        with closing(Table(path, ["step", "time", "energy"])) as table:
            table.append({"step": 4, "time": 4 * 0.1, "energy": 1.0 / 7})
        assert path.read_bytes() == whole


def test_truncation_keeps_the_rows_up_to_the_step_and_goes_on(tmp_path):
    table = filled(tmp_path / "diagnostics.csv")
    assert table.truncate(2) == 2 and table.truncate(2) == 0
    table.append({"step": 3, "time": 0.3, "energy": 9.0})
    table.close()
    assert list(read_columns(table.path)["step"]) == [0, 1, 2, 3]
    assert read_columns(table.path)["energy"][3] == 9.0


def test_other_columns_after_a_restart_fill_with_nan(tmp_path):
    path = tmp_path / "diagnostics.csv"
    filled(path, 2).close()
    with closing(Table(path, ["step", "time", "helicity"])) as table:
        table.append({"step": 2, "time": 0.2, "helicity": 5.0})
    read = read_columns(path)
    assert_array_equal(read["helicity"], [np.nan, np.nan, 5.0])
    assert_array_equal(read["energy"], [1 / 3, 1 / 4, np.nan])
    with closing(Table(path, ["step", "time", "helicity"])) as table:
        table.append({"step": 3, "time": 0.3, "helicity": 6.0})
    assert_array_equal(read_columns(path)["helicity"], [np.nan, np.nan, 5.0, 6.0])


def test_a_full_disk_leaves_no_partial_row(tmp_path):
    table = filled(tmp_path / "diagnostics.csv")
    size = table.path.stat().st_size
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5, limits[1]))
        with pytest.raises(OSError, match="too large"):
            table.append({"step": 5, "time": 0.5, "energy": 0.123456789})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert table.path.stat().st_size == size
    table.append({"step": 5, "time": 0.5, "energy": 0.1})
    assert list(read_columns(table.path)["step"]) == [0, 1, 2, 3, 4, 5]


K = np.arange(4.0)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.yaml").write_text(
        "grid: {shape: [8, 8, 8]}\nmodel: {kind: navier_stokes, viscosity: 1e-3}\n"
    )
    with closing(Table(tmp_path / "diagnostics.csv", ["step", "time", "energy"])) as table:
        table.append({"step": 0, "time": 0.0, "energy": 0.125})
    Series(tmp_path / "spectra.h5", {"k": K}, {"kinetic_energy": ("k",)}).extend(
        [(0, 0.0, {"kinetic_energy": K**2})]
    )
    return tmp_path


def test_what_a_run_has_written_by_name(folder):
    run = open_run(str(folder))
    assert run.config["grid"]["shape"] == [8, 8, 8] and run.config["model"]["viscosity"] == 1e-3
    assert run.diagnostics["energy"][0] == 0.125
    assert_array_equal(run.spectra["kinetic_energy"], [K**2])
    assert_array_equal(run.spectra.coordinates["k"], K)
    assert run.state is None and run.provenance == {} and "no step yet" in repr(run)
    write_state(folder, RunState("running", 3, 0.3, 1.0, 30.0, 5.0, 0.1))
    assert run.state.step == 3 and "running, step 3" in repr(run)


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
    assert_array_equal(run.snapshots[-1]["velocity"][1, :, 2], velocity[1, :, 2] + 10)
    assert [snapshot.step for snapshot in run.snapshots[:2]] == [0, 10]
    assert "  snapshots        2, steps 0, 10" in str(run)
    assert "velocity  (3, 4, 4, 4) float64" in str(run.snapshots[0])


def test_what_is_missing_is_said_in_a_line(folder):
    with pytest.raises(UserError, match=r"slices\.h5: not written"):
        open_run(folder).slices  # noqa: B018
    (folder / "slices.h5").write_bytes(b"no HDF5")
    with pytest.raises(RunFailure, match=r"slices\.h5: cannot be read"):
        open_run(folder).slices  # noqa: B018
    assert open_run(folder)._repr_html_()
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
