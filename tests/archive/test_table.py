"""diagnostics.csv: whole rows, exact numbers, cut where a checkpoint says."""

import resource
import signal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.archive.series import Table, read_table

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
    with Table(path, ["step", "energy"]) as table:
        for step, value in enumerate(values):
            table.append({"energy": np.float64(value), "step": np.int32(step)})
    read = read_table(path)
    np.testing.assert_array_equal(read["energy"], np.array(values, dtype=float))
    assert read["step"].dtype == np.int64 and list(read["step"]) == list(range(len(values)))


@pytest.mark.parametrize("columns", [(), ("time",), ("time", "step"), ("step", "energy", "energy")])
def test_the_first_column_is_the_step_and_none_is_there_twice(tmp_path, columns):
    with pytest.raises(ValueError, match="first column is step"):
        Table(tmp_path / "table.csv", columns)


def test_a_row_has_to_be_complete(tmp_path):
    table = filled(tmp_path / "diagnostics.csv")
    for row in ({"step": 9, "time": 1.0}, {"step": 9, "time": 1.0, "energy": 1.0, "enstrophy": 2.0}):
        with pytest.raises(ValueError, match=r"energy|enstrophy"):
            table.append(row)
    assert len(read_table(table.path)["step"]) == 5


def test_a_write_cut_at_any_byte_leaves_the_rows_before_it(tmp_path):
    path = tmp_path / "diagnostics.csv"
    filled(path).close()
    whole = path.read_bytes()
    last = whole.rfind(b"\n", 0, -1) + 1
    for cut in range(last, len(whole)):
        path.write_bytes(whole[:cut])
        assert list(read_table(path)["step"]) == [0, 1, 2, 3]
        with Table(path, ["step", "time", "energy"]) as table:
            table.append({"step": 4, "time": 4 * 0.1, "energy": 1.0 / 7})
        assert path.read_bytes() == whole


def test_truncation_keeps_the_rows_up_to_the_step_and_goes_on(tmp_path):
    table = filled(tmp_path / "diagnostics.csv")
    assert table.truncate(2) == 2 and table.truncate(2) == 0
    table.append({"step": 3, "time": 0.3, "energy": 9.0})
    table.close()
    assert list(read_table(table.path)["step"]) == [0, 1, 2, 3]
    assert read_table(table.path)["energy"][3] == 9.0


def test_other_columns_after_a_restart_fill_with_nan(tmp_path):
    path = tmp_path / "diagnostics.csv"
    filled(path, 2).close()
    with Table(path, ["step", "time", "helicity"]) as table:
        table.append({"step": 2, "time": 0.2, "helicity": 5.0})
    read = read_table(path)
    np.testing.assert_array_equal(read["helicity"], [np.nan, np.nan, 5.0])
    np.testing.assert_array_equal(read["energy"], [1 / 3, 1 / 4, np.nan])
    with Table(path, ["step", "time", "helicity"]) as table:
        table.append({"step": 3, "time": 0.3, "helicity": 6.0})
    np.testing.assert_array_equal(read_table(path)["helicity"], [np.nan, np.nan, 5.0, 6.0])


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
    assert list(read_table(table.path)["step"]) == [0, 1, 2, 3, 4, 5]
