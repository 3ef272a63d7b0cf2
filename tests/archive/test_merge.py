import os
import resource

import h5py
import numpy as np
import pytest
from storage_support import grid, in_child, random_field, tiny, write_sharded

from simulator.archive.dataset import Dataset
from simulator.archive.merge import merge
from simulator.archive.writer import save
from simulator.errors import RunFailure, UserError


def test_everything_is_in_one_ordinary_file(tmp_path):
    psi = random_field(5, 4, 3, dtype=np.complex128)
    state = [*tiny(1), Dataset("psi", psi, grid(5, 4, 3)), Dataset("empty", np.zeros((0, 2)))]
    folder = save(tmp_path / "snapshots", 7, state, {"time": 0.25, "config": "a: 1\n"})
    out = tmp_path / "one.h5"
    assert merge(folder, out) == out.stat().st_size
    (tmp_path / "snapshots").rename(tmp_path / "gone")
    with h5py.File(out, locking=False) as file:
        velocity = np.stack([file[f"data/7/fields/velocity/{c}"][...] for c in "xyz"])
        np.testing.assert_array_equal(velocity, tiny(1)[0].array)
        np.testing.assert_array_equal(file["psi"][...], psi)
        assert not file["velocity_x"].is_virtual
        assert file["data/7/arrays/time"][()] == 0.1
        np.testing.assert_array_equal(file["data/7/arrays/counter"][...], [1, 7])
        assert file["data/7/arrays/empty"].shape == (0, 2)
        assert file["data/7"].attrs["time"] == 0.25
        assert file.attrs["config"] == b"a: 1\n"
        np.testing.assert_array_equal(file["velocity_x"].dims[1][0][...], np.arange(6) * (1 / 6))


def test_shards_cut_along_every_axis_are_put_together(tmp_path):
    values = random_field(9, 8, 7)
    folder = write_sharded(tmp_path, 1, {"p": (values, grid(9, 8, 7))}, (2, 2, 2))
    merge(tmp_path / "00000001.h5", tmp_path / "one.h5")
    with h5py.File(tmp_path / "one.h5", locking=False) as file:
        np.testing.assert_array_equal(file["p"][...], values)
    assert folder.is_dir()


def _merge_and_measure(folder, out):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    merge(folder, out)
    (out.parent / "growth").write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))


def test_memory_stays_bounded(tmp_path):
    """200 MB are merged; a piece takes 32 MiB, twice where it is copied, and 4 threads verify with 4 MiB."""
    values = random_field(250, 200, 125)
    arrays = {f"s{i}": (values, grid(*values.shape)) for i in range(4)}
    folder = write_sharded(tmp_path, 1, arrays, (1, 4, 1))
    assert in_child(_merge_and_measure, folder, tmp_path / "one.h5") == 0
    assert (tmp_path / "one.h5").stat().st_size > 200e6
    assert int((tmp_path / "growth").read_text()) < 130 * 1024  # KiB
    (tmp_path / "one.h5").unlink()


def _merge_with_limit(folder, out):
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    try:
        merge(folder, out)
    except RunFailure as error:
        assert "File too large" in str(error) and "one.h5 was not written" in str(error)
        raise SystemExit(1) from None


def test_a_full_disk_leaves_nothing_and_no_crash(tmp_path):
    folder = save(tmp_path, 1, tiny(1, n=20), {"time": 0.0})
    before = sorted(os.listdir(tmp_path))
    assert in_child(_merge_with_limit, folder, tmp_path / "one.h5") == 1
    assert sorted(os.listdir(tmp_path)) == before


def test_refusals(tmp_path):
    folder = save(tmp_path, 1, tiny(1), {"time": 0.0})
    out = tmp_path / "one.h5"
    out.write_text("mine")
    with pytest.raises(UserError, match="exists"):
        merge(folder, out)
    assert out.read_text() == "mine"
    merge(folder, out, overwrite=True)
    with pytest.raises(UserError, match="not a file in an existing folder"):
        merge(folder, tmp_path / "absent" / "one.h5")
    shard = folder / "shards" / "p00000.h5"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(RunFailure, match=r"p00000\.h5: short.*nothing was merged"):
        merge(folder, tmp_path / "two.h5")
    assert not (tmp_path / "two.h5").exists()
