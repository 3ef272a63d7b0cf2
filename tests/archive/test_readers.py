"""The programs that people open snapshots with, as they are installed; each is skipped where it is
not."""

import jax
import numpy as np
import pytest
from gravity_cases import MATTER, by_id, simulation
from numpy.testing import assert_allclose, assert_array_equal
from storage_support import XYZ, save

from simulator.archive.shard import Dataset
from simulator.archive.stored_state import particle_datasets, physical_axes
from simulator.config import dump_config
from simulator.physics.initial.vortices import AbcStartSettings, Waves, arnold_beltrami_childress
from simulator.physics.models import outputs
from simulator.spectral import Grid, make_transform

pytestmark = pytest.mark.slow
SHAPE = (8, 6, 4)


@pytest.fixture(scope="module")
def matter(tmp_path_factory):
    """Particles that are matter, as a run on two devices stores them, beside their density."""
    run = simulation(MATTER, devices=2)
    dark = run.state.particles["dark"]
    density = run.field_program("dark_density")(run.state)
    field = Dataset("dark_density", density, physical_axes(run.transform))
    records = [*particle_datasets(dark, run.populations["dark"]), field]
    return save(tmp_path_factory.mktemp("matter") / "snapshots", 10, records, {"time": 0.5}), by_id(
        dark
    )


@pytest.mark.filterwarnings("ignore")
def test_matter_in_openpmd_viewer(matter):
    viewer = pytest.importorskip("openpmd_viewer")
    folder, stored = matter
    series = viewer.OpenPMDTimeSeries(str(folder.parent), check_all_files=True, backend="h5py")
    assert series.avail_species == ["dark"]
    known = series.avail_record_components["dark"]
    assert {"x", "y", "z", "velocity/x", "mass", "id"} <= set(known), known
    x, mass, ids = series.get_particle(["x", "mass", "id"], species="dark", iteration=10)
    order = np.argsort(ids)
    assert_array_equal(x[order], stored["position"][0])
    assert_array_equal(mass[order], stored["mass"])


@pytest.mark.filterwarnings("ignore")
def test_matter_in_yt(matter):
    yt = pytest.importorskip("yt")
    yt.set_log_level("error")
    folder, stored = matter
    every = yt.load(f"{folder}.h5").all_data()
    order = np.argsort(np.asarray(every["io", "particle_id"]))
    for record in ("position", "velocity"):
        for i, axis in enumerate("xyz"):
            found = np.asarray(every["io", f"particle_{record}_{axis}"])
            assert_array_equal(found[order], stored[record][i])
    assert_array_equal(np.asarray(every["io", "particle_mass"])[order], stored["mass"])


COSMOLOGY = """\
model:
  kind: composite
  units: mpc_h_km_s_msun_h
  cosmology: {start: 0.1, hubble: 100, matter: 0.3}
  components: [{kind: particles, name: dark, count: 512}]
grid: {shape: [8, 8, 8], box: [64, 64, 64]}
initial: {kind: composite, components: {dark: {kind: cosmological, amplitude: 900, index: -1.5, order: 1}}}
time: {stop: {redshift: 5}, max_dt: 0.1}
output: {gadget: {h: 0.7}}
"""


@pytest.fixture(scope="module")
def dark_matter(tmp_path_factory):
    """A snapshot of a cosmological run, its GADGET file beside it, and its particles by id."""
    run = simulation(COSMOLOGY)
    dark = run.state.particles["dark"]
    density = run.field_program("dark_density")(run.state)
    specs = {"units": outputs.units_of(run.model, outputs.field_spec(run.model, "dark_density"))}
    field = Dataset("dark_density", density, physical_axes(run.transform), attributes=specs)
    records = [*particle_datasets(dark, run.populations["dark"]), field]
    attributes = {"time": 0.0, "box": [64.0] * 3, "configuration": dump_config(run.config)}
    return save(tmp_path_factory.mktemp("cosmology") / "snapshots", 10, records, attributes), by_id(
        dark
    )


def yt_of(folder):
    yt = pytest.importorskip("yt")
    yt.set_log_level("error")
    data = yt.load(str(folder.with_suffix(".hdf5")))
    every = data.all_data()
    kind = "PartType1"
    width = data.domain_width.to("Mpccm/h").d[0]
    z = data.current_redshift
    speed = every[kind, "particle_velocity_x"].to("km/s").d
    mass = every[kind, "particle_mass"].to("Msun").d
    return width, z, data.hubble_constant, data.omega_matter, speed, mass


