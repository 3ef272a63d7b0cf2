"""The index of a snapshot: an HDF5 file that shows every field as one virtual data set over the
shards.

The layout is openPMD 1.1 (https://github.com/openPMD/openPMD-standard/blob/1.1.0/STANDARD.md),
file-based iterations: `/data/<step>/fields/velocity/x`,
`/data/<step>/particles/tracers/position/x`. The root has `time`, and the same fields as
`velocity_x`, ... with dimension scales, so that netCDF readers see plain variables with
coordinates; openPMD-api refuses data sets that have such scales. String attributes are bytes,
because yt fails on other strings. The index is derived: it can be rebuilt from the manifest, and
this program reads no data through it. A VTKHDF sidecar shows the same fields to ParaView, and
`snapshots.vtkhdf` shows all snapshots at once."""

import contextlib
import datetime
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from simulator.archive.hdf5_image import SEAL, write_sealed
from simulator.archive.manifest import (
    INDEX,
    SIDECAR,
    Axis,
    FieldEntry,
    Manifest,
    committed,
    read_manifest,
)
from simulator.archive.manifest import NAME as MANIFEST
from simulator.archive.snapshot_reader import RoundedField
from simulator.errors import RunFailure, UserError
from simulator.words import version_of


def virtual(
    group: h5py.Group,
    name: str,
    shape: tuple[int, ...],
    folder: Path,
    manifest: Manifest,
    components: Sequence[tuple[str, tuple[int, ...]]],
) -> h5py.Dataset:
    """A virtual data set over the shards of a committed folder.

    `components`: (path, ()) for one component of a field, or (path, index) for each of several
    components, which the data set stacks along its last axis; entries of the last axis without a
    component are zero. `shape` may lack axes of one point."""
    field = components[0][0].partition("/")[0]
    entry = manifest.fields[field]
    if entry.rounded is not None:
        return _decoded(group, name, shape, RoundedField(folder, manifest, field), components)
    dtype = np.dtype(entry.dtype)
    layout = h5py.VirtualLayout(shape, dtype)
    stacked = len(components[0][1])
    space = shape[: len(shape) - stacked]
    axes = range(len(space)) if space == entry.extents else _spanned(entry.axes)
    for path, index in components:
        for shard, number, block in manifest.pieces(field):
            part = [slice(block.start[i], block.start[i] + block.shape[i]) for i in axes]
            source = h5py.VirtualSource(
                f"{folder.name}/{shard.file}", f"{path}/{number}", block.shape, dtype
            )
            layout[(*part, *index)] = source
    if stacked and len(components) < shape[-1]:
        zero = "_".join(map(str, ("zero", *space)))
        # It is never written, and so takes no space.
        group.file.require_dataset(zero, space, np.int8)
        for empty in range(len(components), shape[-1]):
            layout[..., empty] = h5py.VirtualSource(".", zero, space)
    return _create(group, name, layout)


def _decoded(
    group: h5py.Group,
    name: str,
    shape: tuple[int, ...],
    stored: RoundedField,
    components: Sequence[tuple[str, tuple[int, ...]]],
) -> h5py.Dataset:
    """The values of a rounded field in single precision."""
    indices = {path: index for index, path in stored.entry.component_paths(stored.name)}
    single = {"f": np.float32, "c": np.complex64}[stored.dtype.kind]
    values = np.zeros(shape, single)
    for path, index in components:
        space = shape[: len(shape) - len(index)]
        values[(..., *index)] = stored[(*indices[path], ...)].reshape(space)
    return group.create_dataset(name, data=values)


def _root_attributes(manifest: Manifest) -> dict[str, Any]:
    """The attributes of an openPMD file, and those of the snapshot."""
    return {
        "openPMD": "1.1.0",
        "openPMDextension": np.uint32(0),
        "basePath": "/data/%T/",
        "meshesPath": "fields/",
        "particlesPath": "particles/",
        "iterationEncoding": "fileBased",
        "iterationFormat": "%08T",
        "software": "simulator",
        "softwareVersion": version_of(),
        "date": datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %z"),
        **{k: v for k, v in manifest.attributes.items() if k not in ("time", "dt")},
    }


def _again(file: h5py.File, name: str, data_set: h5py.Dataset) -> h5py.Dataset:
    """A data set of the same file under another name, with attributes of its own."""
    layout = h5py.VirtualLayout(data_set.shape, data_set.dtype)
    layout[...] = h5py.VirtualSource(data_set)
    return _create(file, name, layout)


