"""GADGET's HDF5 files: starts of other codes, and snapshots for other codes."""

import h5py
import numpy as np
import pytest
from gravity_cases import by_id, folder, simulation
from numpy.testing import assert_allclose
from refusals import pairs
from run_support import simulate, write_case
from storage_support import save

from simulator.archive.series_recorder import measured_series
from simulator.archive.shard import Dataset
from simulator.archive.stored_state import particle_datasets, physical_axes
from simulator.cli import main
from simulator.config import dump_config
from simulator.errors import UserError
from simulator.plugins.cosmology.gadget_file import clock_of
from simulator.plugins.gravity.matter_observables import ExpandingMatter

RUN = """\
model:
  kind: composite
  units: UNITS
  cosmology: {start: 0.1, hubble: HUBBLE, matter: 0.3}
  components: [{kind: particles, name: dark, count: 512}]
grid: {shape: [8, 8, 8], box: [BOX, BOX, BOX]}
initial: {kind: composite, components: {dark: START}}
time: {stop: {redshift: 5}, max_dt: 0.1, cfl: 0.1}
output: {gadget: {GIVEN}}
"""
H = 0.7
KNOWN = {
    "mpc_h_km_s_msun_h": {"HUBBLE": "100", "BOX": "64.0", "GIVEN": f"h: {H}"},
    "kpc_km_s_msun": {"HUBBLE": "0.07", "BOX": str(64e3 / H), "GIVEN": ""},
}
SPRAY = "{kind: cosmological, amplitude: 900, index: -1.5, order: 1}"


def text_of(units: str, start: str) -> str:
    text = RUN.replace("UNITS", units).replace("START", start)
    for name, value in KNOWN[units].items():
        text = text.replace(name, value)
    return text


def run_of(units: str, start: str, *overrides: str, devices: int = 1):
    return simulation(text_of(units, start), *overrides, devices=devices)


@pytest.fixture(scope="module")
def written():
    """A snapshot by two devices in units of Mpc/h, and its particles by id."""
    run = run_of("mpc_h_km_s_msun_h", SPRAY, devices=2)
    dark = run.state.particles["dark"]
    density = Dataset(
        "dark_density", run.field_program("dark_density")(run.state), physical_axes(run.transform)
    )
    records = [*particle_datasets(dark, run.populations["dark"]), density]
    attributes = {"time": 0.0, "box": [64.0] * 3, "configuration": dump_config(run.config)}
    return save(folder() / "gadget" / "snapshots", 10, records, attributes), by_id(dark)


def as_music(source, target):
    """The file as three files of monofonIC: in Mpc/h and without units, in single precision, ids
    from 1, shuffled."""
    order = np.random.default_rng(1).permutation(512)
    with h5py.File(source) as snapshot:
        header = dict(snapshot["Header"].attrs)
        particles = {name: array[:] for name, array in snapshot["PartType1"].items()}
        header = {k: v for k, v in header.items() if not k.startswith("Unit")}
        for number, part in enumerate(np.split(order, [100, 350])):
            with h5py.File(f"{target}.{number}", "w") as file:
                counts = np.array([0, len(part), 0, 0, 0, 0], np.uint32)
                about = {
                    **header,
                    "BoxSize": 64.0,
                    "NumPart_ThisFile": counts,
                    "NumFilesPerSnapshot": 3,
                }
                file.create_group("Header").attrs.update(about)
                file["PartType1/Coordinates"] = (particles["Coordinates"][part] / 1e3).astype(
                    np.float32
                )
                file["PartType1/Velocities"] = particles["Velocities"][part].astype(np.float32)
                file["PartType1/ParticleIDs"] = (particles["ParticleIDs"][part] + 1).astype(
                    np.uint32
                )


@pytest.mark.parametrize(
    "kind, units, devices",
    [
        ("gadget", "mpc_h_km_s_msun_h", 1),
        ("gadget", "kpc_km_s_msun", 4),
        ("music", "mpc_h_km_s_msun_h", 4),
    ],
)
def test_a_file_is_read_on_any_devices_in_any_units(written, kind, units, devices):
    """Supercomoving velocities are a^1.5 those of the file; single precision is 6e-8 of the largest
    number."""
    snapshot, expected = written
    path = snapshot.with_suffix(".hdf5")
    if kind == "music":
        as_music(path, folder() / "ics.hdf5")
        path = folder() / "ics.hdf5.0"
    run = run_of(units, f"{{kind: {kind}, path: {path}}}", devices=devices)
    found = by_id(run.state.particles["dark"])
    per_h = 1.0 if units.startswith("mpc") else H
    scales = {"position": 1.0 if per_h == 1 else 1e3 / H, "velocity": 1.0, "mass": 1 / per_h}
    for name, scale in scales.items():
        tolerance = 1e-12 if kind == "gadget" else 1.2e-7
        wanted = expected[name] * scale
        assert_allclose(found[name], wanted, rtol=0, atol=tolerance * abs(wanted).max())
    with h5py.File(path) as file:
        u = file["PartType1/Velocities"][:][np.argsort(file["PartType1/ParticleIDs"][:])].T
        if kind == "gadget":
            assert_allclose(found["velocity"], 0.1**1.5 * u, rtol=1e-12)
    assert clock_of(run.config.model_dump(), 0.0).h == pytest.approx(H, rel=1e-12)


