"""Describes the arrays to be saved, and builds the shard of one process: an HDF5 file with the
process's blocks of every array, copied to the host, and the record of that file.

A field on the devices is an array of shape (components..., n0, n1, ...) whose trailing axes are
named. Sharded axes may be padded at their end; only the first `Axis.size` entries are stored.

HDF5 makes only the structure of the file, in memory: without compression data sets are contiguous,
allocated early and never filled, so that HDF5 assigns their offsets and writes a few kilobytes into
a sparse file without a name. The caller writes structure and data in the order of the file, without
a copy, and a full disk is a plain OSError, where HDF5 may crash the interpreter. In the format
`v110` a file whose writer was killed does not open. HDF5 closes the file in memory before its bytes
are read, because HDF5 1.14's image of an open `v110` file has a wrong checksum."""

import io
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import lt
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np

from simulator.archive.hdf5_image import hdf5_into
from simulator.archive.manifest import (
    LIBVER,
    NAMED,
    Axis,
    BlockEntry,
    Compression,
    FieldEntry,
    Rounding,
    ShardEntry,
    load_filters,
)
from simulator.archive.rounding import write_integers
from simulator.files import checksum

_CHUNK_BYTES = 1 << 20
_STRUCTURE = 1 << 9  # The approximate number of bytes that HDF5 adds for each data set.


