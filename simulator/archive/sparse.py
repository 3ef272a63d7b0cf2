"""HDF5 files in which HDF5 makes only the structure, in memory, and this program writes the data.

Data sets are contiguous, allocated early and never filled, so HDF5 only assigns their offsets and writes a few
kilobytes of structure into the pages kept here. The caller then writes pages and data in the order of the
file: any size without a copy, and a full disk is a plain OSError.
"""

import io
import os
from collections.abc import Iterable, Iterator

import h5py
import numpy as np

_PAGE = 1 << 12


class Pages(io.RawIOBase):
    """A sparse file in memory: only written pages are held, the rest reads as zeros."""

    def __init__(self) -> None:
        super().__init__()
        self._pages: dict[int, bytearray] = {}
        self._position = 0
        self.size = 0

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        self._position = base + offset
        return self._position

    def truncate(self, size: int | None = None) -> int:
        self.size = self._position if size is None else size
        return self.size

    def readinto(self, buffer) -> int:
        view = memoryview(buffer).cast("B")
        view[:] = bytes(len(view))
        for offset, page, begin, n in self._parts(len(view)):
            if page in self._pages:
                view[offset : offset + n] = self._pages[page][begin : begin + n]
        self._position += len(view)
        return len(view)

    def write(self, buffer) -> int:
        view = memoryview(buffer).cast("B")
        for offset, page, begin, n in self._parts(len(view)):
            self._pages.setdefault(page, bytearray(_PAGE))[begin : begin + n] = view[offset : offset + n]
        self._position += len(view)
        self.size = max(self.size, self._position)
        return len(view)

    def _parts(self, count: int) -> Iterator[tuple[int, int, int, int]]:
        """(offset in the buffer, page, first byte in the page, bytes) of the next `count` bytes."""
        offset = 0
        while offset < count:
            page, begin = divmod(self._position + offset, _PAGE)
            n = min(_PAGE - begin, count - offset)
            yield offset, page, begin, n
            offset += n


def reserve(group: h5py.Group, name: str, shape: tuple[int, ...], dtype: np.dtype) -> h5py.Dataset:
    """A data set with an offset in the file (`dataset.id.get_offset()`) whose bytes HDF5 never writes."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    kind = h5py.h5t.py_create(dtype, logical=True)
    space = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
    return h5py.Dataset(h5py.h5d.create(group.id, name.encode(), kind, space, properties))


def stream(pages: Pages, data: Iterable[tuple[int, np.ndarray]]) -> Iterator[memoryview]:
    """The bytes of the whole file in order. `data`: (offset, array), by ascending offset."""
    position = 0
    for offset, array in data:
        pages.seek(position)
        yield memoryview(pages.read(offset - position) or b"")
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        position = offset + array.nbytes
    pages.seek(position)
    yield memoryview(pages.read(pages.size - position) or b"")
