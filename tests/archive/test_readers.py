"""The programs that people open snapshots with, as they are installed; each is skipped where it is
not."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from storage_support import save

from simulator.archive.manifest import Axis
from simulator.archive.shard import Dataset
from simulator.archive.snapshot_index import write_time_index
from simulator.archive.snapshot_writer import Options

pytestmark = pytest.mark.slow


BOX = {"x": 1.0, "y": 2.0, "z": 3.0}
GRIDS = [(8, 6, 4), (1, 6, 4), (8, 1, 4), (8, 6, 1), (8, 1, 1), (8, 6), (8,)]


def axes_of(shape):
    lengths = zip(BOX.items(), shape, strict=False)
    return tuple(Axis.uniform(name, n, length / n) for (name, length), n in lengths)


@pytest.fixture(params=GRIDS, ids=str)
def grid_of(request):
    return axes_of(request.param)


@pytest.fixture(params=[False, True], ids=["double", "single"])
def wave(request, grid_of, tmp_path):
    """A snapshot with a vector and a scalar of which no two points or components are alike."""
    axes = {axis.name: axis.coordinates for axis in grid_of}
    points = dict(zip(axes, np.meshgrid(*axes.values(), indexing="ij"), strict=True))
    u = np.array([expected(points, i) for i in range(max(len(axes), 2))])
    datasets = [
        Dataset("velocity", u, grid_of, (("x", "y", "z")[: len(u)],)),
        Dataset("density", u[0], grid_of),
        Dataset("psi", u[0] + 1j * u[1], grid_of),
    ]
    attributes = {"time": 0.25, "box": [BOX[axis] for axis in axes]}
    for step in (1, 0):
        folder = save(
            tmp_path / "snapshots", step, datasets, attributes, Options(single=request.param)
        )
    return folder


def expected(points, component):
    """The values of a component at points, the coordinates by axis."""
    phases = (2 * np.pi * i * points[axis] / BOX[axis] for i, axis in enumerate(points, 1))
    return np.sin(sum(phases) + component)


def in_vtk(path):
    hdf = pytest.importorskip("vtkmodules.vtkIOHDF")
    numpy = pytest.importorskip("vtkmodules.util.numpy_support").vtk_to_numpy
    reader = hdf.vtkHDFReader()
    reader.SetFileName(str(path))
    reader.Update()
    image = reader.GetOutputDataObject(0)
    points = np.array([image.GetPoint(i) for i in range(image.GetNumberOfPoints())])
    data = image.GetPointData()
    assert sorted(data.GetArrayName(i) for i in range(data.GetNumberOfArrays())) == [
        "density",
        "velocity",
    ]
    u, density = (numpy(data.GetArray(name)) for name in ("velocity", "density"))
    assert_array_equal(density, u[:, 0])
    return list(u.T), dict(zip("xyz", points.T, strict=True))


def with_vtk(folder):
    return in_vtk(folder.with_suffix(".vtkhdf"))


def with_vtk_in_time(folder):
    return in_vtk(write_time_index(folder.parent))


def with_yt(folder):
    yt = pytest.importorskip("yt")
    yt.set_log_level("error")
    data = yt.load(str(folder.with_suffix(".h5")))
    cube = data.covering_grid(0, data.domain_left_edge, data.domain_dimensions)
    u = [np.asarray(cube[name]) for name in data.field_list if "velocity" in name[1]]
    centres = {axis: np.asarray(cube["index", axis]) for axis in "xyz"}
    # yt takes a value as that of a cell, whose lower corner is the point.
    return u, {axis: centre - centre.min() for axis, centre in centres.items()}


def with_xarray(folder):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    with xarray.open_dataset(folder.with_suffix(".h5"), engine="h5netcdf") as data:
        assert data["time"] == 0.25
        u = [data[name].load() for name in sorted(data) if name.startswith("velocity")]
        points = xarray.broadcast(*(data.coords[axis] for axis in u[0].dims))
        return [np.asarray(c) for c in u], dict(
            zip(u[0].dims, map(np.asarray, points), strict=True)
        )


def with_openpmd(folder):
    viewer = pytest.importorskip("openpmd_viewer")
    series = viewer.OpenPMDTimeSeries(str(folder.parent), check_all_files=True, backend="h5py")
    names = series.fields_metadata["velocity"]["avail_components"]
    u, info = zip(*(series.get_field("velocity", c, iteration=0) for c in names), strict=True)
    axes = [info[0].axes[i] for i in range(u[0].ndim)]
    points = np.meshgrid(*(getattr(info[0], axis) for axis in axes), indexing="ij")
    return u, dict(zip(axes, points, strict=True))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("read", [with_vtk, with_vtk_in_time, with_yt, with_xarray, with_openpmd])
def test_a_reader_finds_every_value_at_its_point_on_every_kind_of_grid(wave, grid_of, read):
    """Points and values may be single precision; in VTK vectors have three components."""
    u, points = read(wave)
    stored = max(len(grid_of), 2)
    assert len(u) == (3 if "vtk" in read.__name__ else stored)
    assert u[0].size == np.prod([axis.size for axis in grid_of])
    along = {axis.name: points[axis.name] for axis in grid_of}
    for i, component in enumerate(u):
        at_points = expected(along, i) if i < stored else 0 * component
        assert_allclose(component, at_points, atol=1e-5, err_msg=f"component {i}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("numbers", [(7,), (7, 7), (7, 3, 3, 0)], ids=str)
@pytest.mark.parametrize("shape", [(8, 6, 4), (8, 6)], ids=str)
def test_yt_and_openpmd_viewer_find_the_particles_of_every_species(tmp_path, numbers, shape):
    """Their places, velocities and masses; and the particles add no cells to the mesh."""
    yt = pytest.importorskip("yt")
    viewer = pytest.importorskip("openpmd_viewer")
    yt.set_log_level("error")
    axes = axes_of(shape)
    xyz = "xyz"[: len(shape)]
    random = np.random.default_rng(1)
    stored = {f"dust{i}": random.random((2, len(shape), n)) for i, n in enumerate(numbers)}
    records = [Dataset("density", np.ones(shape), axes)]
    for name, vectors in stored.items():
        n = vectors.shape[2]
        entries = {
            "axes": (Axis(name=f"{name}.particle", size=n),),
            "species": name,
            "shares": (n,),
        }
        for record, values in zip(("position", "velocity"), vectors, strict=True):
            records.append(Dataset(f"{name}.{record}", values, components=(tuple(xyz),), **entries))
        records.append(Dataset(f"{name}.mass", np.arange(n) / n, **entries))
        records.append(Dataset(f"{name}.id", np.arange(n), **entries))
    folder = save(tmp_path / "snapshots", 10, records)
    every = yt.load(f"{folder}.h5").all_data()
    series = viewer.OpenPMDTimeSeries(str(folder.parent), backend="h5py")
    assert every["openPMD", "density"].size == np.prod(shape)
    for name, (position, velocity) in stored.items():
        kind = name if len(numbers) > 1 else "io"
        order = np.argsort(np.asarray(every[kind, "particle_id"]))
        n = len(order)
        expected = {("mass", "mass"): np.arange(n) / n}
        for i, axis in enumerate(xyz):
            expected[f"position_{axis}", axis] = position[i]
            expected[f"velocity_{axis}", f"velocity/{axis}"] = velocity[i]
        for (in_yt, in_viewer), values in expected.items():
            assert_array_equal(np.asarray(every[kind, f"particle_{in_yt}"])[order], values)
            found = series.get_particle([in_viewer], species=name, iteration=10)
            assert_array_equal(*found, values)
