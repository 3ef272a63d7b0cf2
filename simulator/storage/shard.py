"""One process's file: its blocks of every field as an HDF5 image in memory, and the record of it.

The image is made by HDF5's core driver and written by the caller: a full disk is then a plain OSError,
where HDF5 writing to the disk itself may return, fail at close and bring down the interpreter. The format
is `v110`: a file whose writer was killed does not open as if it were whole. Memory: one more copy of the
blocks while the image is taken; blocks are released as they enter it.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xxhash

from simulator.errors import UserError
from simulator.storage.dataset import Block, nonfinite
from simulator.storage.manifest import BlockEntry, FieldEntry, ShardEntry

COMPRESSIONS = ("none", "gzip", "blosc2")
LIBVER = ("v110", "v110")
_CHUNK_BYTES = 1 << 20


def shard_name(process_id: int) -> str:
    return f"shards/p{process_id:05d}.h5"


def load_filters(compression: str) -> Mapping[str, Any]:
    """Arguments of `create_dataset` for a compression; registers the filter so that it can be read, too.

    Raises UserError for an unknown name, or where the filter's package is not installed.
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
    raise UserError(f"compression {compression!r}: one of {', '.join(COMPRESSIONS)}")


def open_shard(path: Path) -> h5py.File:
    """Open an HDF5 file for reading, without locks: file systems of clusters often have none.

    Raises OSError as it comes.
    """
    try:
        return h5py.File(path, "r", locking=False)
    except OSError as error:
        if "locking flag" not in str(error):
            raise
        return h5py.File(path, "r")  # this process has it open already, with locks


def chunk_shape(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Chunks of at most about 1 MiB that are whole in the last axes, where neighbours in memory lie."""
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
    blocks: dict[str, list[Block]],
    compression: str = "none",
) -> tuple[bytes, ShardEntry]:
    """The image of this process's file and its record. `blocks` is emptied on the way."""
    filters = load_filters(compression)
    parts = sum(
        b.data.nbytes + 8192 * math.prod(map(len, fields[f].components)) for f in blocks for b in blocks[f]
    )
    room = (1 << 20) + (parts if not filters else parts // 4)
    entries: dict[str, tuple[BlockEntry, ...]] = {}
    with h5py.File(
        "shard", "w", driver="core", backing_store=False, block_size=room, libver=LIBVER, locking=False
    ) as file:
        for name in list(blocks):
            entry, recorded = fields[name], []
            for number, block in enumerate(blocks[name]):
                leading = len(entry.components)
                recorded.append(
                    BlockEntry(
                        start=block.start, shape=block.data.shape[leading:], nonfinite=nonfinite(block.data)
                    )
                )
                for index, path in entry.component_paths(name):
                    _store(file, f"{path}/{number}", block.data[index], block.start, filters)
                block.data = np.empty(0)
            entries[name] = tuple(recorded)
            del blocks[name]
        file.flush()
        image = file.id.get_file_image()
    record = ShardEntry(
        file=shard_name(process_id), bytes=len(image), xxh3=xxhash.xxh3_64_hexdigest(image), blocks=entries
    )
    return image, record


def _store(
    file: h5py.File, path: str, data: np.ndarray, start: tuple[int, ...], filters: Mapping[str, Any]
) -> None:
    chunked = (
        {**filters, "chunks": chunk_shape(data.shape, data.dtype.itemsize)} if filters and data.ndim else {}
    )
    stored = file.create_dataset(path, data=data, **chunked)
    if start:
        stored.attrs["start"] = np.array(start, dtype=np.int64)