def fill_index(file: h5py.File, folder: Path, manifest: Manifest) -> None:
    _set(file, _root_attributes(manifest))
    file["time"] = manifest.time
    iteration = file.create_group(f"data/{manifest.step}")
    dt = manifest.attributes.get("dt", 0.0)
    _set(iteration, {"time": manifest.time, "dt": float(dt), "timeUnitSI": 1.0})
    meshes = iteration.create_group("fields")
    scales: Scales = {}
    species: dict[str, int] = {}
    for name, entry in manifest.fields.items():
        if entry.species is not None:
            species[entry.species] = entry.axes[-1].size
            record = name.removeprefix(f"{entry.species}.")
            parent = iteration.require_group(f"particles/{entry.species}")
            described = _record_attributes(record)
        elif entry.is_mesh:
            record = name
            parent = meshes
            described = _mesh_attributes(entry)
        else:
            continue
        group = parent.create_group(record) if entry.components else parent
        for _, path in entry.component_paths(name):
            last = path.partition("/")[2] or record
            of_file = entry.extents, folder, manifest, [(path, ())]
            data_set = virtual(group, last, *of_file)
            _set(data_set, {"unitSI": 1.0})
            if entry.is_mesh:
                _set(data_set, {"position": np.zeros(len(entry.axes)), **entry.attributes})
                if (variable := path.replace("/", "_")) not in file:
                    if entry.rounded is not None:
                        plain = _again(file, variable, data_set)
                    else:
                        plain = virtual(file, variable, *of_file)
                    _set(plain, entry.attributes)
                    _attach(plain, scales, ((a.name, a.coordinates) for a in entry.axes), 0)
        _set(parent[record], described)
    if species:
        box = dict(zip("xyz", manifest.attributes.get("box", ()), strict=False))
        box |= {axis.name: axis.size * (axis.spacing or 0) for axis in _axes(manifest)}
        _add_patches(file, iteration.require_group("particles"), species, box)


Scales = dict[tuple[str, bytes], h5py.Dataset]
"""The dimension scales of a file by their names and values."""


def _attach(
    variable: h5py.Dataset,
    scales: Scales,
    coordinates: Iterable[tuple[str, np.ndarray]],
    first: int,
) -> None:
    """Give a variable at the root of its file coordinates, from the axis `first` on."""
    file = variable.file
    for position, (name, values) in enumerate(coordinates, first):
        key = name, values.tobytes()
        if key not in scales:
            free = name if name not in file else f"{name}_{len(values)}"
            while free in file:
                free += "_"
            scales[key] = file.create_dataset(free, data=values)
            scales[key].make_scale(free)
        variable.dims[position].attach_scale(scales[key])


_DIMENSIONS = {
    **dict.fromkeys(("position", "positionOffset", "displacement"), (1, 0, 0)),
    "mass": (0, 1, 0),
    **dict.fromkeys(("velocity", "fluid_velocity"), (1, 0, -1)),
    "fluid_acceleration": (1, 0, -2),
}
"""The powers of length, mass and time in the unit of each record of particles; yt needs them for
positions."""


def _record_attributes(record: str) -> dict[str, Any]:
    powers = _DIMENSIONS.get(record, (0, 0, 0))
    return {"unitDimension": np.array([*powers, 0, 0, 0, 0], float), "timeOffset": 0.0}


def _add_patches(
    file: h5py.File, particles: h5py.Group, species: Mapping[str, int], box: Mapping[str, float]
) -> None:
    """Add the offsets and patches of all species, which have these numbers of particles.

    yt 4.4 reads the numbers in patches at the root of the file, for all species alike. Therefore
    every species has a patch for each number that occurs; the patches of other numbers are empty
    and lie outside the box, where yt reads none. yt also takes the stored extent of a patch as its
    number of cells, which adds cells with zeros to the mesh, unless a unit keeps it below 1."""
    numbers = sorted(set(species.values()))
    file["particlePatches/numParticles"] = np.array(numbers, np.uint64)
    for name, count in species.items():
        group = particles.require_group(name)
        own = np.array(numbers) == count
        patches = group.create_group("particlePatches")
        patches["numParticles"] = np.where(own, count, 0).astype(np.uint64)
        patches["numParticlesOffset"] = np.zeros(len(numbers), np.uint64)
        for axis in map(str, group.require_group("position")):
            length = box.get(axis, 1.0)
            unit = 2.0 ** (np.frexp(length)[1] + 1)
            ends = {"offset": np.where(own, 0, 2), "extent": np.where(own, 1, 0)}
            for record, values in ends.items():
                patches[f"{record}/{axis}"] = values * (length / unit)
                _set(patches[f"{record}/{axis}"], {"unitSI": unit})
                _set(patches.require_group(record), _record_attributes("position"))
            offset = group.create_group(f"positionOffset/{axis}")
            _set(offset, {"value": 0.0, "shape": np.array([count], np.uint64), "unitSI": 1.0})
        _set(group["positionOffset"], _record_attributes("positionOffset"))


