"""All snapshots of a run as one xarray data set."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.archive.index import dimensions
from simulator.archive.manifest import FieldEntry
from simulator.archive.reader import Snapshot, StoredField
from simulator.errors import UserError

if TYPE_CHECKING:
    import xarray
if TYPE_CHECKING:
    from yt.data_objects.static_output import Dataset

_TEXT_LENGTH = 65536
"""Longer text is left out of the attributes of a data set, which people print."""


def data_set(path: Path, snapshots: Sequence[Snapshot]) -> "xarray.Dataset":
    """Every stored field of `snapshots` as (time, component, x, y, z), lazily: one dask task for each block in a
    shard. A snapshot that lacks a field is nan there. Raises UserError if xarray or dask is not installed, or if
    there are no snapshots.
    """
    try:
        import dask.array
        import xarray
    except ImportError as error:
        raise UserError(
            f"to_xarray needs the package {error.name}: pip install 'simulator[readers]'"
        ) from None
    if not snapshots:
        raise UserError(f"{path}: no snapshot yet")
    variables: dict[str, Any] = {}
    coordinates: dict[str, Any] = {
        "time": ("time", np.array([s.time for s in snapshots])),
        "step": ("time", np.array([s.step for s in snapshots])),
    }
    for name, entry in _meshes(snapshots).items():
        kind = np.result_type(*(s[name].dtype for s in snapshots if name in s))
        parts = []
        for snapshot in snapshots:
            if name not in snapshot or snapshot[name].shape != entry.shape:
                parts.append(dask.array.full(entry.shape, np.nan, dtype=kind))
                continue
            stored = snapshot[name]
            chunks: Any = (*((1,) * len(names) for names in entry.components), *_chunks(stored))
            token = f"{snapshot.path.absolute()}-{name}-{snapshot.manifest.shards[0].xxh3}"
            lazy = dask.array.from_array(
                stored,
                chunks,
                name=token,
                lock=False,
                asarray=False,
                fancy=False,
                meta=np.empty(0, stored.dtype),
            )
            parts.append(lazy.astype(kind))
        axes = dimensions(entry)
        variables[name] = (
            ("time", *(axis for axis, _ in axes)),
            dask.array.stack(parts),
            dict(entry.attributes),
        )
        for axis, values in axes:
            coordinates[axis] = (axis, values.astype(str) if values.dtype.kind == "S" else values)
    attributes = {
        key: value if isinstance(value, str | float | int) else json.dumps(value)
        for key, value in snapshots[-1].attributes.items()
        if key not in ("time", "dt", "step") and len(str(value)) < _TEXT_LENGTH
    }
    return xarray.Dataset(variables, coordinates, attributes)


def _meshes(snapshots: Sequence[Snapshot]) -> dict[str, FieldEntry]:
    """The fields over space or wavenumbers of all snapshots, each as the newest snapshot with that field describes
    it."""
    fields: dict[str, FieldEntry] = {}
    for snapshot in snapshots:
        fields |= {name: entry for name, entry in snapshot.manifest.fields.items() if entry.is_mesh}
    return fields


def _chunks(stored: StoredField) -> list[tuple[int, ...]]:
    """The extents of the blocks along each axis, such that every chunk lies in one shard."""
    pieces = list(stored.pieces)
    chunks = []
    for axis, size in enumerate(stored.entry.extents):
        bounds = sorted({piece.block.start[axis] for piece in pieces} | {size})
        chunks.append(tuple(b - a for a, b in itertools.pairwise(bounds)))
    return chunks


def yt_data(snapshot: Snapshot) -> "Dataset":
    """The fields over x, y and z, or x and y, read when yt needs them; yt holds a plane as a box of one layer of unit
    depth. Vectors become `NAME_x`, ..., with units in `code_length`,
    `code_time` and `code_mass`; a wave function becomes its real and imaginary parts, `NAME_real` and `NAME_imag`.
    `velocity` and `density` are also yt's own gas fields, from which it derives `vorticity_x`, ... Raises UserError
    if yt is not installed or there is no such field.
    """
    try:
        import yt
    except ImportError as error:
        raise UserError(f"to_yt needs the package {error.name}: pip install 'simulator[readers]'") from None
    fields: dict[tuple[str, str], Any] = {}
    shape: tuple[int, ...] = ()
    for name, stored in snapshot.items():
        if len(stored.axes) not in (2, 3) or any(axis.spacing is None for axis in stored.axes):
            continue
        shape = stored.entry.extents
        units = _units(str(stored.attributes.get("units", "")))
        for index, path in stored.entry.component_paths(name):
            suffix = path.removeprefix(name).replace("/", "_")
            if stored.dtype.kind == "c":
                fields["stream", f"{name}{suffix}_real"] = (_reader(stored, index, "real"), units)
                fields["stream", f"{name}{suffix}_imag"] = (_reader(stored, index, "imag"), units)
            else:
                fields["stream", f"{name}{suffix}"] = (_reader(stored, index, None), units)
    if not fields:
        raise UserError(f"{snapshot.path}: holds no field over x, y and z, or over x and y")
    first = next(s for s in snapshot.values() if s.entry.extents == shape)
    edges = [[a.origin, a.origin + a.size * (a.spacing or 1.0)] for a in first.axes]
    layer = 3 - len(shape)
    return yt.load_uniform_grid(  # pyright: ignore[reportPrivateImportUsage]
        fields,
        (*shape, *(1,) * layer),
        length_unit=1.0,
        mass_unit=1.0,
        time_unit=1.0,
        bbox=np.array([*edges, *[[0.0, 1.0]] * layer]),
        sim_time=snapshot.time,
        periodicity=(True, True, True),
        dataset_name=str(snapshot.path),
        unit_system="code",
    )


def _units(text: str) -> str:
    """`length/time^2` in yt's notation; empty if the run's units are not dimensions."""
    units = text.replace("^", "**")
    for dimension in ("length", "time", "mass"):
        units = units.replace(dimension, f"code_{dimension}")
    return units.replace(" ", "*") if "code_" in units or not units else ""


def _reader(stored: StoredField, index: tuple[int, ...], part: str | None) -> Any:
    def read(grid: object, name: object) -> np.ndarray:
        values = stored[(*index, ...)]
        values = np.ascontiguousarray(values if part is None else getattr(values, part), np.float64)
        return values if values.ndim == 3 else values[..., None]

    return read
