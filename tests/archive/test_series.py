"""HDF5 series: always whole, bounded rewriting, cut where a checkpoint says."""

import signal
import subprocess
import sys
import tracemalloc

import h5py
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from run_support import ROOT

from simulator.archive.series_file import Series, SeriesReader
from simulator.errors import UserError
from simulator.files import replace_file

K = np.arange(5.0)
X = np.linspace(0, 1, 4)
Y = np.linspace(0, 2, 3)


def spectrum(step):
    return {"kinetic": np.sin(K + step), "magnetic": np.cos(K + step).astype(np.float32)}


def opened(path, **limits):
    return Series(
        path, {"k": K}, {"kinetic": ("k",), "magnetic": ("k",)}, {"name": "test"}, **limits
    )


def check(path, steps):
    reader = SeriesReader(path)
    assert list(reader.step) == list(steps)
    assert_array_equal(reader.time, [step * 0.1 for step in steps])
    for name in ("kinetic", "magnetic"):
        expected = np.array([spectrum(step)[name] for step in steps]).reshape(-1, len(K))
        assert_array_equal(reader[name], expected)
        with h5py.File(path, "r", locking=False) as file:  # what a user without this program sees
            assert_array_equal(file[name][:], expected)
            assert_array_equal(file["time"][:], reader.time)
            assert_array_equal(file["step"][:], reader.step)
            assert file[name].dims[1][0].name == "/k"


SMALL = {"full": (3, 0)}


@pytest.mark.parametrize("limits", [{}, SMALL], ids=["one file", "parts"])
@pytest.mark.parametrize("batches", [(2, 1, 8), (11,)])
def test_rows_that_come_together(tmp_path, limits, batches):
    """Parts that fill up within a batch are those of single rows, and truncation cuts them
    alike."""
    series = opened(tmp_path / "spectra.h5", **limits)
    step = 0
    for count in batches:
        steps = range(step, step := step + count)
        series.extend((n, n * 0.1, spectrum(n)) for n in steps)
        check(series.path, range(step))
    parts = sorted(path.name for path in tmp_path.glob("spectra.parts/*"))
    assert parts == (["00000000.h5", "00000003.h5", "00000006.h5", "00000009.h5"] if limits else [])
    again = opened(series.path, **limits)
    assert again.truncate(4) == 6
    again.extend((n, n * 0.1, spectrum(n)) for n in range(5, 9))
    check(series.path, range(9))


@pytest.mark.parametrize("limits", [{}, SMALL], ids=["one file", "parts"])
@pytest.mark.parametrize("rows", [1, 4, 6])
def test_truncation_to_any_step_then_reopening_and_going_on(tmp_path, limits, rows):
    for keep in range(-1, rows + 1):
        path = tmp_path / f"{keep}.h5"
        series = opened(path, **limits)
        for step in range(rows):
            series.extend([(step, step * 0.1, spectrum(step))])
        kept = min(keep + 1, rows)
        assert series.truncate(keep) == rows - kept
        check(path, range(kept))
        series = opened(path, **limits)
        for step in range(kept, rows + 2):
            series.extend([(step, step * 0.1, spectrum(step))])
        check(path, range(rows + 2))
        listed = {part.file for part in SeriesReader(path).parts if part.file}
        assert {part.name for part in tmp_path.glob(f"{keep}.parts/*")} == listed


def test_bytes_written_grow_with_the_length_not_with_its_square(tmp_path, monkeypatch):
    written = []

    def counting(path, data, journal):
        written.append(len(data))
        replace_file(path, data)

    monkeypatch.setattr("simulator.archive.series_file.replace_file", counting)
    plane = np.zeros((64, 64))
    axis = np.arange(64.0)
    axes = {"x": axis, "y": axis}
    datasets = {"speed/xy": ("x", "y")}
    series = Series(tmp_path / "slices.h5", axes, datasets, full=(8, 0))
    for step in range(64):
        series.extend([(step, float(step), {"speed/xy": plane})])
    half = len(written) // 2
    # A full part of 8 rows is written for its last row: the mean is 4.5 rows a row, and an index.
    assert sum(written) < 64 * (4.5 * plane.nbytes + 40_000)
    assert sum(written[half:]) < 1.5 * sum(written[:half])


def test_planes_with_axes_of_their_own(tmp_path):
    series = Series(
        tmp_path / "slices.h5",
        {"x": X, "y": Y},
        {"speed/xy": ("x", "y"), "mean": ()},
        {"z_of_xy": 0.5},
    )
    planes = [np.full((4, 3), float(step)) for step in range(3)]
    for step, plane in enumerate(planes):
        series.extend([(step, 0.1 * step, {"speed/xy": plane, "mean": np.float64(step)})])
    reader = SeriesReader(series.path)
    assert_array_equal(reader["speed/xy"], planes)
    assert_array_equal(reader.at(-1)["speed/xy"], planes[2])
    assert_array_equal(reader.coordinates["y"], Y)
    assert reader.attributes["z_of_xy"] == 0.5 and reader["mean"].shape == (3,)
    with pytest.raises(KeyError, match="speed/xy"):
        reader["speed/xz"]
    with pytest.raises(IndexError):
        reader.at(3)


