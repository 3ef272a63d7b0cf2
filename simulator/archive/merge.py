"""Merges the shards of a snapshot into one ordinary HDF5 file, in bounded memory.

The layout is that of the index file, with real data sets instead of virtual ones.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

from simulator.archive.index import lay_out
from simulator.archive.manifest import FieldEntry
from simulator.archive.reader import StoredField, open_snapshot
from simulator.archive.shard import LIBVER, Pages, reserve, stream
from simulator.archive.verify import verify
from simulator.errors import RunFailure, UserError
from simulator.files import reason, sync_folder, write_durably

_PIECE_BYTES = 32 << 20


def merge(source: str | Path, out: str | Path, *, overwrite: bool = False) -> int:
    """Write the snapshot `source` as the single file `out`; returns its size in bytes. Memory: about 64 MiB.

    The snapshot is verified first. Raises UserError if `source` is not a snapshot, or if `out` exists (unless
    `overwrite`) or has no folder; RunFailure if the snapshot is damaged or the file cannot be written.
    """
    snapshot, out = open_snapshot(source), Path(out)
    if out.exists() and not overwrite:
        raise UserError(f"{out}: exists; choose another name, or add --overwrite")
    if out.is_dir() or not out.parent.is_dir():
        raise UserError(f"{out}: not a file in an existing folder")
    bad = [
        c for c in verify(snapshot.path).problems if not c.derived and "not finite" not in (c.problem or "")
    ]
    if bad:
        raise RunFailure(f"{bad[0].file}: {bad[0].problem}; nothing was merged")

    pages = Pages()
    places: dict[str, tuple[int, tuple[int, ...]]] = {}
    components = {
        path: index
        for name, entry in snapshot.manifest.fields.items()
        for index, path in entry.component_paths(name)
    }

    def make(group: h5py.Group, name: str, entry: FieldEntry, field: str, path: str) -> h5py.Dataset:
        made = reserve(group, name, entry.extents, np.dtype(entry.dtype))
        if (offset := made.id.get_offset()) is not None:  # None: an axis of length 0
            places[path] = (offset, components[path])
        return made

    with h5py.File(pages, "w", libver=LIBVER) as file:
        lay_out(file, snapshot.manifest, make)

    order = sorted(places, key=lambda path: places[path][0])
    data = (part for path in order for part in _parts(snapshot[path.partition("/")[0]], path, places[path]))
    try:
        write_durably(out, stream(pages, data))
        sync_folder(out.parent)
    except OSError as error:
        raise RunFailure(f"{out} was not written: {reason(error)}") from None
    return pages.size


def _parts(
    field: StoredField, path: str, place: tuple[int, tuple[int, ...]]
) -> Iterator[tuple[int, np.ndarray]]:
    begin, component = place
    itemsize = field.dtype.itemsize
    for bounds, first in _pieces(field.entry.extents, _PIECE_BYTES // itemsize):
        yield begin + first * itemsize, field.read(component, bounds)


def _pieces(shape: tuple[int, ...], limit: int) -> Iterator[tuple[tuple[slice, ...], int]]:
    """Contiguous pieces of at most `limit` entries: their bounds and the flat index of their first entry."""
    if not shape:
        yield (), 0
        return
    row = math.prod(shape[1:])
    if row > limit:
        for i in range(shape[0]):
            for bounds, first in _pieces(shape[1:], limit):
                yield (slice(i, i + 1), *bounds), i * row + first
        return
    step = max(1, limit // max(row, 1))
    for i in range(0, shape[0], step):
        n = min(step, shape[0] - i)
        yield (slice(i, i + n), *(slice(None) for _ in shape[1:])), i * row
