import ctypes
import errno
import os
import signal
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from storage_support import ALONE, STAGES, XYZ, grid, in_child, random_field, save, tiny

from simulator.archive import snapshot_writer
from simulator.archive.derived import make_derived
from simulator.archive.manifest import clean_leftovers, committed, read_manifest
from simulator.archive.shard import Dataset
from simulator.archive.snapshot_reader import open_snapshot
from simulator.archive.snapshot_writer import Options, Writer
from simulator.archive.verify import newest_good, stored_in, verify
from simulator.errors import RunFailure


def test_the_stages_come_in_the_order_of_their_table(tmp_path):
    seen = []
    save(tmp_path, 1, tiny(1), hook=seen.append)
    assert seen == [s for s in STAGES if s != "moved aside"]
    seen.clear()
    save(tmp_path, 1, tiny(1), hook=seen.append)  # replaces the folder of the same step
    assert seen == list(STAGES)
    assert sorted(os.listdir(tmp_path)) == ["00000001", "00000001.h5", "00000001.vtkhdf"]


def test_a_folder_that_cannot_be_synchronized_after_its_commit_is_named(tmp_path, monkeypatch):
    def fails(folder):
        raise OSError(errno.EIO, "Input/output error")

    def hook(stage):
        if stage == "renamed":
            monkeypatch.setattr(snapshot_writer, "sync_folder", fails)

    with pytest.raises(RunFailure, match=r"00000001 is committed, but then: Input/output error"):
        save(tmp_path, 1, tiny(1), hook=hook)
    assert read_manifest(tmp_path / "00000001").step == 1


def test_submit_returns_while_the_disk_is_slow_and_donation_does_no_harm(tmp_path):
    gate = threading.Event()
    opened = []

    def hook(stage):
        if stage == "folder made":
            opened.append(gate.wait(20))

    writer = Writer(ALONE, hook=hook)
    array = jnp.arange(24.0).reshape(2, 3, 4)
    writer.submit(tmp_path, 1, [Dataset("p", array, grid(2, 3, 4))], {"time": 0.5})
    assert writer.busy and writer.outstanding
    jax.jit(lambda a: a * 0 - 1, donate_argnums=0)(array).block_until_ready()
    assert writer.poll() is None and writer.outstanding
    assert committed(tmp_path) == []
    gate.set()
    folder = None
    while folder is None:
        folder = writer.poll()
        time.sleep(0.001)
    assert opened == [True]  # nobody has waited for the disk
    assert folder == tmp_path / "00000001" and not writer.outstanding
    assert_array_equal(open_snapshot(folder)["p"][...], np.arange(24.0).reshape(2, 3, 4))
    writer.close()


def test_non_finite_values_are_not_committed_unless_wanted(tmp_path):
    good = save(tmp_path, 1, tiny(1))
    state = tiny(2)
    state[0].array[1, 2, 3, 4] = np.nan
    with pytest.raises(RunFailure, match="velocity has 1 values that are not finite") as caught:
        save(tmp_path, 2, state)
    assert "\n" not in str(caught.value)
    assert committed(tmp_path) == [good] and not clean_leftovers(tmp_path)
    kept = save(tmp_path, 2, state, options=Options(require_finite=False))
    assert not verify(kept).restorable
    skipped = [(kept, "shards/p00000.h5: velocity has 1 values that are not finite")]
    assert newest_good(tmp_path) == (good, skipped)


def test_a_lost_lock_stops_the_commit(tmp_path):
    good = save(tmp_path, 1, tiny(1))

    def check():
        raise RunFailure("the lock belongs to node7 now")

    for step in (1, 2):
        with pytest.raises(RunFailure, match=r"^the lock belongs to node7 now$"):
            save(tmp_path, step, tiny(9), check=check)
    assert committed(tmp_path) == [good] and not clean_leftovers(tmp_path)
    assert_array_equal(open_snapshot(good)["velocity"][...], tiny(1)[0].array)


def test_single_precision_rounds_fields_and_nothing_else(tmp_path):
    folder = save(tmp_path, 1, tiny(1), options=Options(single=True))
    snapshot = open_snapshot(folder)
    assert_array_equal(snapshot["velocity"][...], tiny(1)[0].array.astype(np.float32), strict=True)
    assert snapshot["time"][()] == 0.1


@pytest.mark.parametrize("compression", ["none", "gzip", "blosc2"])
def test_compressed_or_not_the_bits_are_the_same(tmp_path, compression):
    values = np.round(random_field(3, 40, 30, 20), 1)
    data = [Dataset("u", values, grid(40, 30, 20), XYZ), Dataset("time", 0.1)]
    folder = save(tmp_path, 1, data, options=Options(compression=compression))
    size = (folder / "shards" / "p00000.h5").stat().st_size
    assert (size < 0.5 * values.nbytes) == (compression != "none")
    assert verify(folder).ok
    assert_array_equal(np.asarray(open_snapshot(folder)["u"]), values)
    assert_array_equal(open_snapshot(folder)["u"][1, ::3, 5], values[1, ::3, 5])


