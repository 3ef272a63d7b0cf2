"""The index file: one HDF5 file in which every field is whole, made of virtual data sets over the shards.

The layout is openPMD 1.1 (https://github.com/openPMD/openPMD-standard/blob/1.1.0/STANDARD.md), file-based
iterations: `/data/<step>/fields/velocity/x`, `/data/<step>/particles/tracers/position/x`. The root has the dimension
scales, `time`, and links `velocity_x`, ... to the same data sets, so that netCDF readers see plain variables with
coordinates. String attributes are bytes, because yt fails on others. The file is derived: it can be rebuilt from the
manifest, and this program reads no data through it.
"""

import datetime
import io
import json
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from simulator.archive.commit import derived_files
from simulator.archive.manifest import FieldEntry, Manifest
from simulator.archive.shard import LIBVER
from simulator.files import write_durably

MakeDataset = Callable[[h5py.Group, str, FieldEntry, str, str], h5py.Dataset]
"""(group, name in it, entry, field, component path) -> the new data set."""


def field_path(manifest: Manifest, component_path: str) -> str:
    """The path of a component in an index or merged file."""
    field, slash, component = component_path.partition("/")
    entry = manifest.fields[field]
    if entry.species is not None:
        record = field.removeprefix(f"{entry.species}.")
        return f"/data/{manifest.step}/particles/{entry.species}/{record}{slash}{component}"
    group = "fields" if entry.is_mesh else "arrays"
    return f"/data/{manifest.step}/{group}/{component_path}"


def write_index(folder: Path, manifest: Manifest) -> Path:
    """Write the index of a committed folder beside it, replacing an existing one. Raises OSError."""

    def make(group: h5py.Group, name: str, entry: FieldEntry, field: str, path: str) -> h5py.Dataset:
        return virtual(group, name, entry.extents, folder, manifest, [(path, ())])

    path = derived_files(folder)[0]
    image = io.BytesIO()
    with h5py.File(image, "w", libver=LIBVER) as file:
        shown = {name: entry for name, entry in manifest.fields.items() if entry.in_index}
        lay_out(file, manifest.model_copy(update={"fields": shown}), make)
    write_durably(path, [image.getbuffer()])
    return path


def virtual(
    group: h5py.Group,
    name: str,
    shape: tuple[int, ...],
    folder: Path,
    manifest: Manifest,
    components: Sequence[tuple[str, tuple[int, ...]]],
) -> h5py.Dataset:
    """A virtual data set over the shards of a committed folder.

    `components`: (path, ()) for one component of a field, or (path, index) for each of several components that
    are stacked along a last axis.
    """
    field = components[0][0].partition("/")[0]
    dtype = np.dtype(manifest.fields[field].dtype)
    layout = h5py.VirtualLayout(shape, dtype)
    for path, index in components:
        for shard, number, block in manifest.pieces(field):
            part = tuple(slice(a, a + n) for a, n in zip(block.start, block.shape, strict=True))
            source = h5py.VirtualSource(f"{folder.name}/{shard.file}", f"{path}/{number}", block.shape, dtype)
            layout[(*part, *index)] = source
    # a missing source reads as the fill value, which must not look like data
    missing = (
        dtype.type(complex(np.nan, np.nan) if dtype.kind == "c" else np.nan) if dtype.kind in "fc" else None
    )
    return group.create_virtual_dataset(name, layout, fillvalue=missing)


