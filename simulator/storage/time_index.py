"""`RUN/snapshots.vtkhdf`: all snapshots of a run as one file that ParaView and xarray open, without a copy.

Below `VTKHDF` it is a temporal VTKHDF image, at its root a netCDF data set: `velocity` (time, component, x, y, z)
with the coordinates `time`, `step`, `x`, `y`, `z`. Both are virtual data sets over the indices and sidecars of the
snapshots, which lead on to the shards; a snapshot adds one entry for each component, whatever its number of shards.
Like those, the file is derived from the manifests.
https://docs.vtk.org/en/latest/vtk_file_formats/vtkhdf_file_format/vtkhdf_specifications.html
"""

import contextlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from simulator.errors import RunFailure, UserError
from simulator.files import UNRECORDED, Journal, write_durably
from simulator.storage.commit import committed_names, derived_files
from simulator.storage.index import as_attribute
from simulator.storage.manifest import FieldEntry, Manifest, read_manifest
from simulator.storage.shard import LIBVER
from simulator.storage.vtkhdf import ROOT, drawn, image

NAME = "snapshots.vtkhdf"
_LISTED = "snapshots"


@dataclass(frozen=True)
class _Entry:
    """One snapshot: its folder's name, its time, and the type of each of its fields."""

    name: str
    time: float
    types: Mapping[str, str]


def write_time_index(parent: Path, journal: Journal = UNRECORDED) -> Path | None:
    """Write the index of all committed snapshots in `parent` (`RUN/snapshots`) beside that folder, replacing any.

    Only manifests of snapshots that the file does not list yet are read, and the newest one, which describes the
    fields; a snapshot that lacks one of them shows nan. Returns the file; None, and removes it, where there are no
    snapshots. Raises OSError as it comes.
    """
    path = parent.with_name(NAME)
    known = {entry.name: entry for entry in _listed(path)}
    entries: list[_Entry] = []
    newest: Manifest | None = None
    names = committed_names(parent)
    for name in names:
        with contextlib.suppress(UserError, RunFailure):  # a damaged snapshot is verify's to report
            if name not in known or name == names[-1]:
                manifest = newest = read_manifest(parent / name)
                types = {n: e.dtype for n, e in manifest.fields.items() if e.is_mesh}
                known[name] = _Entry(name, manifest.time, types)
            entries.append(known[name])
    if newest is None:
        if path.exists():
            journal.removing(path, "no snapshot is left")
            path.unlink()
        return None
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", libver=LIBVER) as file:
        _fill(file, parent, newest, entries)
    write_durably(path, [buffer.getbuffer()], journal)
    return path


def _listed(path: Path) -> Iterator[_Entry]:
    with contextlib.suppress(OSError, KeyError, ValueError), h5py.File(path, "r", locking=False) as file:
        for name, time, types in json.loads(file.attrs[_LISTED].decode()):  # pyright: ignore
            yield _Entry(name, time, types)


def _fill(file: h5py.File, parent: Path, manifest: Manifest, entries: Sequence[_Entry]) -> None:
    times = np.array([entry.time for entry in entries])
    file.attrs[_LISTED] = as_attribute([[e.name, e.time, dict(e.types)] for e in entries])
    for key in ("box", "configuration"):
        if key in manifest.attributes:
            file.attrs[key] = as_attribute(manifest.attributes[key])
    time = file.create_dataset("time", data=times)
    time.make_scale("time")
    step = file.create_dataset("step", data=np.array([int(entry.name) for entry in entries]))
    step.dims[0].attach_scale(time)
    scales: dict[object, h5py.Dataset] = {}
    for name, field in manifest.fields.items():
        if not field.is_mesh:
            continue
        made = _netcdf(file, name, field, parent, entries)
        described = {**field.attributes, "coordinates": "step"}
        made.attrs.update({k: as_attribute(v) for k, v in described.items()})
        for position, (axis, values) in enumerate(dimensions(field), 1):
            if axis not in scales:
                scales[axis] = file.create_dataset(axis, data=values)
                scales[axis].make_scale(axis)
            made.dims[position].attach_scale(scales[axis])
        made.dims[0].attach_scale(time)
    root = file.create_group(ROOT)
    for key, value in image(manifest).items():
        root.attrs[key] = value
    root.attrs["Version"] = np.array([2, 0])  # from which on images may have steps
    steps = root.create_group("Steps")
    steps.attrs["NSteps"] = len(entries)
    steps["Values"] = times
    data = root.create_group("PointData")
    for name, field in drawn(manifest).items():
        shape = (*field.extents, 3) if field.components else field.extents
        layout = h5py.VirtualLayout((len(entries), *shape), _type(name, entries))
        for number, entry in _with(name, entries):
            file_name = f"{parent.name}/{derived_files(Path(entry.name))[1]}"
            layout[number] = h5py.VirtualSource(
                file_name, f"{ROOT}/PointData/{name}", shape, entry.types[name]
            )
        _create(data, name, layout)


def _netcdf(
    file: h5py.File, name: str, field: FieldEntry, parent: Path, entries: Sequence[_Entry]
) -> h5py.Dataset:
    """The variable (time, components..., axes...) at the root."""
    layout = h5py.VirtualLayout((len(entries), *field.shape), _type(name, entries))
    for number, entry in _with(name, entries):
        file_name = f"{parent.name}/{derived_files(Path(entry.name))[0]}"
        for index, path in field.component_paths(name):
            source = f"data/{int(entry.name)}/fields/{path}"
            layout[(number, *index)] = h5py.VirtualSource(file_name, source, field.extents, entry.types[name])
    return _create(file, name, layout)


def dimensions(field: FieldEntry) -> list[tuple[str, np.ndarray]]:
    """Names and coordinates of the dimensions of a field: `component` (of a tensor `component_0`, ...), then its
    axes."""
    several = len(field.components) > 1
    leading = [
        (f"component_{i}" if several else "component", np.array(names, dtype="S"))
        for i, names in enumerate(field.components)
    ]
    return [*leading, *((axis.name, axis.coordinates) for axis in field.axes)]


def _with(name: str, entries: Sequence[_Entry]) -> Iterator[tuple[int, _Entry]]:
    return ((number, entry) for number, entry in enumerate(entries) if name in entry.types)


def _type(name: str, entries: Sequence[_Entry]) -> np.dtype:
    return np.result_type(*(np.dtype(entry.types[name]) for _, entry in _with(name, entries)))


def _create(group: h5py.Group, name: str, layout: h5py.VirtualLayout) -> h5py.Dataset:
    kind = layout.dtype
    missing = kind.type(np.nan) if kind.kind in "fc" else None  # let a missing source be visible
    return group.create_virtual_dataset(name, layout, fillvalue=missing)
