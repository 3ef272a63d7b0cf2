"""Arrays of values on a grid in the files of other programs, read part by part."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
from numpy.typing import DTypeLike

from simulator.errors import UserError, did_you_mean
from simulator.files import lies_elsewhere, reading
from simulator.spectral.layout import PhysicalLayout

_MOST_NAMES = 20  # data sets that a refusal names


class ArrayFile:
    """An array (component, x, y, z), or (x, y, z) of a scalar, in a file `.npy` or in the data set
    `dataset` of an HDF5 file. Raises UserError if there is none."""

    def __init__(self, path: str, dataset: str | None):
        self.path = Path(path)
        self.dataset = dataset
        if (self.path.suffix == ".npy") != (dataset is None):
            if dataset is not None:
                raise UserError(f"{path}: a .npy file has no data sets; leave {dataset!r} out")
            raise UserError(
                f"{path}: is no .npy file; name the data set of an HDF5 file, as in {path}:/density"
            )
        with _opened(self.path, self.dataset) as array:
            self.shape: tuple[int, ...] = tuple(array.shape)
            self.dtype = np.dtype(array.dtype)
        if self.dtype.kind not in "iufc":
            raise UserError(f"{path}: holds {self.dtype.name}; numbers are needed")

    def read(self, index: tuple[slice, ...]) -> np.ndarray:
        """A part of the array."""
        with _opened(self.path, self.dataset) as array:
            return np.asarray(array[index])

    def values(self, place: PhysicalLayout, lead: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
        """The array on the points of `place`, zero in padding; a device reads its part only."""
        shape = (*lead, *place.seen_shape)

        def part(index: tuple[slice, ...] | None) -> np.ndarray:
            assert index is not None
            bounds = [s.indices(n)[:2] for s, n in zip(index, shape, strict=True)]
            out = np.zeros([stop - start for start, stop in bounds], dtype)
            stored = [
                slice(start, max(start, min(stop, n)))
                for (start, stop), n in zip(bounds, self.shape, strict=True)
            ]
            extents = [s.stop - s.start for s in stored]
            if math.prod(extents):
                out[tuple(map(slice, extents))] = self.read(tuple(stored))
            return out

        sharding = place.seen_sharding(len(shape))
        return place.from_seen(jax.make_array_from_callback(shape, sharding, part))


def _note(known: list[str], name: str, item: object) -> bool | None:
    """Adds the name of a data set; ends the visit (True) after a few."""
    if isinstance(item, h5py.Dataset):
        known.append(name)
    return len(known) == _MOST_NAMES or None


@contextmanager
def _opened(path: Path, dataset: str | None) -> Iterator[Any]:
    """The array of a file; UserError for one that cannot be read, also in the `with` block."""
    try:
        with reading(path):
            if dataset is None:
                array = np.lib.format.open_memmap(path, mode="r")
                if (more := path.stat().st_size - array.offset - array.nbytes) > 0:
                    raise OSError(f"has {more} bytes more than its header says")
                yield array
                return
            with h5py.File(path, "r", locking=False) as content:
                found = content.get(dataset, None)
                if isinstance(found, h5py.Dataset) and found.shape is not None:
                    if lies_elsewhere(found, content):
                        raise UserError(
                            f"{path}: {dataset}: lies in other files, which may change or be missing; "
                            "copy it into this one"
                        )
                    yield found
                    return
                known: list[str] = []
                content.visititems(partial(_note, known))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    have = f"{did_you_mean(dataset, known)} it has {', '.join(known) or 'none'}"
    raise UserError(f"{path}: has no data set {dataset!r}{have}")
