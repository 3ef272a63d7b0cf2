"""Fields that are rounded in shells of wavenumbers: every shell keeps its relative error.

The shards hold integers q of the Fourier coefficients u(k) of all grid points: in shell s

    u(k) = step_s q(k),  the real and the imaginary part each rounded to the nearest integer,

which adds noise of variance step_s^2 / 12 to each part. With steps in proportion to the amplitude
of their shell, a shell of any amplitude takes about log2(1 / error) + 1/4 bits a number, 1/4 above
the least number of bits for which a Gaussian field has this error (Gish & Pierce, IEEE Trans. Inf.
Theory 14, 676 (1968)). A coefficient of zero costs nothing: those that dealiasing removes, and
shells whose amplitude per mode is below the round-off of the values at the points.

Integers are stored without sign, 2 q for q >= 0 and -2 q - 1 for q < 0, so that their upper bytes
are rarely used. Compression is Huffman's code of each byte, in the format of gzip: search for
repeated texts, which gzip does as well, costs time and lengthens noise.

The error of a shell is the larger one of |du| / |u|, of the sums over its modes and all components,
and of |dE| / E of its energy. The box mean, a shell of its own, is not rounded."""

import math
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from itertools import product

import h5py
import numpy as np

from simulator.archive.manifest import Axis, FieldEntry, Rounding

MOST_KEPT = 1 << 30
"""Bytes of values that a process keeps for further slices of the same fields."""


def bits(error: float) -> float:
    """About the bits of a number that is rounded to this relative error, and compressed."""
    return math.log2(1 / error) + 0.4


def shell_numbers(
    axes: Sequence[Axis], lengths: dict[str, float], shell_width: float
) -> np.ndarray:
    """The shell of each mode: 0 for the box mean, n + 1 for the others of shell n."""
    from simulator.spectral.grid import shell_at

    squared = np.zeros((1,) * len(axes))
    for i, axis in enumerate(axes):
        k = 2 * np.pi / lengths[axis.name] * axis.coordinates
        squared = squared + np.expand_dims(k**2, [j for j in range(len(axes)) if j != i])
    numbers = shell_at(np.sqrt(squared) / shell_width).astype(np.int64) + 1
    return np.where(squared == 0, 0, numbers)


def _rounded(entry: FieldEntry) -> Rounding:
    assert entry.rounded is not None
    return entry.rounded


def shells_of(entry: FieldEntry, start: Sequence[int], shape: Sequence[int]) -> np.ndarray:
    """The shell of each mode in a block of a rounded field."""
    record = _rounded(entry)
    lengths = {axis.name: axis.size * (axis.spacing or 0.0) for axis in entry.axes}
    axes = [
        Axis.modes(axis.name, axis.coordinates[first : first + n])
        for axis, first, n in zip(record.axes, start, shape, strict=True)
    ]
    return shell_numbers(axes, lengths, record.shell_width)


def signed(integers: np.ndarray) -> np.ndarray:
    """q, in double precision, of the stored integers."""
    half = (integers >> 1).astype(np.float64)
    return np.where(integers & 1, -half - 1, half)


def values_of(entry: FieldEntry, component: int, integers: np.ndarray) -> np.ndarray:
    """The values of one component at the points, from its integers (part, modes)."""
    record = _rounded(entry)
    shells = shells_of(entry, [0] * len(record.axes), integers.shape[1:])
    parts = signed(integers) * np.array(record.steps)[shells]
    parts[:, shells == 0] = np.array(record.mean).reshape(-1, 2)[component][:, None]
    names = [axis.name for axis in record.axes]
    order = [names.index(axis.name) for axis in entry.axes]
    modes = (parts[0] + 1j * parts[1]).transpose(order)
    points = entry.extents
    is_real = np.dtype(entry.dtype).kind == "f"
    extents = (*points[:-1], points[-1] // 2 + 1) if is_real else points
    every = np.zeros(extents, complex)
    places = (record.axes[i].coordinates % n for i, n in zip(order, points, strict=True))
    every[np.ix_(*places)] = modes
    values = (
        np.fft.irfftn(every, points, range(len(points)), norm="forward")
        if is_real
        else np.fft.ifftn(every, norm="forward")
    )
    return values.astype(entry.dtype)


def energies_of(entry: FieldEntry, start: Sequence[int], integers: np.ndarray) -> np.ndarray:
    """The sums of the squared coefficients of each shell over a block (part, modes) of one
    component; without those of the box mean."""
    record = _rounded(entry)
    shells = shells_of(entry, start, integers.shape[1:])
    squares = (signed(integers) ** 2).sum(0)
    last = entry.axes[-1].name
    if np.dtype(entry.dtype).kind == "f":  # the mode -k is not stored
        place = [axis.name for axis in record.axes].index(last)
        labels = record.axes[place].coordinates[start[place] : start[place] + squares.shape[place]]
        twice = np.where((labels == 0) | (2 * abs(labels) == entry.extents[-1]), 1, 2)
        others = [i for i in range(squares.ndim) if i != place]
        squares = squares * np.expand_dims(twice, others)
    sums = np.bincount(shells.ravel(), squares.ravel(), len(record.steps))
    return sums * np.array(record.steps) ** 2


def energy_problem(entry: FieldEntry, energies: np.ndarray, name: str) -> str | None:
    """Whether a shell of the stored integers has another energy than the field had, within the
    error that the manifest states."""
    record = _rounded(entry)
    exact = np.array(record.energies)
    cut = np.array(record.steps) == 0
    wrong = np.flatnonzero(~cut & (abs(energies - exact) > record.asked * (1 + 1e-6) * exact))
    if not len(wrong):
        return None
    return f"shell {wrong[0] - 1} of {name} has another energy than before rounding"


class _Kept:
    """The values of the last components that were read, at most `MOST_KEPT` bytes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values = OrderedDict[Hashable, np.ndarray]()

    def get(self, key: Hashable, make: Callable[[], np.ndarray]) -> np.ndarray:
        with self._lock:
            if (values := self._values.pop(key, None)) is None:
                values = make()
                values.flags.writeable = False
            self._values[key] = values
            while sum(v.nbytes for v in self._values.values()) > MOST_KEPT:
                self._values.popitem(last=False)
            return values


KEPT = _Kept()


def write_integers(
    parent: h5py.Group, path: str, data: np.ndarray, chunk: tuple[int, ...]
) -> h5py.Dataset:
    """Write a data set that HDF5 reads by its filters shuffle and gzip."""
    stored = parent.create_dataset(
        path, data.shape, data.dtype, chunks=chunk, compression="gzip", shuffle=True
    )
    for corner in product(*(range(0, n, c) for n, c in zip(data.shape, chunk, strict=True))):
        part = data[tuple(slice(i, i + c) for i, c in zip(corner, chunk, strict=True))]
        whole = np.zeros(chunk, data.dtype)
        whole[tuple(map(slice, part.shape))] = part
        planes = whole.reshape(-1, 1).view(np.uint8).T
        code = zlib.compressobj(memLevel=9, strategy=zlib.Z_RLE)
        # A code of its own for each plane, whose bytes have another distribution.
        coded = [code.compress(p.tobytes()) + code.flush(zlib.Z_SYNC_FLUSH) for p in planes]
        stored.id.write_direct_chunk(corner, b"".join([*coded, code.flush()]))
    return stored
