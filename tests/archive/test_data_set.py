"""All snapshots of a run as one data set: xarray, and the index for ParaView."""

import json
import sys

import h5py
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from storage_support import XYZ, on_devices, save

from simulator.archive.manifest import Axis, remove
from simulator.archive.open_run import data_set, open_run
from simulator.archive.series_file import Series
from simulator.archive.shard import Dataset
from simulator.archive.snapshot_index import write_time_index
from simulator.archive.snapshot_reader import StoredField
from simulator.errors import UserError

pytestmark = pytest.mark.filterwarnings("ignore")
SHAPE = (4, 5, 6)
AXES = tuple(Axis.uniform(n, size, 0.5) for n, size in zip("xyz", SHAPE, strict=True))
STEPS = (0, 7, 20)


@pytest.fixture
def folder(tmp_path):
    """Three snapshots; velocity in uneven blocks of y (3 and 2 planes), as two devices write five
    planes."""
    (tmp_path / "config.yaml").write_text("model: {kind: navier_stokes}\n")
    for step, u in zip(STEPS, velocities(), strict=True):
        parts = on_devices(u, (2,), (None, None, 0, None))
        datasets = [
            Dataset("velocity", parts, AXES, XYZ, attributes={"units": "length/time"}),
            Dataset("pressure", u[0] ** 2, AXES),
            Dataset("psi", u[1] + 1j * u[2], AXES),
            Dataset("count", np.array(3)),
        ]
        save(tmp_path / "snapshots", step, datasets, {"time": step / 10, "box": [2.0, 2.5, 3.0]})
    return tmp_path


def velocities():
    rng = np.random.default_rng(5)
    return rng.standard_normal((3, 3, *SHAPE))


def check(data):
    assert_array_equal(data["velocity"], velocities())
    assert_array_equal(data["pressure"], velocities()[:, 0] ** 2)
    assert_array_equal(data["psi"], velocities()[:, 1] + 1j * velocities()[:, 2])
    assert data["velocity"].dims == ("time", "component", "x", "y", "z")
    assert_array_equal(data["time"], np.array(STEPS) / 10)
    assert_array_equal(data["step"], STEPS)
    assert_array_equal(data["y"], 0.5 * np.arange(5))
    assert data["velocity"].attrs["units"] in ("length/time", b"length/time")


def test_a_run_is_one_lazy_data_set(folder, monkeypatch):
    pytest.importorskip("xarray")
    pytest.importorskip("dask")
    read = []
    get = StoredField.__getitem__
    monkeypatch.setattr(
        StoredField, "__getitem__", lambda s, index: (read.append(s.name), get(s, index))[1]
    )
    data = open_run(folder).to_xarray()
    assert not read  # nothing yet
    data["pressure"].isel(time=1, y=4).load()
    assert read == ["pressure"]  # one snapshot's
    check(data)
    assert list(data["component"].values) == ["x", "y", "z"] and "count" not in data
    assert json.loads(data.attrs["box"]) == [2.0, 2.5, 3.0] and not {"time", "step"} & set(
        data.attrs
    )


def test_a_chunk_is_a_component_of_the_block_of_a_shard(folder, monkeypatch):
    pytest.importorskip("dask")
    x, _, z = SHAPE
    data = open_run(folder).to_xarray()
    assert data["velocity"].chunks == ((1,) * 3, (1,) * 3, (x,), (3, 2), (z,))
    assert data["pressure"].chunks == ((1,) * 3, (x,), (5,), (z,))  # written by one process
    monkeypatch.setattr("simulator.archive.open_run.CHUNK_BYTES", 2 * 3 * z * 8)
    divided = open_run(folder).to_xarray()
    assert divided["velocity"].chunks[2] == tuple(min(2, x - i) for i in range(0, x, 2))
    check(divided)


def test_a_field_that_a_snapshot_lacks_is_nan_there(folder):
    pytest.importorskip("dask")
    save(
        folder / "snapshots",
        30,
        [Dataset("pressure", np.ones(SHAPE, np.float32), AXES)],
        {"time": 3.0},
    )
    data = open_run(folder).to_xarray()
    assert np.isnan(data["velocity"][-1]).all() and not np.isnan(data["velocity"][:-1]).any()
    assert data["pressure"].dtype == np.float64 and (data["pressure"][-1] == 1).all()


def test_the_index_of_all_snapshots_in_xarray(folder):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    path = write_time_index(folder / "snapshots")
    with xarray.open_dataset(path, engine="h5netcdf") as data:
        check(data)


@pytest.mark.parametrize("count", [3, 1])
def test_the_index_in_vtk_as_in_paraview(folder, count):
    hdf = pytest.importorskip("vtkmodules.vtkIOHDF")
    numpy = pytest.importorskip("vtkmodules.util.numpy_support").vtk_to_numpy
    for step in STEPS[count:]:
        remove(folder / "snapshots" / f"{step:08d}")
    reader = hdf.vtkHDFReader()
    reader.SetFileName(str(write_time_index(folder / "snapshots")))
    reader.UpdateInformation()
    assert reader.GetNumberOfSteps() == count
    for number, u in enumerate(velocities()[:count]):
        reader.SetStep(number)
        reader.Update()
        image = reader.GetOutputDataObject(0)
        assert reader.GetTimeValue() == STEPS[number] / 10
        found = numpy(image.GetPointData().GetArray("velocity")).reshape(*SHAPE, 3)
        assert_array_equal(np.moveaxis(found, -1, 0), u)
        assert image.GetPoint(1) == pytest.approx(
            (0, 0, 0.5)
        )  # the fastest axis of the array is the run's z


def test_the_index_follows_what_is_committed_and_removed(folder):
    path = write_time_index(folder / "snapshots")
    before = path.stat().st_mtime_ns
    remove(folder / "snapshots" / "00000020")
    write_time_index(folder / "snapshots")
    with h5py.File(path) as file:
        assert list(file["step"]) == [0, 7] and file["VTKHDF/Steps"].attrs["NSteps"] == 2
    assert path.stat().st_mtime_ns > before
    for step in (0, 7):
        remove(folder / "snapshots" / f"{step:08d}")
    assert write_time_index(folder / "snapshots") is None and not path.exists()
    pytest.importorskip("dask")
    with pytest.raises(UserError, match="no snapshot yet"):
        open_run(folder).to_xarray()


def test_series_open_as_they_are(tmp_path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    k = np.arange(4.0)
    variables = {"kinetic_energy": ("k",), "flux/kinetic_energy": ("k",), "total": ()}
    series = Series(
        tmp_path / "s.h5", {"k": k}, variables, beside={"modes": ("k", k**2)}, full=(1, 1)
    )
    for step in range(3):  # in several parts, which the index shows together
        series.extend(
            [
                (
                    step,
                    step / 4,
                    {"kinetic_energy": k + step, "flux/kinetic_energy": -k, "total": np.array(7.0)},
                )
            ]
        )
    with xarray.open_dataset(tmp_path / "s.h5", engine="h5netcdf") as data:
        assert data["kinetic_energy"].dims == ("time", "k") and data["total"].dims == ("time",)
        assert_array_equal(data["kinetic_energy"].sel(time=0.5), k + 2)
        assert {"time", "step", "k", "modes"} == set(data.coords)
    with xarray.open_datatree(tmp_path / "s.h5", engine="h5netcdf") as tree:
        assert_array_equal(tree["flux"]["kinetic_energy"].sel(time=0.25, k=3.0), -3.0)


def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(UserError, match=r"needs the package dask.*simulator\[readers\]"):
        data_set(tmp_path, [])
