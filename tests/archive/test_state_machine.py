"""Saves, kills, damage and restarts in any order: the newest good state is always the one that
should be."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

import numpy as np
import pytest
from fault_support import cut, flip
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from storage_support import STAGES, XYZ, grid, in_child, on_devices, random_field, save
from tiers import slow

from simulator.archive.derived import make_derived
from simulator.archive.manifest import clean_leftovers, committed
from simulator.archive.restore import restored_array
from simulator.archive.shard import Dataset
from simulator.archive.snapshot_reader import open_snapshot
from simulator.archive.verify import newest_good, prune_saves, verify

SHAPE = (5, 4, 6)
WHOLE = (None, None, None, None)
LAYOUTS = st.sampled_from(
    [((1,), WHOLE), ((4,), (None, None, 0, None)), ((2, 4), (None, 1, None, 0))]
)


def state(step: int, seed: int) -> np.ndarray:
    return random_field(3, *SHAPE, seed=1000 * seed + step)


def _killed_save(parent, step, seed, stage):
    def hook(reached):
        if reached == stage:
            os.kill(os.getpid(), signal.SIGKILL)

    save(parent, step, [Dataset("u", state(step, seed), grid(*SHAPE), XYZ)], hook=hook)


class Storage(RuleBasedStateMachine):
    """`good`: {step: seed} of what is on disk and whole."""

    @initialize()
    def begin(self):
        self.parent = Path(tempfile.mkdtemp())
        self.good: dict[int, int] = {}
        self.step = 0
        self.seed = 0

    @rule(layout=LAYOUTS, ahead=st.integers(0, 3))
    def save(self, layout, ahead):
        # 0 ahead replaces the newest
        self.step = self.step + ahead
        self.seed = self.seed + 1
        array = on_devices(state(self.step, self.seed), *layout)
        save(self.parent, self.step, [Dataset("u", array, grid(*SHAPE), XYZ)])
        self.good[self.step] = self.seed

    @rule(stage=st.sampled_from(STAGES), ahead=st.integers(0, 3))
    def kill(self, stage, ahead):
        step = self.step + ahead
        seed = self.seed + 1
        replaces = step in [int(f.name) for f in committed(self.parent)]
        code = in_child(_killed_save, self.parent, step, seed, stage)
        if stage == "moved aside" and not replaces:
            assert code == 0
        else:
            assert code == -signal.SIGKILL
        if code == 0 or STAGES.index(stage) >= STAGES.index("renamed"):
            self.step = step
            self.seed = seed
            self.good[step] = seed
        clean_leftovers(self.parent)
        for folder in committed(self.parent):
            if int(folder.name) in self.good:
                make_derived(folder, open_snapshot(folder).manifest)

    @precondition(lambda self: self.good)
    @rule(
        where=st.floats(0, 1, exclude_max=True),
        harm=st.sampled_from([flip, cut, lambda path, place: path.unlink()]),
        name=st.sampled_from(["manifest.json", "shards/p00000.h5"]),
    )
    def corrupt_newest(self, where, harm, name):
        step = max(self.good)
        harm(self.parent / f"{step:08d}" / name, where)
        del self.good[step]

    @precondition(lambda self: self.good)
    @rule(layout=LAYOUTS)
    def resume(self, layout):
        newest, _ = newest_good(self.parent)
        step = int(newest.name)
        template = on_devices(np.zeros((3, *SHAPE)), *layout)
        array = restored_array(newest, "u", template.sharding, grid(*SHAPE), template.shape[1:])
        whole = np.asarray(array)[:, : SHAPE[0], : SHAPE[1], : SHAPE[2]]
        np.testing.assert_array_equal(whole, state(step, self.good[step]))

    @rule(keep=st.integers(1, 3))
    def prune(self, keep):
        before = committed(self.parent)
        removed = prune_saves(self.parent, keep_last=keep)
        if before and int(before[-1].name) in self.good:
            assert removed == before[:-keep]
        else:
            assert removed == []
        for folder in removed:
            self.good.pop(int(folder.name), None)

    @invariant()
    def newest_good_is_the_newest_that_was_not_damaged(self):
        if not hasattr(self, "parent"):
            return
        newest, skipped = newest_good(self.parent)
        expected = self.parent / f"{max(self.good):08d}" if self.good else None
        assert newest == expected
        assert all(int(folder.name) not in self.good for folder, _ in skipped)
        assert not list(self.parent.glob(".*"))
        if newest:
            assert verify(newest).ok

    def teardown(self):
        if hasattr(self, "parent"):
            shutil.rmtree(self.parent)


@pytest.mark.long
@pytest.mark.spmd
@pytest.mark.parametrize("histories", [4, slow(40)])
def test_any_history_of_a_folder(histories: int):
    quiet = [HealthCheck.too_slow]
    given = settings(max_examples=histories, stateful_step_count=10, suppress_health_check=quiet)
    run_state_machine_as_test(Storage, settings=given)