def test_attributes_that_json_lacks_are_refused_at_once(tmp_path):
    for bad in (np.zeros(3), float("nan")):
        with pytest.raises((TypeError, ValueError)):
            save(tmp_path, 1, tiny(1), {"time": 0.0, "bad": bad})
    assert not list(tmp_path.iterdir())


def _fill_a_small_disk(parent):
    # In a mount namespace of this process alone, so that nothing has to be unmounted.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x20000) or libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None):
        raise SystemExit(77)
    if libc.mount(b"tmpfs", bytes(parent), b"tmpfs", 0, b"size=1m"):
        raise SystemExit(77)
    good = [save(parent, step, tiny(step, n=12)) for step in range(3)]
    for n in (40, 34):  # does not fit at all; fits only in part
        try:
            save(parent, 9, tiny(9, n=n))
            raise SystemExit(2)
        except RunFailure as error:
            assert "No space left on device" in str(error) and "\n" not in str(error), error
    assert committed(parent) == good and not clean_leftovers(parent)
    assert all(verify(folder).ok for folder in good)
    save(parent, 10, tiny(10, n=4))  # and what fits can still be written


def test_a_small_disk_that_fills(tmp_path):
    code = in_child(_fill_a_small_disk, tmp_path)
    if code == 77:
        pytest.skip("mounting a tmpfs needs root")
    assert code == 0


def test_a_parent_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFailure, match=r"was not written: process 0 on .*Not a directory"):
        save(tmp_path / "file" / "snapshots", 1, tiny(1))


def _save_until(parent, step, stage):
    def hook(reached):
        if reached == stage:
            os.kill(os.getpid(), signal.SIGKILL)

    save(parent, step, tiny(step, seed=100), hook=hook)


def holds(folder, step, seed=None) -> bool:
    return np.array_equal(open_snapshot(folder)["velocity"][...], tiny(step, seed)[0].array)


@pytest.mark.parametrize("stage", [s for s in STAGES if s != "moved aside"])
def test_killed_at_a_stage(tmp_path, stage):
    good = save(tmp_path, 1, tiny(1))
    assert in_child(_save_until, tmp_path, 2, stage) == -signal.SIGKILL

    is_committed = STAGES.index(stage) >= STAGES.index("renamed")
    newest, skipped = newest_good(tmp_path)
    assert (newest, skipped) == (tmp_path / "00000002" if is_committed else good, [])
    assert stored_in(tmp_path) == [good, tmp_path / "00000002"][: 1 + is_committed]
    assert holds(good, 1) and verify(good).ok
    if is_committed:
        assert holds(newest, 2, seed=100)

    lines = clean_leftovers(tmp_path)
    assert len(lines) == (stage not in ("copied",) and not is_committed)
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]
    assert clean_leftovers(tmp_path) == [] and newest_good(tmp_path)[0] == newest
    make_derived(newest, open_snapshot(newest).manifest)
    assert verify(newest).ok

    save(tmp_path, 2, tiny(2))
    assert holds(tmp_path / "00000002", 2) and verify(tmp_path / "00000002").ok


@pytest.mark.parametrize("stage", ["before rename", "moved aside", "renamed", "committed"])
def test_killed_while_replacing_a_step(tmp_path, stage):
    """There is always one whole folder of the step, after the next start's cleaning at the
    latest."""
    folder = save(tmp_path, 2, tiny(2))
    assert in_child(_save_until, tmp_path, 2, stage) == -signal.SIGKILL
    lines = clean_leftovers(tmp_path)
    assert any("put back" in line for line in lines) == (stage == "moved aside")
    replaced = STAGES.index(stage) >= STAGES.index("renamed")
    assert holds(folder, 2, seed=100 if replaced else None)
    make_derived(folder, open_snapshot(folder).manifest)
    assert sorted(os.listdir(tmp_path)) == ["00000002", "00000002.h5", "00000002.vtkhdf"]
    assert verify(folder).ok


def test_stale_leftovers_are_named_and_removed(tmp_path):
    good = save(tmp_path, 1, tiny(1))
    (tmp_path / ".tmp-00000007-feed" / "shards").mkdir(parents=True)
    (tmp_path / ".tmp-00000008.h5").write_text("x")
    (tmp_path / "00000009.h5").write_text("x")
    (tmp_path / "notes.txt").write_text("mine")
    assert clean_leftovers(tmp_path) == [
        f"removed {tmp_path}/.tmp-00000007-feed: left by a run that was killed",
        f"removed {tmp_path}/.tmp-00000008.h5: left by a run that was killed",
        f"removed {tmp_path}/00000009.h5: its folder 00000009 does not exist",
    ]
    assert sorted(os.listdir(tmp_path)) == [
        "00000001",
        "00000001.h5",
        "00000001.vtkhdf",
        "notes.txt",
    ]
    assert verify(good).ok
    assert clean_leftovers(tmp_path / "absent") == []