@dataclass(frozen=True)
class Dataset:
    """An array to be stored under `name`, with its named axes and their extents without padding.

    `array`: jax.Array (sharded in any way over its trailing axes, replicated, or both), or an
    array-like with the same value on every process. `axes`: descriptions of the trailing axes; an
    array without axes (a counter, a time) is small and stored exactly. `components`: names along
    each leading axis, e.g. `(("x", "y", "z"),)`. `hermitian`: whether the array holds modes of a
    real field, with mode -k the conjugate of mode k. `species`: the name of the particles, for a
    record of particles; None for fields. `shares`: for records of particles, whose last axis
    consists of equal parts: the number of entries of each part that are stored, from the first on.
    In the file the stored entries follow one another, and the axis counts them all. `attributes`:
    further JSON values for readers. `rounding`: the record of a rounded field."""

    name: str
    array: Any
    axes: tuple[Axis, ...] = ()
    components: tuple[tuple[str, ...], ...] = ()
    hermitian: bool = False
    species: str | None = None
    shares: tuple[int, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    rounding: Rounding | None = None

    def blocks(self, process_id: int, dtype: np.dtype) -> "list[Block]":
        """`own_blocks`; of a rounded field, those of its integers."""
        return own_blocks(self, process_id, dtype)

    def __post_init__(self) -> None:
        if not NAMED.fullmatch(self.name):
            raise ValueError(
                f"data set {self.name!r}: a name starts with a letter and contains no slash"
            )
        shape = self.shape
        leading = tuple(len(c) for c in self.components)
        if not self.axes:
            axes = tuple(Axis(name=f"dim_{i}", size=n) for i, n in enumerate(shape))
            object.__setattr__(self, "axes", axes)
        extents = tuple(axis.size for axis in self.axes)
        padded = shape[len(leading) :]
        if (
            shape[: len(leading)] != leading
            or len(padded) != len(extents)
            or any(map(lt, padded, extents))
        ):
            raise ValueError(
                f"data set {self.name}: shape {shape} for components {leading}, axes {extents}"
            )
        if self.dtype.kind not in "biufc" or self.dtype.name == "float16":
            raise ValueError(f"data set {self.name}: cannot store {self.dtype}")

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(np.shape(self.array))

    @property
    def dtype(self) -> np.dtype:
        return (
            np.dtype(self.array.dtype)
            if isinstance(self.array, jax.Array)
            else np.asarray(self.array).dtype
        )


@dataclass
class Block:
    """A part of a field in host memory: `data` has shape (components..., extent per axis)."""

    start: tuple[int, ...]
    data: np.ndarray


def own_blocks(dataset: Dataset, process_id: int, dtype: np.dtype | None = None) -> list[Block]:
    """The blocks of `dataset` that this process stores, copied to the host, without padding.

    Over all processes every entry is in exactly one block, because only the first replica is
    stored. Memory: the size of the blocks. The blocks own their memory, so that the devices'
    buffers may be donated at once."""
    dtype = dtype or dataset.dtype
    leading = len(dataset.components)
    if not isinstance(dataset.array, jax.Array):
        if process_id != 0 or not math.prod(dataset.shape):
            return []
        return [Block((0,) * len(dataset.axes), np.array(dataset.array, dtype=dtype, order="C"))]
    shards = [s for s in dataset.array.addressable_shards if s.replica_id == 0]
    for shard in shards:
        shard.data.copy_to_host_async()
    blocks = []
    for shard in shards:
        # Of the padded array.
        bounds = [s.indices(n)[:2] for s, n in zip(shard.index, dataset.shape, strict=True)]
        if any(
            start != 0 or stop != n
            for (start, stop), n in zip(bounds, dataset.shape[:leading], strict=False)
        ):
            raise ValueError(f"data set {dataset.name}: a component axis is sharded")
        if dataset.shares:
            blocks += _shares(dataset, np.asarray(shard.data), bounds[-1][0], dtype)
            continue
        starts = tuple(start for start, _ in bounds[leading:])
        extents = [
            min(stop, a.size) - start
            for (start, stop), a in zip(bounds[leading:], dataset.axes, strict=True)
        ]
        if all(n > 0 for n in extents):
            valid = (slice(None),) * leading + tuple(slice(n) for n in extents)
            # on the CPU np.asarray is a view, and a buffer with a view cannot be donated
            blocks.append(
                Block(starts, np.array(np.asarray(shard.data)[valid], dtype=dtype, order="C"))
            )
    return blocks


def _shares(dataset: Dataset, data: np.ndarray, first: int, dtype: np.dtype) -> list[Block]:
    """The blocks of one device's entries (components..., entries), which begin at the entry
    `first`."""
    extent = dataset.shape[-1] // len(dataset.shares)
    number = first // extent
    parts = data.reshape(*data.shape[:-1], -1, extent)
    offset = sum(dataset.shares[:number])
    blocks = []
    for i, share in enumerate(dataset.shares[number : number + parts.shape[-2]]):
        if share:
            blocks.append(Block((offset,), np.array(parts[..., i, :share], dtype=dtype, order="C")))
        offset += share
    return blocks


def shard_name(process_id: int) -> str:
    return f"shards/p{process_id:05d}.h5"


def chunk_shape(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The shape of chunks of at most about 1 MiB that are contiguous in memory, that is, whole in
    the last axes."""
    chunk = list(shape)
    room = _CHUNK_BYTES // itemsize
    for i in range(len(chunk)):
        rest = math.prod(chunk[i + 1 :])
        chunk[i] = max(1, min(chunk[i], room // max(rest, 1)))
        if chunk[i] > 1:
            break
    return tuple(chunk)


def build_shard(
    process_id: int,
    fields: Mapping[str, FieldEntry],
    blocks: Mapping[str, list[Block]],
    compression: Compression = "none",
) -> tuple[list[memoryview], ShardEntry]:
    """The bytes of this process's shard, in pieces to be written in order, and the shard's record.

    Without compression the pieces are views of the blocks, with a few kilobytes of HDF5 structure
    between them."""
    filters = load_filters(compression)
    parts = [
        (f"{path}/{number}", block, block.data[(*index, ...)])
        for name, of_field in blocks.items()
        for number, block in enumerate(of_field)
        for index, path in fields[name].stored.component_paths(name)
    ]
    integers = {name for name in blocks if fields[name].rounded is not None}
    # The file in memory is sparse: the kernel holds only the pages that HDF5 writes.
    image: Any = io.BytesIO() if filters else io.FileIO(os.memfd_create("shard"), "w+")
    # Raises OSError if the size exceeds the limit for files, a reason that HDF5 would not name.
    if not filters:
        image.truncate(_STRUCTURE * (len(parts) + 2) + sum(data.nbytes for *_, data in parts))
        image.truncate(0)
    placed: list[tuple[int, np.ndarray]] = []
    with hdf5_into(image, LIBVER, Path(shard_name(process_id))) as file:
        for path, block, data in parts:
            if path.partition("/")[0] in integers:
                stored = write_integers(
                    file, path, data, chunk_shape(data.shape, data.dtype.itemsize)
                )
            elif filters:
                chunks = (
                    {**filters, "chunks": chunk_shape(data.shape, data.dtype.itemsize)}
                    if data.ndim
                    else {}
                )
                stored = file.create_dataset(path, data=data, **chunks)
            else:
                parent, _, name = path.rpartition("/")
                stored = reserve(file.require_group(parent), name, data.shape, data.dtype)
                placed.append((stored.id.get_offset() or 0, data))
            if block.start:  # for people who inspect a shard
                stored.attrs["start"] = np.array(block.start, dtype=np.int64)
    pieces = (
        [image.getbuffer()]
        if filters
        else list(file_pieces(image, sorted(placed, key=lambda p: p[0])))
    )
    size, digest = checksum(pieces)
    entries = {
        name: tuple(_block_entry(fields[name], b) for b in own) for name, own in blocks.items()
    }
    return pieces, ShardEntry(file=shard_name(process_id), bytes=size, xxh3=digest, blocks=entries)


def _block_entry(entry: FieldEntry, block: Block) -> BlockEntry:
    shape = block.data.shape[len(entry.stored.components) :]
    return BlockEntry(start=block.start, shape=shape, nonfinite=nonfinite(block.data))


def nonfinite(values: np.ndarray) -> int:
    """Number of NaNs and infinities, counted in pieces that stay in cache."""
    if values.dtype.kind not in "fc":
        return 0
    flat = values.reshape(-1)
    piece = 1 << 18
    pieces = (flat[i : i + piece] for i in range(0, flat.size, piece))
    return flat.size - sum(int(np.count_nonzero(np.isfinite(part))) for part in pieces)


def reserve(group: h5py.Group, name: str, shape: tuple[int, ...], dtype: np.dtype) -> h5py.Dataset:
    """A data set with an offset in the file (`dataset.id.get_offset()`) whose bytes HDF5 never
    writes, and which does not record the time, so that equal data are equal bytes."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    properties.set_obj_track_times(False)
    kind = h5py.h5t.py_create(dtype, logical=True)
    space = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
    return h5py.Dataset(h5py.h5d.create(group.id, name.encode(), kind, space, properties))


def file_pieces(image: io.FileIO, data: Iterable[tuple[int, np.ndarray]]) -> Iterator[memoryview]:
    """The bytes of the whole file in order; closes `image`. `data`: (offset, array), by ascending
    offset."""
    with image:
        size = image.seek(0, os.SEEK_END)
        image.seek(0)
        for offset, array in data:
            yield memoryview(image.read(offset - image.tell()) or b"")
            yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            image.seek(offset + array.nbytes)
        yield memoryview(image.read(max(size - image.tell(), 0)) or b"")