def _mesh_attributes(entry: FieldEntry) -> dict[str, Any]:
    spacing = [a.spacing if a.spacing is not None else 1.0 for a in entry.axes]
    offset = [
        a.origin if a.spacing is not None else float(min(a.labels or (0,))) for a in entry.axes
    ]
    return {
        "geometry": "cartesian",
        "dataOrder": "C",
        "axisLabels": [a.name for a in entry.axes],
        "gridSpacing": np.array(spacing),
        "gridGlobalOffset": np.array(offset),
        "gridUnitSI": 1.0,
        "unitDimension": np.zeros(7),
        "timeOffset": 0.0,
        **entry.attributes,
    }


def _set(target: h5py.HLObject, attributes: Mapping[str, Any]) -> None:
    for name, value in attributes.items():
        target.attrs[name] = as_attribute(value)


def as_attribute(value: object) -> object:
    """The HDF5 attribute for a JSON value: strings as bytes, types that HDF5 lacks as JSON text."""
    if isinstance(value, str):
        return np.bytes_(value.encode()) if value else np.bytes_(b" ")
    if isinstance(value, list | tuple) and value and all(isinstance(v, str) for v in value):
        return np.array([v.encode() for v in value])
    if isinstance(value, bool | int | float | np.ndarray | np.generic):
        return value
    if isinstance(value, list | tuple) and value and all(type(v) in (int, float) for v in value):
        return np.array(value)
    return np.bytes_(json.dumps(value).encode())


ROOT = "VTKHDF"


def sidecar_fields(manifest: Manifest) -> dict[str, tuple[int, ...]]:
    """The fields in the sidecar and their shapes there: the real scalars and vectors on the grid of
    the first field in physical space. VTK wants neither axes of one point nor vectors of fewer than
    three components."""
    axes = _axes(manifest)
    shape = tuple(axes[i].size for i in _spanned(axes))
    return {
        name: (*shape, *(max(len(c), 3) for c in entry.components))
        for name, entry in manifest.fields.items()
        if axes
        and entry.axes == axes
        and np.dtype(entry.dtype).kind in "fiu"
        and len(entry.components) <= 1
    }


def _spanned(axes: Sequence[Axis]) -> list[int]:
    """The numbers of the axes that have more than one point; of the last axis, if none has."""
    several = [i for i, axis in enumerate(axes) if axis.size > 1]
    return several if several or not axes else [len(axes) - 1]


def image(manifest: Manifest) -> dict[str, Any]:
    """The attributes of the root group of a VTKHDF file."""
    axes = _axes(manifest)
    layer = 3 - len(axes)
    last = [0] * layer + [a.size - 1 for a in axes]
    # Rows: the directions of the indices i, j, k.
    along = np.eye(3)[[*reversed(range(len(axes))), *range(len(axes), 3)]]
    return {
        "Version": np.array([1, 0]),
        "Type": np.bytes_("ImageData"),
        "WholeExtent": np.array([end for n in reversed(last) for end in (0, n)]),
        "Origin": np.array([a.origin for a in axes] + [0.0] * layer),  # in the run's x, y, z
        "Spacing": np.array([a.spacing for a in reversed(axes)] + [1.0] * layer),  # along i, j, k
        "Direction": along.T.ravel(),
    }


def fill_sidecar(file: h5py.File, folder: Path, manifest: Manifest) -> None:
    root = file.create_group(ROOT)
    root.attrs.update(image(manifest))
    root.create_dataset("FieldData/TimeValue", data=np.array([manifest.time]))
    data = root.create_group("PointData")
    for name, shape in sidecar_fields(manifest).items():
        paths = manifest.fields[name].component_paths(name)
        components = [(path, index) for index, path in paths]
        virtual(data, name, shape, folder, manifest, components)


def _axes(manifest: Manifest) -> tuple[Axis, ...]:
    """The axes of the first field in physical space; empty if there is no such field."""
    for entry in manifest.fields.values():
        if 0 < len(entry.axes) <= 3 and all(a.spacing is not None for a in entry.axes):
            return entry.axes
    return ()


NAME = "snapshots.vtkhdf"


@dataclass(frozen=True)
class _Listed:
    """One snapshot: its folder's name, its time, and the type of each of its fields."""

    name: str
    time: float
    types: Mapping[str, str]


def time_index_problem(parent: Path) -> str | None:
    """Why the index of all snapshots in `parent` is not as this program wrote it; None if it is, or
    if there are no indexed snapshots."""
    return SEAL.problem(parent.with_name(NAME)) if _all_listed(parent) else None


def write_time_index(parent: Path) -> Path | None:
    """Write the index of all snapshots with an index in `parent` (`RUN/snapshots`) beside that
    folder; returns the file. If there are none, remove the file and return None.

    The newest snapshot describes the fields; a field is nan in the snapshots that lack it. Raises
    OSError."""
    path = parent.with_name(NAME)
    entries = _all_listed(parent)
    if not entries:
        path.unlink(missing_ok=True)
        return None
    newest = read_manifest(parent / entries[-1].name).plain
    write_sealed(path, partial(_fill, parent=parent, manifest=newest, entries=entries))
    return path


