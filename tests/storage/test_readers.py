"""The programs that people open snapshots with, as they are installed; each is skipped where it is not."""

import numpy as np
import pytest
from storage_support import XYZ, grid, on_devices, random_field

from simulator.storage import Dataset, save

pytestmark = pytest.mark.slow
SHAPE = (8, 6, 4)
CONFIG = "model: {kind: navier_stokes}\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory, devices):
    """Two snapshots of a padded vector field, a real and a complex scalar."""
    parent = tmp_path_factory.mktemp("snapshots")
    velocity = random_field(3, *SHAPE)
    psi = random_field(*SHAPE, dtype=np.complex128)
    for step in (0, 10):
        datasets = [
            Dataset("velocity", on_devices(velocity + step, (4,), (None, None, 0, None)), grid(*SHAPE), XYZ),
            Dataset("pressure", on_devices(velocity[0] - step, (2, 2), (0, 1, None)), grid(*SHAPE)),
            Dataset("psi", psi, grid(*SHAPE)),
            Dataset("time", 0.5 * step),
        ]
        save(parent, step, datasets, {"time": 0.5 * step, "dt": 0.05, "config": CONFIG})
    return parent, velocity, psi


@pytest.mark.filterwarnings("ignore")
def test_xarray(run):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    parent, velocity, psi = run
    with xarray.open_dataset(parent / "00000010.h5", engine="h5netcdf") as data:
        assert data["velocity_y"].dims == ("x", "y", "z")
        np.testing.assert_array_equal(data["velocity_y"], velocity[1] + 10)
        np.testing.assert_array_equal(data["psi"], psi)
        np.testing.assert_allclose(data.coords["y"], np.arange(6) / 6)
        np.testing.assert_array_equal(data["pressure"].sel(y=0.5, method="nearest"), velocity[0][:, 3] - 10)
        assert data.attrs["config"] in (CONFIG, CONFIG.encode())


@pytest.mark.filterwarnings("ignore")
def test_yt(run):
    yt = pytest.importorskip("yt")
    yt.set_log_level("error")
    parent, velocity, _ = run
    data = yt.load(str(parent / "00000010.h5"))
    assert tuple(data.domain_dimensions) == SHAPE
    assert float(data.current_time) == 5.0
    assert ("openPMD", "velocity_x") in data.field_list and ("openPMD", "pressure") in data.field_list
    cube = data.covering_grid(0, data.domain_left_edge, data.domain_dimensions)
    for i, c in enumerate("xyz"):
        np.testing.assert_array_equal(np.asarray(cube["openPMD", f"velocity_{c}"]), velocity[i] + 10)


@pytest.mark.filterwarnings("ignore")
def test_openpmd_viewer(run):
    viewer = pytest.importorskip("openpmd_viewer")
    parent, velocity, _ = run
    series = viewer.OpenPMDTimeSeries(str(parent), check_all_files=True, backend="h5py")
    assert list(series.iterations) == [0, 10]
    np.testing.assert_allclose(series.t, [0, 5])
    assert {"velocity", "pressure"} <= set(series.avail_fields)
    field, info = series.get_field("velocity", coord="z", iteration=10)
    np.testing.assert_array_equal(field, velocity[2] + 10)
    assert list(info.axes.values()) == ["x", "y", "z"]
    pressure, _ = series.get_field("pressure", iteration=0)
    np.testing.assert_array_equal(pressure, velocity[0])


@pytest.mark.filterwarnings("ignore")
def test_netcdf4(run):
    netcdf = pytest.importorskip("netCDF4")
    parent, velocity, _ = run
    with netcdf.Dataset(parent / "00000010.h5") as data:
        np.testing.assert_array_equal(np.asarray(data["velocity_x"][:]), velocity[0] + 10)