@pytest.mark.parametrize(
    "override, line",
    pairs("""
model.cosmology.start=0.12
    is at a = 0.1 (redshift 9); set model.background.start: 0.1
model.cosmology.matter=0.25
    has Omega0 = 0.3; set model.background.matter: 0.3
grid.box=32,32,32
    its box is 64 Mpc/h; set grid.box: [64.0, 64.0, 64.0]
model.components.0.count=8
    set the component's count: 512
initial.components.dark.type=2
    holds no particles of type 2; it holds types 1
initial.components.dark.share=0.8
    are 1 of the background's matter, not 0.8; set share
model.cosmology.curvature=0.1
    has OmegaLambda = 0.7; set model.background.curvature: 0
"""),
)
def test_a_header_that_contradicts_the_run_is_refused(written, override, line):
    start = f"{{kind: gadget, path: {written[0].with_suffix('.hdf5')}}}"
    with pytest.raises(UserError, match=r"initial: components.dark: .*hdf5: ") as refused:
        _ = run_of("mpc_h_km_s_msun_h", start, override).state
    assert line in str(refused.value)


def altered(written, path, header=None, **arrays):
    """A copy of the snapshot with these attributes of the header, of which None is removed, and
    these data sets."""
    path.write_bytes(written[0].with_suffix(".hdf5").read_bytes())
    with h5py.File(path, "a") as file:
        for name, value in (header or {}).items():
            for group in ("Header", "Parameters"):
                file[group].attrs.pop(name, None)
            if value is not None:
                file["Header"].attrs[name] = value
        for name, values in arrays.items():
            file["PartType1"].pop(name, None)
            file[f"PartType1/{name}"] = values
    return path


def records(path):
    run = run_of("mpc_h_km_s_msun_h", f"{{kind: gadget, path: {path}}}")
    return by_id(run.state.particles["dark"])


@pytest.mark.parametrize(
    "header",
    [
        {"BoxSize": np.full(3, 64e3)},
        {"NumPart_ThisFile": None},
        {"NumPart_ThisFile": None, "NumFilesPerSnapshot": None},
    ],
)
def test_headers_of_other_programs_are_read(written, tmp_path, header):
    found = records(altered(written, tmp_path / "other.hdf5", header))
    for name, values in written[1].items():
        assert_allclose(found[name], values, rtol=0, atol=1e-12 * abs(values).max())


def test_a_header_may_leave_out_the_masses_that_differ(written, tmp_path):
    masses = np.full(512, written[1]["mass"][0] / 1e10, np.float32)
    path = altered(written, tmp_path / "other.hdf5", {"MassTable": None}, Masses=masses)
    assert_allclose(records(path)["mass"], written[1]["mass"], rtol=1e-7)


def test_files_that_are_not_read_are_named(written, tmp_path):
    path = altered(written, tmp_path / "other.hdf5", {"BoxSize": np.array([64e3, 64e3, 32e3])})
    with pytest.raises(UserError, match=r"BoxSize in Header is .*; one number is needed"):
        records(path)
    with h5py.File(path, "a") as file:
        file.create_group("Units").attrs["Unit length in cgs (U_L)"] = 3.0857e24
    with pytest.raises(UserError, match=r"other.hdf5: is a file for SWIFT, with peculiar velocit"):
        records(path)
    for number, start in ((1, b"\0\1\0\0"), (1, b"\0\0\1\0"), (2, b"\x08\0\0\0")):
        path.write_bytes(start + bytes(300))
        with pytest.raises(UserError, match=f"is in GADGET's binary format {number}; HDF5"):
            records(path)


def test_conventions_that_numbers_betray_are_named(written, tmp_path):
    """Masses of 1/h times the background's are without h; a box of 64 kpc/h was one in Mpc/h."""
    with h5py.File(written[0].with_suffix(".hdf5")) as file:
        table = np.asarray(file["Header"].attrs["MassTable"]) / H
    with pytest.raises(UserError, match=r"are 1.42857 of the .*, not 1; this is h\^-1, as of mas"):
        records(altered(written, tmp_path / "mass.hdf5", {"MassTable": table}))
    path = altered(written, tmp_path / "box.hdf5", {"BoxSize": 64.0, "UnitLength_in_cm": None})
    with pytest.raises(UserError, match=r"its box is 0.064 Mpc/h; kind: music takes other units"):
        records(path)