@pytest.mark.parametrize("limits", [{}, SMALL], ids=["one file", "parts"])
def test_another_choice_of_variables_after_a_restart(tmp_path, limits):
    path = tmp_path / "spectra.h5"
    series = opened(path, **limits)
    for step in range(4):
        series.extend([(step, step * 0.1, spectrum(step))])
    series = Series(path, {"k": K}, {"kinetic": ("k",), "scalar": ("k",)}, **limits)
    for step in range(4, 8):
        series.extend([(step, step * 0.1, {"kinetic": K, "scalar": K})])
    reader = SeriesReader(path)
    assert reader["kinetic"].shape == reader["magnetic"].shape == reader["scalar"].shape == (8, 5)
    assert np.isnan(reader["scalar"][:4]).all() and np.isnan(reader["magnetic"][4:]).all()
    assert_array_equal(reader["magnetic"][:4], [spectrum(step)["magnetic"] for step in range(4)])
    assert_array_equal(reader["scalar"][4:], [K] * 4)


def test_wrong_rows_and_another_grid_are_refused(tmp_path):
    series = opened(tmp_path / "spectra.h5")
    with pytest.raises(ValueError, match="magnetic"):
        series.extend([(0, 0.0, {"kinetic": K})])
    with pytest.raises(ValueError, match=r"another shape: .*kinetic"):
        series.extend([(0, 0.0, {"kinetic": K[1:], "magnetic": K})])
    assert not series.path.exists()
    series.extend([(0, 0.0, spectrum(0))])
    with pytest.raises(UserError, match="k has changed since this file was begun"):
        Series(series.path, {"k": K + 1}, {"kinetic": ("k",)})


def test_a_foreign_or_missing_file_or_part_is_an_os_error(tmp_path):
    with pytest.raises(OSError, match=r"none\.h5"):
        SeriesReader(tmp_path / "none.h5")
    with h5py.File(tmp_path / "other.h5", "w"):
        pass
    with pytest.raises(OSError, match="not a series"):
        SeriesReader(tmp_path / "other.h5")
    series = opened(tmp_path / "spectra.h5", **SMALL)
    series.extend((step, step * 0.1, spectrum(step)) for step in range(8))
    (tmp_path / "spectra.parts" / "00000003.h5").unlink()
    with pytest.raises(OSError, match="00000003"):
        SeriesReader(series.path)


def test_readers_of_a_series_that_is_killed_while_writing_see_whole_rows(tmp_path):
    path = tmp_path / "spectra.h5"
    writer = f"""
import time
import numpy as np
from pathlib import Path
from simulator.archive.series_file import Series
k = np.arange(5.0)
variables = {{"kinetic": ("k",), "magnetic": ("k",)}}
series = Series(Path({str(path)!r}), {{"k": k}}, variables, full=(3, 0))
for step in range(60):
    values = {{"kinetic": np.sin(k + step), "magnetic": np.cos(k + step).astype(np.float32)}}
    series.extend([(step, step * 0.1, values)])
    if step == 4:
        print("ready", flush=True)
time.sleep(60)
"""
    for killed_after in (1, 6):
        process = subprocess.Popen([sys.executable, "-c", writer], stdout=subprocess.PIPE, cwd=ROOT)
        with process:
            process.stdout.readline()
            for _ in range(killed_after):
                reader = SeriesReader(path)
                assert list(reader.step) == list(range(len(reader)))
                assert_array_equal(reader["kinetic"], np.sin(K + reader.step[:, None]))
            process.send_signal(signal.SIGKILL)
            process.wait()
        rows = len(SeriesReader(path))
        check(path, range(rows))
        series = opened(path, **SMALL)
        assert series.truncate(2) == rows - 3
        check(path, range(3))
        path.unlink()


def test_what_describes_a_coordinate_is_stored_once_and_kept(tmp_path):
    """Counts and means of shells: in every part, scaled by the coordinate; of a file that has them
    its own."""
    path = tmp_path / "spectra.h5"
    modes = np.array([1.0, 18, 62, 98, 210])
    for step, beside in enumerate([modes, modes, modes * (1 + 1e-12), modes]):
        series = Series(path, {"k": K}, {"kinetic": ("k",)}, {}, {"modes": ("k", beside)}, **SMALL)
        for number in range(4 * step, 4 * step + 4):
            series.extend([(number, 0.1 * number, {"kinetic": np.sin(K + number)})])
    reader = SeriesReader(path)
    assert reader.beside == {"modes": "k"} and set(reader.variables) == {"kinetic"}
    assert_array_equal(reader.coordinates["modes"], modes)
    files = [path, *sorted(tmp_path.glob("spectra.parts/*"))]
    assert len(files) == 7
    for name in files:
        with h5py.File(name, "r", locking=False) as file:
            assert_array_equal(file["modes"][:], modes)
            assert file["modes"].dims[0][0].name == "/k"


def test_rows_that_wait_for_their_part_take_the_memory_of_their_values(tmp_path):
    """20 variables of 4 numbers: 656 bytes a row, in which objects for each row would take 5 kB."""
    names = [f"v{i}" for i in range(20)]
    series = Series(tmp_path / "a.h5", {"k": np.arange(4.0)}, dict.fromkeys(names, ("k",)))

    def extended(first, count=1000):
        rows = ((n, 0.1 * n, {name: np.full(4, n) for name in names}) for n in range(first, count))
        series.extend(rows)
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = extended(0, 1000)
        assert extended(1000, 3000) - before < 2000 * 2 * 656
    finally:
        tracemalloc.stop()
    assert_array_equal(SeriesReader(tmp_path / "a.h5")["v7"][:, 3], np.arange(3000))
