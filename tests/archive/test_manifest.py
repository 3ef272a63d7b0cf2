import json

import jax
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from storage_support import XYZ, grid, on_devices, random_field, save, tiny

from simulator.archive.manifest import (
    Axis,
    BlockEntry,
    Damaged,
    FieldEntry,
    Manifest,
    ShardEntry,
    component_names,
    decode,
    read_manifest,
)
from simulator.archive.shard import Dataset, nonfinite, own_blocks
from simulator.archive.snapshot_reader import open_snapshot
from simulator.errors import UserError


@pytest.fixture
def folder(tmp_path):
    return save(
        tmp_path, 10, tiny(10), {"time": 0.1 + 0.2, "config": "a: [1,  2]\n", "deep": {"k": [1, 2]}}
    )


def test_attributes_and_times_come_back_exactly(folder):
    snapshot = open_snapshot(folder)
    assert snapshot.time == 0.1 + 0.2 and snapshot.step == 10
    assert snapshot.attributes == {
        "time": 0.1 + 0.2,
        "config": "a: [1,  2]\n",
        "deep": {"k": [1, 2]},
    }
    assert snapshot.fields == ["velocity", "counter", "time"]


def test_every_flipped_bit_and_truncation_is_found(folder):
    path = folder / "manifest.json"
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    places = [
        *range(8),
        *range(8 * len(good) - 8 * 45, 8 * len(good)),
        *rng.integers(0, 8 * len(good), 300),
    ]
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


def test_foreign_folders_and_another_version_are_the_users_mistake(tmp_path, folder):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_text(json.dumps({"format": "another"}))
    (tmp_path / "file").write_text("x")
    (tmp_path / ".tmp-00000001-ab").mkdir()
    for name, message in {
        "absent": "no such",
        ".": r"no manifest\.json",
        "other": "not a manifest of this program",
        "file": "not a folder",
        ".tmp-00000001-ab": "never finished",
    }.items():
        with pytest.raises(UserError, match=message):
            read_manifest(tmp_path / name)
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
    manifest = Manifest(
        step=1, time=0, fields={"p": FieldEntry(dtype="<f8", axes=grid(4))}, shards=(shard,)
    )
    assert manifest.problems() == ["the blocks of p do not tile (4,)"]
    with pytest.raises(Damaged, match="tile"):
        decode(manifest.encode(), tmp_path / "manifest.json")


def test_shards_outside_the_folder_are_refused(tmp_path):
    shard = ShardEntry(file="../../etc/passwd", bytes=1, xxh3="0", blocks={})
    manifest = Manifest(step=1, time=0, fields={}, shards=(shard,))
    with pytest.raises(Damaged, match="shard name"):
        decode(manifest.encode(), tmp_path / "manifest.json")


@pytest.mark.spmd
@pytest.mark.parametrize(
    ("mesh", "split"),
    [
        ((1,), (None, None, None, None)),
        ((2,), (None, 0, None, None)),
        ((4,), (None, None, 0, None)),
        ((8,), (None, None, None, 0)),
        ((2, 4), (None, 0, 1, None)),
        ((4, 2), (None, 1, None, 0)),
        ((2, 4), (None, None, 1, None)),  # replicated over the first mesh axis
        ((8,), (None, None, None, None)),  # replicated
    ],
)
def test_every_entry_is_in_one_block_and_padding_in_none(tmp_path, mesh, split):
    """A manifest is refused unless the blocks tile their field."""
    values = random_field(3, 5, 6, 7)
    stored = Dataset("u", on_devices(values, mesh, split), grid(5, 6, 7), XYZ)
    assert_array_equal(open_snapshot(save(tmp_path, 1, [stored]))["u"][...], values)


@pytest.mark.spmd
def test_a_device_with_nothing_but_padding_stores_nothing():
    values = random_field(9, 2, 2)  # 8 devices, 2 planes each: the last three hold padding only
    blocks = own_blocks(Dataset("p", on_devices(values, (8,), (0, None, None)), grid(9, 2, 2)), 0)
    assert [b.start[0] for b in blocks] == [0, 2, 4, 6, 8]
    assert sum(len(b.data) for b in blocks) == 9


def test_the_buffers_can_be_donated_right_after():
    array = on_devices(np.arange(100_000.0), (2,), (0,))
    array = jax.jit(lambda a: a + 1)(array)  # now its memory is JAX's own
    before = [shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards]
    blocks = own_blocks(Dataset("a", array, (Axis.uniform("x", 100_000, 1.0),)), 0)
    after = jax.jit(lambda a: a * 0 - 1, donate_argnums=0)(array)
    assert [shard.data.unsafe_buffer_pointer() for shard in after.addressable_shards] == before
    assert_array_equal(np.concatenate([b.data for b in blocks]), np.arange(1, 100_001.0))


def test_what_is_no_device_array_is_stored_by_the_first_process_only():
    dataset = Dataset("time", 0.1)
    assert [b.data[()] for b in own_blocks(dataset, 0)] == [0.1]
    assert own_blocks(dataset, 1) == []


def test_components_have_openpmd_names():
    assert [n for _, n in component_names(XYZ)] == ["x", "y", "z"]
    assert [n for _, n in component_names((("x", "y"), ("x", "y")))] == ["xx", "xy", "yx", "yy"]
    assert [n for _, n in component_names((("a0", "a1"), ("x",)))] == ["a0_x", "a1_x"]
    assert list(component_names(())) == [((), "")]


def test_non_finite_values_are_counted_across_pieces():
    values = np.zeros(1_000_000)
    values[[0, 262_143, 262_144, 999_999]] = [np.nan, np.inf, -np.inf, np.nan]
    assert nonfinite(values) == 4 and nonfinite(values[1:262_143]) == 0
    assert nonfinite(np.array([1 + 1j * np.nan])) == 1 and nonfinite(np.arange(3)) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dataset("a/b", 1.0), "slash"),
        (lambda: Dataset("u", np.zeros((3, 4)), grid(4), (("x", "y"),)), "components"),
        (lambda: Dataset("u", np.zeros(3), grid(4)), "axes \\(4,\\)"),
        (lambda: Dataset("key", jax.random.key(0)), "cannot store|data type"),
        (lambda: Dataset("s", np.array("text")), "cannot store"),
        (lambda: Axis.modes("kx", [0, 1, 1]), "different labels"),
    ],
)
def test_what_cannot_be_stored_is_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()