def test_units_of_kpc_need_the_h_of_a_file(written, tmp_path):
    path = altered(written, tmp_path / "other.hdf5", {"HubbleParam": None})
    with pytest.raises(UserError, match="its header has no HubbleParam, which units of kpc need"):
        _ = run_of("kpc_km_s_msun", f"{{kind: gadget, path: {path}}}").state


def test_an_output_cannot_have_another_h_than_the_file_of_the_start(written):
    path = written[0].with_suffix(".hdf5")
    run = run_of("mpc_h_km_s_msun_h", f"{{kind: gadget, path: {path}}}", "output.gadget.h=0.68")
    with pytest.raises(UserError, match=r"output.gadget: h: 0.68 contradicts .*HubbleParam is 0.7"):
        measured_series(run)
    with pytest.raises(UserError, match=r"output.gadget.h: 0.68 contradicts initial.components"):
        run_of("mpc_h_km_s_msun_h", SPRAY.replace("kind:", "h: 0.7, kind:"), "output.gadget.h=0.68")


@pytest.mark.parametrize(
    "overrides, message",
    [
        (
            ["model.cosmology.start=0.12"],
            "is at a = 0.1, and the run starts at 0.12; set model.back",
        ),
        (["model.units=dimensionless"], "is in model.units: mpc_h_km_s_msun_h; set model.units"),
    ],
)
def test_a_snapshot_of_another_convention_is_refused(written, overrides, message):
    start = f"{{kind: snapshot, path: {written[0]}}}"
    assert_allclose(
        by_id(run_of("mpc_h_km_s_msun_h", start).state.particles["dark"])["mass"],
        written[1]["mass"],
    )
    with pytest.raises(UserError, match=message):
        _ = run_of("mpc_h_km_s_msun_h", start, "output.gadget=null", *overrides).state


def test_matter_that_is_not_that_of_the_background_is_noticed(written, tmp_path):
    """Its growth would not be that of the background: 3 H0^2 Omega_m / (8 pi G) is 0.3 x 2.7754e11;
    a file with peculiar velocities v in place of v / sqrt(a) has them too small by sqrt(0.1) (the
    potential of 8^3 points is 15 % low)."""
    path = altered(written, tmp_path / "peculiar.hdf5")
    with h5py.File(path, "a") as file:
        file["PartType1/Velocities"][...] *= 0.1**0.5
    other = "the mean density is 0.12 times that of the background's matter, 8.3"
    slow = "velocities are 0.34"
    for start, first in (
        (SPRAY, []),
        ("{kind: uniform, density: 1e10}", [other]),
        (f"{{kind: gadget, path: {path}}}", [slow]),
    ):
        run = run_of("mpc_h_km_s_msun_h", start)
        row = {name: float(x) for name, x in run.diagnostics(run.state).items()}
        lines = ExpandingMatter().warnings(run.model, row | {"time": 0.0}).values()
        assert [line[: len(begin)] for line, begin in zip(lines, first, strict=True)] == first


@pytest.mark.long
def test_a_run_goes_on_without_the_file_of_its_start(written, tmp_path):
    path = tmp_path / "start.hdf5"
    path.write_bytes(written[0].with_suffix(".hdf5").read_bytes())
    config = write_case(tmp_path, text_of("mpc_h_km_s_msun_h", f"{{kind: gadget, path: {path}}}"))
    steps = ("time={stop: 0.01, dt: 0.005}", "devices.count=1")
    assert simulate(config, tmp_path / "run", *steps) == 0
    path.rename(tmp_path / "elsewhere.hdf5")
    assert main(["resume", str(tmp_path / "run"), "time.stop=0.02"]) == 0


def test_files_say_that_they_are_comoving(written):
    with h5py.File(written[0].with_suffix(".hdf5")) as file:
        assert file["Parameters"].attrs["ComovingIntegrationOn"] == 1
        assert file["Parameters"].attrs["Hubble"] == 0.1


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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("read", [yt_of, pynbody_of])
def test_box_redshift_and_masses_in_other_programs(written, read):
    """The peculiar velocity is the supercomoving one over a; readers' solar masses differ by
    1e-5."""
    folder, stored = written
    width, z, h, matter, speed, mass = read(folder)
    assert_allclose([width, z, h, matter], [64, 9, 0.7, 0.3], rtol=1e-6)
    assert_allclose(mass, stored["mass"][0] / 0.7, rtol=3e-5)
    assert np.std(speed) == pytest.approx(np.std(stored["velocity"][0]) / 0.1, rel=1e-6)
