import json

import numpy as np
import pytest
from storage_support import grid, save, tiny

from simulator.archive.manifest import BlockEntry, Damaged, FieldEntry, Manifest, ShardEntry, decode, read_manifest
from simulator.archive.reader import open_snapshot
from simulator.errors import UserError


@pytest.fixture
def folder(tmp_path):
    return save(tmp_path, 10, tiny(10), {"time": 0.1 + 0.2, "config": "a: [1,  2]\n", "deep": {"k": [1, 2]}})


def test_attributes_and_times_come_back_exactly(folder):
    snapshot = open_snapshot(folder)
    assert snapshot.time == 0.1 + 0.2 and snapshot.step == 10
    assert snapshot.attributes == {"time": 0.1 + 0.2, "config": "a: [1,  2]\n", "deep": {"k": [1, 2]}}
    assert snapshot.fields == ["velocity", "counter", "time"]


def test_every_flipped_bit_and_truncation_is_found(folder):
    path = folder / "manifest.json"
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    places = [*range(8), *range(8 * len(good) - 8 * 45, 8 * len(good)), *rng.integers(0, 8 * len(good), 300)]
    for bit in places:
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(bad)
        with pytest.raises(Damaged, match="altered"):
            read_manifest(folder)
    for length in [0, 1, len(good) // 2, len(good) - 1]:
        path.write_bytes(good[:length])
        with pytest.raises(Damaged):
            read_manifest(folder)


def test_foreign_folders_are_the_users_mistake(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_text(json.dumps({"format": "another"}))
    (tmp_path / "file").write_text("x")
    (tmp_path / ".tmp-00000001-ab").mkdir()
    for name, message in {
        "absent": "no such", ".": r"no manifest\.json", "other": "not a manifest of this program",
        "file": "not a folder", ".tmp-00000001-ab": "never finished",
    }.items():  # fmt: skip
        with pytest.raises(UserError, match=message):
            read_manifest(tmp_path / name)


def test_another_version_is_named(folder):
    manifest = open_snapshot(folder).manifest.model_copy(update={"version": 7})
    with pytest.raises(UserError, match="version 7, but this program reads 1"):
        decode(manifest.encode(), folder / "manifest.json")


@pytest.mark.parametrize(
    "blocks",
    [
        [((0,), (3,))],  # a gap
        [((0,), (3,)), ((2,), (2,))],  # an overlap
        [((0,), (4,)), ((4,), (1,))],  # out of bounds
        [((0,), (4,)), ((0,), (4,))],  # twice
        [((0, 0), (4, 1))],  # another number of axes
    ],
)
def test_blocks_that_do_not_tile_their_field_are_noticed(tmp_path, blocks):
    entries = tuple(BlockEntry(start=start, shape=shape) for start, shape in blocks)
    shard = ShardEntry(file="shards/p00000.h5", bytes=1, xxh3="0", blocks={"p": entries})
    manifest = Manifest(step=1, time=0, fields={"p": FieldEntry(dtype="<f8", axes=grid(4))}, shards=(shard,))
    assert manifest.problems() == ["the blocks of p do not tile (4,)"]
    with pytest.raises(Damaged, match="tile"):
        decode(manifest.encode(), tmp_path / "manifest.json")


def test_shards_outside_the_folder_are_refused(tmp_path):
    shard = ShardEntry(file="../../etc/passwd", bytes=1, xxh3="0", blocks={})
    manifest = Manifest(step=1, time=0, fields={}, shards=(shard,))
    with pytest.raises(Damaged, match="shard name"):
        decode(manifest.encode(), tmp_path / "manifest.json")
