"""The shard of one process: its blocks of every field as an HDF5 image in memory, and the record of it.

The image is built in memory and written by the caller, so that a full disk is a plain OSError; when HDF5
itself writes to a full disk, it may report success, fail at close and crash the interpreter. The format is
`v110`, in which a file whose writer was killed does not open. The file in memory is closed before its bytes
are read: HDF5 1.14's image of an open `v110` file has a wrong checksum.
"""

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xxhash

from simulator.archive.dataset import Block, nonfinite
from simulator.archive.manifest import BlockEntry, FieldEntry, ShardEntry
from simulator.archive.sparse import Pages, reserve, stream
from simulator.errors import UserError

COMPRESSIONS = ("none", "gzip", "blosc2")
LIBVER = ("v110", "v110")
_CHUNK_BYTES = 1 << 20


def shard_name(process_id: int) -> str:
    return f"shards/p{process_id:05d}.h5"


def load_filters(compression: str) -> Mapping[str, Any]:
    """Arguments of `create_dataset` for a compression; also registers the filter for reading.

    Raises UserError for an unknown name, or if the filter's package is not installed.
    """
    match compression:
        case "none":
            return {}
        case "gzip":
            return {"compression": "gzip", "compression_opts": 1, "shuffle": True, "fletcher32": True}
        case "blosc2":
            try:
                import hdf5plugin
            except ImportError:
                raise UserError(
                    "compression blosc2 needs the package hdf5plugin (pip install hdf5plugin); or use gzip"
                ) from None
            return {
                **hdf5plugin.Blosc2(cname="zstd", clevel=1, filters=hdf5plugin.Blosc2.SHUFFLE),
                "fletcher32": True,
            }
    raise UserError(f"compression {compression!r}: must be one of {', '.join(COMPRESSIONS)}")


def open_shard(path: Path) -> h5py.File:
    """Open an HDF5 file for reading, without locks, which file systems of clusters often lack.

    Raises OSError.
    """
    try:
        return h5py.File(path, "r", locking=False)
    except OSError as error:
        if "locking flag" not in str(error):
            raise
        return h5py.File(path, "r")  # this process has it open already, with locks


def chunk_shape(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Chunks of at most about 1 MiB that are contiguous in memory: whole in the last axes."""
    chunk, room = list(shape), _CHUNK_BYTES // itemsize
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
    compression: str = "none",
) -> tuple[list[memoryview], ShardEntry]:
    """The bytes of this process's file, in pieces to be written in order, and its record.

    Without compression the pieces are views of the blocks, with a few kilobytes of HDF5 structure between them.
    """
    filters = load_filters(compression)
    parts = [
        (f"{path}/{number}", block, block.data[(*index, ...)])
        for name, own in blocks.items()
        for number, block in enumerate(own)
        for index, path in fields[name].component_paths(name)
    ]
    pieces = _compressed(parts, filters) if filters else _plain(parts)
    digest = xxhash.xxh3_64()
    for piece in pieces:
        digest.update(piece)
    record = ShardEntry(
        file=shard_name(process_id),
        bytes=sum(len(piece) for piece in pieces),
        xxh3=digest.hexdigest(),
        blocks={name: tuple(_block_entry(fields[name], b) for b in own) for name, own in blocks.items()},
    )
    return pieces, record


def _block_entry(entry: FieldEntry, block: Block) -> BlockEntry:
    shape = block.data.shape[len(entry.components) :]
    return BlockEntry(start=block.start, shape=shape, nonfinite=nonfinite(block.data))


def _plain(parts: list[tuple[str, Block, np.ndarray]]) -> list[memoryview]:
    pages = Pages()
    placed: list[tuple[int, np.ndarray]] = []
    with h5py.File(pages, "w", libver=LIBVER) as file:
        for path, block, data in parts:
            parent, _, name = path.rpartition("/")
            stored = reserve(file.require_group(parent), name, data.shape, data.dtype)
            _mark(stored, block)
            placed.append((stored.id.get_offset() or 0, data))
    return list(stream(pages, sorted(placed, key=lambda p: p[0])))


def _compressed(parts: list[tuple[str, Block, np.ndarray]], filters: Mapping[str, Any]) -> list[memoryview]:
    image = io.BytesIO()
    with h5py.File(image, "w", libver=LIBVER) as file:
        for path, block, data in parts:
            chunked = {**filters, "chunks": chunk_shape(data.shape, data.dtype.itemsize)} if data.ndim else {}
            _mark(file.create_dataset(path, data=data, **chunked), block)
    return [image.getbuffer()]


def _mark(stored: h5py.Dataset, block: Block) -> None:
    """Record the block's position as an attribute, for people who inspect a shard."""
    if block.start:
        stored.attrs["start"] = np.array(block.start, dtype=np.int64)
