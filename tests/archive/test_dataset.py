import jax
import numpy as np
import pytest
from storage_support import XYZ, grid, on_devices, random_field

from simulator.archive.manifest import Axis, component_names
from simulator.archive.shard import Dataset, nonfinite, own_blocks


def assemble(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """The array put together from the blocks, and how many blocks hold each entry."""
    leading = tuple(len(c) for c in dataset.components)
    shape = (*leading, *(a.size for a in dataset.axes))
    whole, count = np.zeros(shape, dataset.dtype), np.zeros(shape, int)
    for block in own_blocks(dataset, 0):
        at = tuple(slice(s, s + n) for s, n in zip(block.start, block.data.shape[len(leading) :], strict=True))
        whole[(..., *at)] = block.data
        count[(..., *at)] += 1
    return whole, count


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
def test_every_entry_is_in_one_block_and_padding_in_none(mesh, split):
    values = random_field(3, 5, 6, 7)
    whole, count = assemble(Dataset("u", on_devices(values, mesh, split), grid(5, 6, 7), XYZ))
    np.testing.assert_array_equal(whole, values)
    assert (count == 1).all()


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
    np.testing.assert_array_equal(np.concatenate([b.data for b in blocks]), np.arange(1, 100_001.0))


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