def pynbody_of(folder):
    held = pytest.importorskip("pynbody").load(str(folder.with_suffix(".hdf5")))
    about = held.properties
    units = held.conversion_context()
    width = about["boxsize"].in_units("Mpc a h^-1", **units)
    speed = held.dm["vel"].in_units("km s^-1")[:, 0]
    mass = held.dm["mass"].in_units("Msol")
    return (
        width,
        1 / about["a"] - 1,
        about["h"],
        about["omegaM0"],
        np.asarray(speed),
        np.asarray(mass),
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("read", [yt_of, pynbody_of])
def test_box_redshift_and_masses_of_cosmological_particles(dark_matter, read):
    """The peculiar velocity is the supercomoving one over a; readers' solar masses differ by
    1e-5."""
    folder, stored = dark_matter
    width, z, h, matter, speed, mass = read(folder)
    assert_allclose([width, z, h, matter], [64, 9, 0.7, 0.3], rtol=1e-6)
    assert_allclose(mass, stored["mass"][0] / 0.7, rtol=3e-5)
    assert np.std(speed) == pytest.approx(np.std(stored["velocity"][0]) / 0.1, rel=1e-6)


@pytest.fixture(scope="module")
def abc(tmp_path_factory):
    """A snapshot of an ABC flow, whose helicity is A^2 + B^2 + C^2 = 3: curl u = u. Its mirror
    image has -3."""
    transform = make_transform(Grid((12, 16, 20)), jax.devices()[:2])
    waves = Waves(transform.layout, transform.dtype)
    velocity = arnold_beltrami_childress(waves, AbcStartSettings())
    u = Dataset("velocity", transform.inverse(velocity), physical_axes(transform), XYZ)
    return save(tmp_path_factory.mktemp("abc"), 0, [u], {"time": 0.25})


def helicity(u, points):
    """<u . curl u> of values (3, a, b, c) at points (3, a, b, c), the x, y, z of a reader, of a
    periodic lattice. Derivatives along the array's axes by FFT, to round-off; what these axes are
    in space say the points alone."""
    u = np.asarray(u, float)
    points = np.asarray(points, float)
    corner = points[:, 0, 0, 0]
    steps = (
        np.stack([points[:, 1, 0, 0], points[:, 0, 1, 0], points[:, 0, 0, 1]]) - corner
    )  # (axis, xyz)
    along = []
    for axis, n in enumerate(u.shape[1:], 1):
        shape = [-1 if i == axis else 1 for i in range(4)]
        k = (2j * np.pi * np.fft.fftfreq(n) * (np.arange(n) != n / 2)).reshape(shape)
        along.append(np.fft.ifft(k * np.fft.fft(u, axis=axis), axis=axis).real)
    d = np.einsum("ja,aiklm->jiklm", np.linalg.inv(steps), np.stack(along))  # du_i / dx_j
    curl = np.stack([d[1, 2] - d[2, 1], d[2, 0] - d[0, 2], d[0, 1] - d[1, 0]])
    return (u * curl).sum(0).mean()


def with_vtk(folder):
    hdf = pytest.importorskip("vtkmodules.vtkIOHDF")
    numpy = pytest.importorskip("vtkmodules.util.numpy_support").vtk_to_numpy
    reader = hdf.vtkHDFReader()
    reader.SetFileName(str(folder.with_suffix(".vtkhdf")))
    reader.Update()
    image = reader.GetOutputDataObject(0)
    assert numpy(image.GetFieldData().GetArray("TimeValue")) == [0.25]
    shape = image.GetDimensions()[::-1]
    points = np.array([image.GetPoint(i) for i in range(image.GetNumberOfPoints())])
    both = numpy(image.GetPointData().GetArray("velocity")), points
    return (np.moveaxis(values.reshape(*shape, 3), -1, 0) for values in both)


def with_yt(folder):
    yt = pytest.importorskip("yt")
    yt.set_log_level("error")
    data = yt.load(str(folder.with_suffix(".h5")))
    cube = data.covering_grid(0, data.domain_left_edge, data.domain_dimensions)
    return [cube["openPMD", f"velocity_{c}"] for c in "xyz"], [cube["index", c] for c in "xyz"]


def with_xarray(folder):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    with xarray.open_dataset(folder.with_suffix(".h5"), engine="h5netcdf") as data:
        assert data["time"] == 0.25
        u = [data[f"velocity_{c}"].load() for c in "xyz"]
        return u, [xarray.broadcast(data.coords[c], u[0])[0].transpose(*u[0].dims) for c in "xyz"]


def with_openpmd(folder):
    viewer = pytest.importorskip("openpmd_viewer")
    series = viewer.OpenPMDTimeSeries(str(folder.parent), check_all_files=True, backend="h5py")
    u, info = zip(*(series.get_field("velocity", coord=c, iteration=0) for c in "xyz"), strict=True)
    names = [info[0].axes[i] for i in range(3)]
    found = dict(
        zip(names, np.meshgrid(*(getattr(info[0], n) for n in names), indexing="ij"), strict=True)
    )
    return u, [found[c] for c in "xyz"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("read", [with_vtk, with_yt, with_xarray, with_openpmd])
def test_helicity_in_the_frame_of_the_reader(abc, read):
    u, points = read(abc)
    assert helicity(u, points) == pytest.approx(
        3.0, rel=1e-5
    )  # VTK's and yt's points may be single precision
