"""The VTKHDF sidecar, which ParaView and other VTK programs open in the run's right-handed frame.

In VTK's images the first axis varies fastest, in the arrays here the last: the image's (i, j, k) run along
(z, y, x). The direction matrix states this, so that points, cells and gradients come out in the run's frame. A
vector is one array of three components (x, y, z). Like the index, the file consists of virtual data sets
over the shards and can be rebuilt from the manifest. A plane is an image of one layer across z, with its scalars.
https://docs.vtk.org/en/latest/vtk_file_formats/vtkhdf_file_format/vtkhdf_specifications.html
"""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from simulator.archive.commit import derived_files
from simulator.archive.dataset import Axis
from simulator.archive.index import virtual
from simulator.archive.manifest import FieldEntry, Manifest
from simulator.archive.shard import LIBVER
from simulator.files import write_durably

ROOT = "VTKHDF"


def drawn(manifest: Manifest) -> dict[str, FieldEntry]:
    """The fields in the sidecar, all on the grid of the first field in physical space: real scalars and, of a box,
    3-vectors."""
    axes = _axes(manifest)
    return {
        name: entry
        for name, entry in manifest.fields.items()
        if axes
        and entry.axes == axes
        and np.dtype(entry.dtype).kind in "fiu"
        and tuple(len(c) for c in entry.components) in (((), (3,)) if len(axes) == 3 else ((),))
    }


def image(manifest: Manifest) -> dict[str, Any]:
    """The attributes of the root group."""
    axes = _axes(manifest)
    layer = 3 - len(axes) if axes else 0
    last = [0] * layer + [a.size - 1 for a in axes] or [0, 0, 0]
    along = np.eye(3)[[2, 1, 0] if not layer else [1, 0, 2]]  # rows: where i, j, k point
    return {
        "Version": np.array([1, 0]),
        "Type": np.bytes_("ImageData"),
        "WholeExtent": np.array([end for n in reversed(last) for end in (0, n)]),
        "Origin": np.array(
            [a.origin for a in axes] + [0.0] * layer or 3 * [0.0], float
        ),  # in the run's x, y, z
        "Spacing": np.array(
            [a.spacing for a in reversed(axes)] + [1.0] * layer or 3 * [1.0], float
        ),  # along i, j, k
        "Direction": along.T.ravel(),
    }


def write_vtkhdf(folder: Path, manifest: Manifest) -> Path:
    """Write the sidecar of a committed folder beside it, replacing an existing one. Raises OSError."""
    _, path = derived_files(folder)
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", libver=LIBVER) as file:
        root = file.create_group(ROOT)
        for name, value in image(manifest).items():
            root.attrs[name] = value
        root.create_dataset("FieldData/TimeValue", data=np.array([manifest.time]))
        data = root.create_group("PointData")
        for name, entry in drawn(manifest).items():
            shape = (*entry.extents, 3) if entry.components else entry.extents
            virtual(data, name, shape, folder, manifest, list(places(name, entry)))
    write_durably(path, [buffer.getbuffer()])
    return path


def places(name: str, entry: FieldEntry) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Each component's path, and its index along the last axis of the vector."""
    for index, path in entry.component_paths(name):
        yield path, index


def _axes(manifest: Manifest) -> tuple[Axis, ...]:
    """The axes of the first field over two or three axes of physical space; empty if there is none."""
    for entry in manifest.fields.values():
        if len(entry.axes) in (2, 3) and all(a.spacing is not None for a in entry.axes):
            return entry.axes
    return ()
