"""What is derived from a snapshot, and what of it is named where it was damaged."""

import errno
import os
import shutil
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from storage_support import XYZ, grid, on_devices, random_field, save, tiny, write_sharded

from simulator.archive import hdf5_image
from simulator.archive.derived import make_derived
from simulator.archive.manifest import Axis, read_manifest
from simulator.archive.seal import ALTERED
from simulator.archive.shard import Dataset
from simulator.archive.snapshot_index import image
from simulator.archive.snapshot_reader import open_snapshot
from simulator.archive.verify import newest_good, prune_saves, stored_in, verification, verify
from simulator.errors import UserError

TEXT = "x" * 100_000
ATTRIBUTES = {
    "time": 0.25,
    "dt": 1e-3,
    "config": TEXT,
    "author": "",
    "run": {"seed": 1},
    "box": [1.0, 2.0],
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    values = random_field(3, 6, 5, 4)
    sharded = on_devices(values, (2, 2), (None, 0, 1, None))
    psi = random_field(6, 5, 4, dtype=np.complex128)
    datasets = [
        Dataset("velocity", sharded, grid(6, 5, 4), XYZ, attributes={"unit": "m/s"}),
        Dataset("psi", psi, grid(6, 5, 4)),
        Dataset("coarse", psi.real[::2], grid(3, 5, 4)),
        Dataset("spectrum", np.arange(5.0), (Axis.modes("kx", [0, 1, 2, -2, -1]),)),
        Dataset("time", 0.25),
    ]
    return save(tmp_path_factory.mktemp("index"), 12, datasets, ATTRIBUTES), values, psi


def test_h5py_reads_whole_fields_under_one_name_with_coordinates_on_every_axis(saved):
    folder, values, psi = saved
    with h5py.File(folder.with_suffix(".h5"), locking=False) as file:
        for i, c in enumerate("xyz"):
            assert_array_equal(file[f"data/12/fields/velocity/{c}"][...], values[i])
            assert_array_equal(file[f"velocity_{c}"][1:3, ::2], values[i, 1:3, ::2])
            # openPMD-api reads no data set with dimension scales
            assert "DIMENSION_LIST" not in file[f"data/12/fields/velocity/{c}"].attrs
        assert_array_equal(file["psi"][...], psi)
        assert "data/12/arrays" not in file
        for i, n in enumerate((6, 5, 4)):
            assert file["velocity_x"].dims[i][0].name == "/" + "xyz"[i]
            assert_array_equal(file["velocity_x"].dims[i][0][...], np.arange(n) * (1 / n))
        assert file["coarse"].dims[0][0].name == "/x_3"
        assert file["coarse"].dims[1][0].name == "/y"
        assert_array_equal(file["spectrum"].dims[0][0][...], [0, 1, 2, -2, -1])


def test_records_of_particles_have_the_dimensions_of_openpmd(tmp_path):
    """Powers of length, mass and time; the identifier is a number."""
    powers = {
        "position": (1, 0, 0),
        "displacement": (1, 0, 0),
        "velocity": (1, 0, -1),
        "fluid_velocity": (1, 0, -1),
        "fluid_acceleration": (1, 0, -2),
        "mass": (0, 1, 0),
        "id": (0, 0, 0),
    }
    axis = (Axis(name="dark.particle", size=3),)
    vectors = {record for record in powers if record not in ("mass", "id")}
    datasets = [
        Dataset(
            f"dark.{record}",
            np.zeros((3, 3) if record in vectors else 3),
            axis,
            XYZ if record in vectors else (),
            species="dark",
            shares=(3,),
        )
        for record in powers
    ]
    folder = save(tmp_path, 1, datasets)
    with h5py.File(folder.with_suffix(".h5"), locking=False) as file:
        species: Any = file["data/1/particles/dark"]
        records = [name for name in species if name != "particlePatches"]
        found = {name: tuple(species[name].attrs["unitDimension"]) for name in records}
        assert species["particlePatches/numParticles"][...] == [3]
    expected = {**powers, "positionOffset": powers["position"]}
    assert found == {name: (*each, 0, 0, 0, 0) for name, each in expected.items()}


def test_attributes_are_openpmd_and_strings_are_bytes(saved):
    folder, *_ = saved
    with h5py.File(folder.with_suffix(".h5"), locking=False) as file:
        assert file.attrs["openPMD"] == b"1.1.0"
        assert file.attrs["basePath"] == b"/data/%T/"
        assert file.attrs["config"] == b"x" * 100_000
        assert file.attrs["run"] == b'{"seed": 1}'
        assert_array_equal(file.attrs["box"], [1.0, 2.0])
        assert dict(file["data/12"].attrs) == {"time": 0.25, "dt": 1e-3, "timeUnitSI": 1.0}
        mesh = file["data/12/fields/velocity"].attrs
        assert list(mesh["axisLabels"]) == [b"x", b"y", b"z"]
        assert_array_equal(mesh["gridSpacing"], [1 / 6, 1 / 5, 1 / 4])
        assert mesh["unit"] == b"m/s"

        def no_strings(_, thing):
            for value in thing.attrs.values():
                assert not isinstance(value, str)

        file.visititems(no_strings)


def test_a_run_folder_may_be_moved(saved, tmp_path):
    folder, values, _ = saved
    moved = tmp_path / "elsewhere"
    shutil.copytree(folder.parent, moved)
    with h5py.File(moved / "00000012.h5", locking=False) as file:
        sources = file["velocity_x"].virtual_sources()
        assert {s.file_name for s in sources} == {"00000012/shards/p00000.h5"}
        assert_array_equal(file["velocity_z"][...], values[2])


def test_the_vtkhdf_sidecar_shows_fields_whole_and_says_where_the_axes_point(saved):
    folder, values, _ = saved
    with h5py.File(folder.with_suffix(".vtkhdf"), locking=False) as file:
        root = file["VTKHDF"]
        # complex fields, spectra and other grids cannot be drawn
        assert set(root["PointData"]) == {"velocity"}
        assert_array_equal(np.moveaxis(root["PointData/velocity"][...], -1, 0), values)
        assert {s.file_name for s in root["PointData/velocity"].virtual_sources()} == {
            "00000012/shards/p00000.h5"
        }
        assert_array_equal(root["FieldData/TimeValue"][...], [0.25])
        assert root.attrs["Type"] == b"ImageData"
        assert_array_equal(root.attrs["WholeExtent"], [0, 3, 0, 4, 0, 5])
        # the last index of an image is the run's x
        steps = root.attrs["Direction"].reshape(3, 3) * np.asarray(root.attrs["Spacing"])
        assert_allclose(steps @ [3, 4, 5], [5 / 6, 4 / 5, 3 / 4], rtol=1e-15)


@pytest.mark.parametrize("shape", [(6, 1, 4), (6, 1, 1), (1, 1, 1), (6, 5), (6,)], ids=str)
def test_images_have_no_axes_of_one_point_and_vectors_three_components(tmp_path, shape):
    velocity = random_field(len(shape), *shape)
    datasets = [
        Dataset("dye", velocity[0], grid(*shape)),
        Dataset("velocity", velocity, grid(*shape), (("x", "y", "z")[: len(shape)],)),
    ]
    folder = save(tmp_path, 3, datasets, ATTRIBUTES)
    spanned = [n for n in shape if n > 1] or [1]
    with h5py.File(folder.with_suffix(".vtkhdf"), locking=False) as file:
        data: Any = file["VTKHDF/PointData"]
        assert_array_equal(data["dye"][...], velocity[0].reshape(spanned))
        assert data["velocity"].shape == (*spanned, 3)
        shown = np.moveaxis(data["velocity"][...], -1, 0)
        assert_array_equal(shown[: len(shape)], velocity.reshape(-1, *spanned))
        assert not shown[len(shape) :].any()


def test_a_plane_is_an_image_with_one_layer(tmp_path):
    values = random_field(6, 5)
    folder = save(tmp_path, 3, [Dataset("dye", values, grid(6, 5))], ATTRIBUTES)
    with h5py.File(folder.with_suffix(".vtkhdf"), locking=False) as file:
        attributes = dict(file["VTKHDF"].attrs)
    assert list(attributes["Origin"]) == [0, 0, 0]
    assert_allclose(attributes["Spacing"], [1 / 5, 1 / 6, 1])
    assert list(attributes["WholeExtent"]) == [0, 4, 0, 5, 0, 0]
    alone = image(
        read_manifest(save(tmp_path, 4, [Dataset("number", np.float64(1))], ATTRIBUTES))
    )  # no field
    assert list(alone["WholeExtent"]) == [0] * 6 and list(alone["Origin"]) == [0] * 3
    assert list(alone["Spacing"]) == [1] * 3


@pytest.fixture
def sharded(tmp_path):
    arrays = {name: (random_field(8, 6, 4, seed=i), grid(8, 6, 4)) for i, name in enumerate("pq")}
    return write_sharded(tmp_path, 5, arrays, (2, 2, 1))


def wrong(folder) -> dict[str, str]:
    return {str(c.file.relative_to(folder.parent)): str(c.problem) for c in verify(folder).problems}


def test_what_is_good_is_reported_file_by_file(sharded, monkeypatch):
    report = verify(sharded)
    assert report.ok and report.restorable
    names = ["manifest.json", *(f"shards/p0000{i}.h5" for i in range(4))]
    files = [
        *(sharded / n for n in names),
        sharded.with_suffix(".h5"),
        sharded.with_suffix(".vtkhdf"),
    ]
    assert report.lines() == [f"{path}: ok" for path in files]
    (sharded / "shards" / "p00009.h5").write_text("x")
    report = verify(sharded)
    assert report.ok and report.notes == [f"{sharded}/shards/p00009.h5: not part of the snapshot"]
    monkeypatch.setenv("HDF5_VDS_PREFIX", "/elsewhere")
    assert "HDF5_VDS_PREFIX=/elsewhere" in wrong(sharded)["00000005.h5"]


def test_a_shard_truncated_lengthened_or_deleted(sharded):
    path = sharded / "shards" / "p00002.h5"
    good = path.read_bytes()
    name = f"00000005/shards/{path.name}"
    for length in (0, 1, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:length])
        assert wrong(sharded) == {name: f"short: {length} bytes, not {len(good)}"}
    path.write_bytes(good + b"\0")
    assert wrong(sharded) == {name: f"too long: {len(good) + 1} bytes, not {len(good)}"}
    path.unlink()
    assert wrong(sharded) == {name: "missing"}
    path.mkdir()
    assert "cannot be read" in wrong(sharded)[name]


