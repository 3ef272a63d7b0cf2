import shutil

import h5py
import numpy as np
import pytest
from storage_support import XYZ, grid, on_devices, random_field, save

from simulator.archive.index import image
from simulator.archive.manifest import Axis, read_manifest
from simulator.archive.shard import Dataset

TEXT = "x" * 100_000
ATTRIBUTES = {"time": 0.25, "dt": 1e-3, "config": TEXT, "author": "", "run": {"seed": 1}, "box": [1.0, 2.0]}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    values = random_field(3, 6, 5, 4)
    sharded, psi = on_devices(values, (2, 2), (None, 0, 1, None)), random_field(6, 5, 4, dtype=np.complex128)
    datasets = [
        Dataset("velocity", sharded, grid(6, 5, 4), XYZ, attributes={"unit": "m/s"}),
        Dataset("psi", psi, grid(6, 5, 4)),
        Dataset("coarse", psi.real[::2], grid(3, 5, 4)),
        Dataset("spectrum", np.arange(5.0), (Axis.modes("kx", [0, 1, 2, -2, -1]),)),
        Dataset("time", 0.25),
    ]
    return save(tmp_path_factory.mktemp("index"), 12, datasets, ATTRIBUTES), values, psi


def test_h5py_reads_whole_fields_under_one_name(saved):
    folder, values, psi = saved
    with h5py.File(folder.with_suffix(".h5"), locking=False) as file:
        for i, c in enumerate("xyz"):
            np.testing.assert_array_equal(file[f"data/12/fields/velocity/{c}"][...], values[i])
            np.testing.assert_array_equal(file[f"velocity_{c}"][1:3, ::2], values[i, 1:3, ::2])
        np.testing.assert_array_equal(file["psi"][...], psi)
        assert "arrays" not in file["data/12"]


def test_coordinates_hang_on_every_axis(saved):
    folder, *_ = saved
    with h5py.File(folder.with_suffix(".h5"), locking=False) as file:
        for i, n in enumerate((6, 5, 4)):
            assert file["velocity_x"].dims[i][0].name == "/" + "xyz"[i]
            np.testing.assert_array_equal(file["velocity_x"].dims[i][0][...], np.arange(n) * (1 / n))
        assert file["coarse"].dims[0][0].name == "/x_3"
        assert file["coarse"].dims[1][0].name == "/y"
        np.testing.assert_array_equal(file["spectrum"].dims[0][0][...], [0, 1, 2, -2, -1])


def test_attributes_are_openpmd_and_strings_are_bytes(saved):
    folder, *_ = saved
    with h5py.File(folder.with_suffix(".h5"), locking=False) as file:
        assert file.attrs["openPMD"] == b"1.1.0"
        assert file.attrs["basePath"] == b"/data/%T/"
        assert file.attrs["config"] == b"x" * 100_000
        assert file.attrs["run"] == b'{"seed": 1}'
        np.testing.assert_array_equal(file.attrs["box"], [1.0, 2.0])
        assert dict(file["data/12"].attrs) == {"time": 0.25, "dt": 1e-3, "timeUnitSI": 1.0}
        mesh = file["data/12/fields/velocity"].attrs
        assert list(mesh["axisLabels"]) == [b"x", b"y", b"z"]
        np.testing.assert_array_equal(mesh["gridSpacing"], [1 / 6, 1 / 5, 1 / 4])
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
        np.testing.assert_array_equal(file["velocity_z"][...], values[2])


def test_the_vtkhdf_sidecar_shows_fields_whole_and_says_where_the_axes_point(saved):
    folder, values, _ = saved
    with h5py.File(folder.with_suffix(".vtkhdf"), locking=False) as file:
        root = file["VTKHDF"]
        # complex fields, spectra and other grids cannot be drawn
        assert set(root["PointData"]) == {"velocity"}
        np.testing.assert_array_equal(np.moveaxis(root["PointData/velocity"][...], -1, 0), values)
        assert {s.file_name for s in root["PointData/velocity"].virtual_sources()} == {"00000012/shards/p00000.h5"}
        np.testing.assert_array_equal(root["FieldData/TimeValue"][...], [0.25])
        assert root.attrs["Type"] == b"ImageData"
        np.testing.assert_array_equal(root.attrs["WholeExtent"], [0, 3, 0, 4, 0, 5])
        # the last index of an image is the run's x
        steps = root.attrs["Direction"].reshape(3, 3) * root.attrs["Spacing"]
        np.testing.assert_allclose(steps @ [3, 4, 5], [5 / 6, 4 / 5, 3 / 4], rtol=1e-15)


def test_a_plane_is_an_image_with_one_layer(tmp_path):
    values = random_field(6, 5)
    folder = save(tmp_path, 3, [Dataset("dye", values, grid(6, 5))], ATTRIBUTES)
    with h5py.File(folder.with_suffix(".vtkhdf"), locking=False) as file:
        attributes = dict(file["VTKHDF"].attrs)
    assert list(attributes["Origin"]) == [0, 0, 0]
    np.testing.assert_allclose(attributes["Spacing"], [1 / 5, 1 / 6, 1])
    assert list(attributes["WholeExtent"]) == [0, 4, 0, 5, 0, 0]
    alone = image(read_manifest(save(tmp_path, 4, [Dataset("number", np.float64(1))], ATTRIBUTES)))  # no field
    assert list(alone["WholeExtent"]) == [0] * 6 and list(alone["Origin"]) == [0] * 3
    assert list(alone["Spacing"]) == [1] * 3 and (alone["Direction"].reshape(3, 3) == np.eye(3)[::-1]).all()
