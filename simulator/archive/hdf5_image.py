"""HDF5 files that are written into file objects, such as files in memory."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import h5py

from simulator.files import with_path


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