@pytest.mark.parametrize("end", [".h5", ".vtkhdf"])
def test_a_derived_file_that_lies_is_found_and_made_again(sharded, end):
    """Whatever was edited: the file ends with the checksum of its bytes and of the manifest."""
    path = sharded.with_name(f"00000005{end}")
    manifest = open_snapshot(sharded).manifest
    with h5py.File(path, "r+", locking=False) as file:
        found = "data/5/fields/p" if end == ".h5" else "VTKHDF/PointData/p"
        shape = file[found].shape
        del file[found]
        file[found] = np.zeros(shape)
    assert wrong(sharded) == {path.name: ALTERED}  # HDF5 has cut off the checksum
    assert verify(sharded).restorable and list(make_derived(sharded, manifest)) == [path]
    with h5py.File(path, "r", locking=False) as file:
        assert file[found].is_virtual
        assert_array_equal(file[found][...], np.asarray(open_snapshot(sharded)["p"]))
    assert verify(sharded).ok and make_derived(sharded, manifest) == {}


def test_where_nothing_can_be_written_damage_stays(sharded, monkeypatch):
    def full(path, data, sync):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(hdf5_image, "write_durably", full)
    path = sharded.with_name("00000005.h5")
    for harm, problem in ((lambda: path.write_bytes(b"x"), ALTERED), (path.unlink, "missing")):
        harm()
        (report,) = verification(sharded).reports
        assert [(c.file, c.problem) for c in report.problems] == [(path, problem)]
        (note,) = report.notes
        assert note == f"{sharded}: its index cannot be made again (Read-only file system: {path})"


