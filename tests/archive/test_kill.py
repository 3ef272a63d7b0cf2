"""kill -9, at every stage and at random times: whole folders or none, and the next start cleans up."""

import os
import signal

import numpy as np
import pytest
from storage_support import STAGES, in_child, save, tiny

from simulator.archive.index import make_derived
from simulator.archive.manifest import clean_leftovers
from simulator.archive.reader import open_snapshot
from simulator.archive.verify import newest_good, stored_in, verify


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
    """There is always one whole folder of the step, after the next start's cleaning at the latest."""
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
    assert sorted(os.listdir(tmp_path)) == ["00000001", "00000001.h5", "00000001.vtkhdf", "notes.txt"]
    assert verify(good).ok
    assert clean_leftovers(tmp_path / "absent") == []