def _all_listed(parent: Path) -> list[_Listed]:
    entries: list[_Listed | None] = []
    for folder in committed(parent):
        # `verify` reports damaged snapshots.
        with contextlib.suppress(UserError, RunFailure, OSError):
            entries.append(_listed(folder, (folder / MANIFEST).stat().st_mtime_ns))
    return [entry for entry in entries if entry is not None]


@lru_cache(maxsize=1 << 16)
def _listed(folder: Path, changed: int) -> _Listed | None:
    """The entry of a snapshot whose manifest was written at the time `changed`: a run reads each
    manifest once. None if the snapshot has no index."""
    manifest = read_manifest(folder)
    if not manifest.index:
        return None
    fields = manifest.plain.fields
    if not fields.keys() >= manifest.fields.keys() and not sidecar_fields(manifest.plain):
        return None
    types = {name: entry.dtype for name, entry in fields.items() if entry.is_mesh}
    return _Listed(folder.name, manifest.time, types)


def _fill(file: h5py.File, parent: Path, manifest: Manifest, entries: Sequence[_Listed]) -> None:
    times = np.array([entry.time for entry in entries])
    about = manifest.attributes
    _set(file, {key: about[key] for key in ("box", "configuration") if key in about})
    time = file.create_dataset("time", data=times)
    time.make_scale("time")
    step = file.create_dataset("step", data=np.array([int(entry.name) for entry in entries]))
    step.dims[0].attach_scale(time)
    scales: Scales = {}
    for name, field in manifest.fields.items():
        if not field.is_mesh:
            continue
        variable = _netcdf(file, name, field, parent, entries)
        _set(variable, {**field.attributes, "coordinates": "step"})
        _attach(variable, scales, dimensions(field), 1)
        variable.dims[0].attach_scale(time)
    root = file.create_group(ROOT)
    # The first version in which images may have steps.
    root.attrs.update({**image(manifest), "Version": np.array([2, 0])})
    steps = root.create_group("Steps")
    steps.attrs["NSteps"] = len(entries)
    steps["Values"] = times
    data = root.create_group("PointData")
    for name, shape in sidecar_fields(manifest).items():
        # VTK wants no axis of time if there is one step only.
        steps_axis = (len(entries),) if len(entries) > 1 else ()
        layout = h5py.VirtualLayout((*steps_axis, *shape), _type(name, entries))
        for number, entry in _with(name, entries):
            file_name = f"{parent.name}/{entry.name}{SIDECAR}"
            layout[(number,) if steps_axis else ...] = h5py.VirtualSource(
                file_name, f"{ROOT}/PointData/{name}", shape, entry.types[name]
            )
        _create(data, name, layout)


def _netcdf(
    file: h5py.File, name: str, field: FieldEntry, parent: Path, entries: Sequence[_Listed]
) -> h5py.Dataset:
    """Create the variable (time, components..., axes...) of a field at the root of `file`."""
    layout = h5py.VirtualLayout((len(entries), *field.shape), _type(name, entries))
    for number, entry in _with(name, entries):
        file_name = f"{parent.name}/{entry.name}{INDEX}"
        for index, path in field.component_paths(name):
            source = f"data/{int(entry.name)}/fields/{path}"
            layout[(number, *index)] = h5py.VirtualSource(
                file_name, source, field.extents, entry.types[name]
            )
    return _create(file, name, layout)


def dimensions(field: FieldEntry) -> list[tuple[str, np.ndarray]]:
    """Names and coordinates of the dimensions of a field: `component` (for a tensor `component_0`,
    ...), then the axes of space."""
    several = len(field.components) > 1
    leading = [
        (f"component_{i}" if several else "component", np.array(names, dtype="S"))
        for i, names in enumerate(field.components)
    ]
    return [*leading, *((axis.name, axis.coordinates) for axis in field.axes)]


def _with(name: str, entries: Sequence[_Listed]) -> Iterator[tuple[int, _Listed]]:
    return ((number, entry) for number, entry in enumerate(entries) if name in entry.types)


def _type(name: str, entries: Sequence[_Listed]) -> np.dtype:
    return np.result_type(*(np.dtype(entry.types[name]) for _, entry in _with(name, entries)))


def _create(group: h5py.Group, name: str, layout: h5py.VirtualLayout) -> h5py.Dataset:
    kind = layout.dtype
    # A missing source reads as the fill value, which must not look like data.
    missing = (
        kind.type(complex(np.nan, np.nan) if kind.kind == "c" else np.nan)
        if kind.kind in "fc"
        else None
    )
    return group.create_virtual_dataset(name, layout, fillvalue=missing)