def lay_out(file: h5py.File, manifest: Manifest, make: MakeDataset) -> None:
    """Give `file` its groups, attributes, scales and data sets; `make` creates each data set."""
    _set(
        file,
        {
            "openPMD": "1.1.0",
            "openPMDextension": np.uint32(0),
            "basePath": "/data/%T/",
            "meshesPath": "fields/",
            "particlesPath": "particles/",
            "iterationEncoding": "fileBased",
            "iterationFormat": "%08T",
            "software": "simulator",
            "softwareVersion": _version(),
            "date": datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %z"),
            **{k: v for k, v in manifest.attributes.items() if k not in ("time", "dt")},
        },
    )
    iteration = file.create_group(f"data/{manifest.step}")
    dt = manifest.attributes.get("dt", 0.0)
    _set(iteration, {"time": manifest.time, "dt": float(dt), "timeUnitSI": 1.0})
    iteration.create_group("fields")
    if "time" not in file:
        file["time"] = manifest.time
    scales: dict[Any, h5py.Dataset] = {}
    for name, entry in manifest.fields.items():
        mesh = _mesh_attributes(entry) if entry.is_mesh else {}
        if entry.components and entry.is_mesh:
            _set(iteration.require_group(f"fields/{name}"), mesh)
        for _, path in entry.component_paths(name):
            parent, _, last = field_path(manifest, path).rpartition("/")
            made = make(file.require_group(parent), last, entry, name, path)
            if entry.species is not None:
                _set(made, {"unitSI": 1.0})
                if not entry.components:
                    _set(made, _record_attributes(last))
            if not entry.is_mesh:
                continue
            _set(made, {"position": np.zeros(len(entry.axes)), "unitSI": 1.0, **entry.attributes})
            if not entry.components:
                _set(made, mesh)
            for i, axis in enumerate(entry.axes):
                if axis not in scales:
                    scales[axis] = _scale(file, axis)
                made.dims[i].attach_scale(scales[axis])
            link = path.replace("/", "_")
            if link not in file:
                file[link] = made
    species = {entry.species: entry.axes[-1].size for entry in manifest.fields.values() if entry.species}
    for name, count in species.items():
        _lay_out_species(iteration, name, count)
    if len(set(species.values())) == 1 and "position" not in file:
        # yt 4.4 counts the particles of every species by a path that begins at the root.
        file["position"] = iteration[f"particles/{next(iter(species))}/position"]


_DIMENSIONS = {
    "position": (1, 0, 0),
    "positionOffset": (1, 0, 0),
    "displacement": (1, 0, 0),
    "velocity": (1, 0, -1),
    "mass": (0, 1, 0),
    "fluid_velocity": (1, 0, -1),
    "fluid_acceleration": (1, 0, -2),
}
"""Powers of length, mass and time of records of particles; yt asks for those of positions."""


def _record_attributes(record: str) -> dict[str, Any]:
    powers = _DIMENSIONS.get(record, (0, 0, 0))
    return {"unitDimension": np.array([*powers, 0, 0, 0, 0], float), "timeOffset": 0.0}


def _lay_out_species(iteration: h5py.Group, species: str, count: int) -> None:
    """The attributes of records with components, and the constant record that the standard asks for."""
    group = iteration.require_group(f"particles/{species}")
    for name, record in group.items():
        if isinstance(record, h5py.Group):
            _set(record, _record_attributes(name))
    for axis in "xyz":
        offset = group.require_group(f"positionOffset/{axis}")
        _set(offset, {"value": 0.0, "shape": np.array([count], np.uint64), "unitSI": 1.0})
    _set(group.require_group("positionOffset"), _record_attributes("positionOffset"))


def _scale(file: h5py.File, axis: Any) -> h5py.Dataset:
    name = axis.name if axis.name not in file else f"{axis.name}_{axis.size}"
    while name in file:
        name += "_"
    scale = file.create_dataset(name, data=axis.coordinates)
    scale.make_scale(name)
    return scale


def _mesh_attributes(entry: FieldEntry) -> dict[str, Any]:
    spacing = [a.spacing if a.spacing is not None else 1.0 for a in entry.axes]
    offset = [a.origin if a.spacing is not None else float(min(a.labels or (0,))) for a in entry.axes]
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


def _set(target: h5py.Group | h5py.Dataset, attributes: Mapping[str, Any]) -> None:
    for name, value in attributes.items():
        target.attrs[name] = as_attribute(value)


def as_attribute(value: Any) -> Any:
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


def _version() -> str:
    try:
        return metadata.version("simulator")
    except metadata.PackageNotFoundError:
        return "unknown"
