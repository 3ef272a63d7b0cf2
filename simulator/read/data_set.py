"""All snapshots of a run as one xarray data set."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.errors import UserError
from simulator.storage.manifest import FieldEntry
from simulator.storage.reader import Snapshot, StoredField
from simulator.storage.time_index import dimensions

if TYPE_CHECKING:
    import xarray

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
