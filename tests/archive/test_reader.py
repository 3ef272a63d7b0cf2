import os
import resource
import shutil

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from storage_support import XYZ, grid, in_child, on_devices, random_field, save, tiny, write_sharded

from simulator.archive.manifest import Damaged
from simulator.archive.shard import Dataset
from simulator.archive.snapshot_reader import open_snapshot
from simulator.errors import UserError


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    """A scalar field over 3 x 2 x 2 shards, uneven ones among them."""
    values = random_field(7, 5, 9)
    folder = write_sharded(
        tmp_path_factory.mktemp("cut"), 3, {"p": (values, grid(7, 5, 9))}, (3, 2, 2)
    )
    return folder, values


def index_for(n: int) -> st.SearchStrategy:
    bound = st.none() | st.integers(-n - 1, n + 1)
    step = st.none() | st.sampled_from([1, 2, 3, -1, -2, -3])
    return st.integers(-n, n - 1) | st.builds(slice, bound, bound, step)


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(st.tuples(index_for(7), index_for(5), index_for(9)), st.integers(0, 3), st.integers(0, 4))
def test_reads_what_numpy_would(cut, index, first, rest):
    """The first axes, then possibly `...` and the last axes."""
    folder, values = cut
    index = (*index[:first], ..., *index[rest:]) if rest >= first else index[:first]
    got = open_snapshot(folder)["p"][index]
    assert_array_equal(got, values[index], strict=True)


@pytest.mark.spmd
@settings(max_examples=50, deadline=None)
@given(st.tuples(index_for(3), index_for(6), index_for(4), index_for(5)))
def test_components_are_stacked(stacked, index):
    folder, values = stacked
    assert_array_equal(open_snapshot(folder)["u"][index], values[index], strict=True)


@pytest.fixture(scope="module")
def stacked(tmp_path_factory):
    values = random_field(3, 6, 4, 5)
    array = on_devices(values, (2, 2), (None, 0, 1, None))
    parent = tmp_path_factory.mktemp("stacked")
    return save(parent, 1, [Dataset("u", array, grid(6, 4, 5), XYZ)]), values


def test_arrays_and_numbers_of_all_kinds_come_back_exactly(tmp_path):
    stored = {
        "double": np.array([np.pi, -0.0, 5e-324, 1e308]),
        "single": np.float32(0.1),
        "complex": np.array([[1 + 2j, -0.0 - 0j]]),
        "counter": np.array([2**32 - 1, 0], dtype=np.uint32),
        "long": np.int64(-(2**63)),
        "flag": np.array([True, False]),
        "empty": np.zeros((0, 3)),
    }
    folder = save(tmp_path, 0, [Dataset(n, a) for n, a in stored.items()])
    snapshot = open_snapshot(folder)
    for name, value in stored.items():
        got = np.asarray(snapshot[name])
        assert got.dtype == np.asarray(value).dtype
        assert got.shape == np.shape(value)
        assert got.tobytes() == np.asarray(value).tobytes()


def test_a_slice_opens_only_the_shards_it_touches(tmp_path):
    values = random_field(8, 4, 4)
    folder = write_sharded(tmp_path, 1, {"p": (values, grid(8, 4, 4))}, (4, 1, 1))
    field = open_snapshot(folder)["p"]
    for name in ("p00000.h5", "p00001.h5", "p00003.h5"):
        (folder / "shards" / name).unlink()
    assert_array_equal(field[4:6], values[4:6])
    assert_array_equal(field[5, :, 2], values[5, :, 2])
    with pytest.raises(Damaged, match=r"p00001\.h5: missing"):
        field[3:6]
    with h5py.File(tmp_path / "00000001.h5", locking=False) as index:
        assert np.isnan(index["p"][:4]).all() and not np.isnan(index["p"][4:6]).any()
    (folder / "shards" / "p00002.h5").write_bytes(b"no HDF5 file")
    with pytest.raises(Damaged, match=r"p00002\.h5: cannot be read"):
        open_snapshot(folder)["p"][4:6]


def test_nothing_is_read_from_the_working_directory(tmp_path, monkeypatch):
    folder = write_sharded(tmp_path, 1, {"p": (random_field(4, 4, 4), grid(4, 4, 4))}, (1, 1, 1))
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(folder, elsewhere / folder.name)
    (folder / "shards" / "p00000.h5").unlink()
    monkeypatch.chdir(elsewhere)
    with h5py.File(tmp_path / "00000001.h5", locking=False) as index:
        assert not np.isnan(index["p"][...]).any()  # what HDF5 does: the trap
    with pytest.raises(Damaged, match="missing"):
        open_snapshot(folder)["p"][0]


def _read_with_few_descriptors(folder, values):
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    assert_array_equal(open_snapshot(folder)["p"][...], values)


def test_a_hundred_shards_are_read_with_64_descriptors(tmp_path):
    values = random_field(10, 10, 3)
    folder = write_sharded(tmp_path, 1, {"p": (values, grid(10, 10, 3))}, (10, 10, 1))
    assert len(os.listdir(folder / "shards")) == 100
    assert in_child(_read_with_few_descriptors, folder, values) == 0


def test_a_snapshot_has_several_names_and_refuses_other_fields_and_indices(tmp_path):
    folder = save(tmp_path, 1, tiny(1))
    for name in (folder, str(folder), folder / "manifest.json", f"{folder}.h5", f"{folder}.vtkhdf"):
        with h5py.File(
            folder / "shards" / "p00000.h5", "r"
        ):  # with a lock elsewhere in this process
            assert open_snapshot(name).path == folder and open_snapshot(name)["time"][()] == 0.1
    snapshot = open_snapshot(folder)
    with pytest.raises(KeyError, match="its fields are velocity, counter, time"):
        snapshot["pressure"]
    with pytest.raises(IndexError, match="integers, slices"):
        snapshot["velocity"][[0, 1]]
    with pytest.raises(IndexError, match="5 indices for 4 axes"):
        snapshot["velocity"][0, 0, 0, 0, 0]
    with pytest.raises(IndexError, match="index 3"):
        snapshot["velocity"][3]
    with pytest.raises(UserError, match="no such"):
        open_snapshot(tmp_path / "00000002")
