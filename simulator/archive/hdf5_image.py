"""HDF5 files that are written into file objects, such as files in memory, and sealed files."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import h5py

from simulator.archive.manifest import LIBVER
from simulator.archive.seal import Seal
from simulator.files import TEMPORARY, with_path, write_durably

Fill = Callable[[h5py.File], None]
SEAL = Seal(b"simulator xxh3 ")
"""The seal behind the bytes of HDF5, which ignores it."""
# Bytes.
_IN_MEMORY = 1 << 26
_PIECE = 1 << 20


class _Image:
    """A file object that keeps its first error of the system."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.error: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._file, name)

        def call(*arguments: Any) -> Any:
            try:
                return method(*arguments)
            except OSError as error:
                self.error = self.error or error
                raise

        return call


@contextlib.contextmanager
def hdf5_into(file: IO[bytes], libver: str | tuple[str, str], path: Path) -> Iterator[h5py.File]:
    """An HDF5 file that is written into the file object `file`, to be stored at `path`.

    HDF5 and h5py lose the errors of `file`, or replace them by errors of their own. Raises the
    OSError of the system, which names `path`."""
    image = _Image(file)
    try:
        with h5py.File(image, "w", libver=libver) as written:
            yield written
    except Exception:
        if image.error is None:
            raise
    if image.error is not None:
        raise with_path(image.error, path)


def write_sealed(path: Path, fill: Fill, origin: bytes = b"") -> None:
    """Replace `path` by an HDF5 file that `fill` has filled, followed by its seal, which covers
    `origin` too. Raises OSError."""
    with tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=str(path.parent), prefix=TEMPORARY) as image:
        with hdf5_into(image, LIBVER, path) as file:
            fill(file)
        image.seek(0)
        pieces = iter(partial(image.read, _PIECE), b"")
        # A power failure may cut the file short; its seal shows that, and it is written again.
        write_durably(path, SEAL.pieces(pieces, origin), sync=False)