def test_the_newest_good_one_and_why_others_were_skipped(tmp_path):
    folders = [save(tmp_path, step, tiny(step)) for step in range(1, 6)]
    shard = folders[4] / "shards" / "p00000.h5"
    shard.write_bytes(shard.read_bytes()[:-1])
    (folders[3] / "manifest.json").unlink()
    (folders[2] / "manifest.json").write_text("{}")
    (tmp_path / "00000099").mkdir()
    newest, skipped = newest_good(tmp_path)
    assert newest == folders[1]
    assert [folder.name for folder, _ in skipped] == [
        "00000099",
        "00000005",
        "00000004",
        "00000003",
    ]
    reasons = [reason for _, reason in skipped]
    assert "not a snapshot" in reasons[0] and reasons[1].startswith("shards/p00000.h5: short")
    assert reasons[2:] == [
        "manifest.json: missing",
        "manifest.json: altered (its checksum does not match)",
    ]
    assert newest_good(tmp_path / "absent") == (None, [])


def test_pruning_waits_for_a_good_newer_one(tmp_path):
    folders = [save(tmp_path, step, tiny(step)) for step in range(0, 50, 5)]
    shard = folders[-1] / "shards" / "p00000.h5"
    good = shard.read_bytes()
    shard.write_bytes(good[:-1])
    assert prune_saves(tmp_path, keep_last=2) == []
    shard.write_bytes(good)
    removed = prune_saves(tmp_path, keep_last=2, keep_every=20)
    assert [f.name for f in removed] == [f"{step:08d}" for step in (5, 10, 15, 25, 30, 35)]
    left = {f"{step:08d}{suffix}" for step in (0, 20, 40, 45) for suffix in ("", ".h5", ".vtkhdf")}
    assert set(os.listdir(tmp_path)) == left


def test_what_a_path_stands_for(tmp_path):
    run = tmp_path / "run"
    one = save(run / "snapshots", 1, tiny(1))
    two = save(run / "checkpoints", 2, tiny(2))
    assert stored_in(run) == [one, two] and stored_in(run / "snapshots") == [one]
    assert stored_in(one) == [one]
    (tmp_path / "other").mkdir()
    with pytest.raises(UserError, match="not a run, snapshot or checkpoint"):
        stored_in(tmp_path / "other")
    with pytest.raises(UserError, match="no such folder"):
        stored_in(tmp_path / "absent")
